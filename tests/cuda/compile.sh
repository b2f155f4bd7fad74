#!/usr/bin/env bash
# Compiles every source of the GPU's tests for one architecture and fails on a warning, a stack frame or a spill:
#   compile.sh NVCC sm_90 OUTPUT-FOLDER
set -euo pipefail
nvcc=$1 code=$2 out=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
mkdir -p "$out"
failed=0 kernels=0
for source in "$here"/main.cpp "$here"/attention_[0-9]*.cpp "$here"/*_test.cpp "$here"/gpu/*.cpp; do
  name=$(basename "$source" .cpp)
  [[ $name != emulation_test && $name != cpu_test ]] || continue
  log=$out/$name.log
  if ! "$nvcc" -std=c++20 -O3 -cubin -arch="$code" -Xptxas -v,-warn-spills -Werror all-warnings \
    -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow -DMESO_TEST_OWN_RUNNER -I"$root/include" -I"$root" \
    -x cu "$source" -o "$out/$name.cubin" >"$log" 2>&1; then
    cat "$log"
    failed=1
    continue
  fi
  kernels=$((kernels + $(grep -c 'bytes stack frame' "$log" || true)))
  if grep 'bytes stack frame' "$log" | grep -qv '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'; then
    echo "$name: a kernel has a stack or spills registers ($code)"
    grep -B1 'bytes stack frame' "$log" | grep -v '^ *0 bytes stack' | grep -B1 -E '^ *[0-9]+ bytes stack' || true
    failed=1
  fi
done
echo "$code: $kernels kernels compiled"
((failed == 0 && kernels > 0))
