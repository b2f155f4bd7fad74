#!/usr/bin/env bash
# The tests of the kernels on a real GPU, then a table of errors and times. It builds with the CUDA toolkit and CMake
# alone (no Eigen, no Boost), and takes less than four minutes.
#   bash tests/cuda/run_on_gpu.sh             build, tests, table
#   --tests                                   no table
#   --build FOLDER                            where to build (default: build/gpu)
# Exit status: 0 all passed, 1 a failure, 2 it cannot be built, 77 there is no GPU (the driver's error is printed).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/../../build/gpu
table=yes
while (($#)); do
  case $1 in
    --tests) table=no ;;
    --build) build=${2:?--build needs a folder} && shift ;;
    *) echo "run_on_gpu.sh: unknown option $1" >&2 && exit 2 ;;
  esac
  shift
done

export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [[ ! -x $CUDACXX ]]; then
  echo "run_on_gpu.sh: there is no nvcc, neither in the path nor in /usr/local/cuda" >&2
  exit 2
fi
architecture=90
if command -v nvidia-smi >/dev/null; then
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ' || true)
  [[ $found =~ ^[0-9]+$ ]] && architecture=$found
fi
mkdir -p "$build"
# A GPU first: without one nothing needs to be built.
cat >"$build/probe.cu" <<'CUDA'
#include <cstdio>
int main() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return 0;
  std::printf("skipped: %s (%d): %s\n", cudaGetErrorName(error), static_cast<int>(error), cudaGetErrorString(error));
  return 77;
}
CUDA
"$CUDACXX" -o "$build/probe" "$build/probe.cu" >"$build/build.log" 2>&1 || { cat "$build/build.log" >&2 && exit 2; }
"$build/probe" || exit $?
targets=(--target test_cuda)
[[ $table == no ]] || targets+=(table)
if ! { cmake -S "$here/gpu" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$architecture" &&
  cmake --build "$build" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" "${targets[@]}"; } >"$build/build.log" 2>&1; then
  cat "$build/build.log" >&2
  exit 2
fi
echo "Built for sm_$architecture in $SECONDS s"
status=0
"$build/test_cuda" || status=$?
((status != 77)) || exit 77
if [[ $table == yes ]]; then
  "$build/table" || status=1
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    python3 "$here/gpu/pytorch_step.py" || true
  else
    echo "PyTorch with CUDA is not there: no comparison"
  fi
fi
echo "run_on_gpu.sh: $SECONDS s"
exit $status
