#!/usr/bin/env bash
# Builds and runs the tests, in tiers. Installs what is missing.
#   bash tests/run.sh             the suite with g++ in Release; every header alone; consumers; kernels compiled by nvcc
#                                 and run on a GPU where there are such; the suite for another x86-64 than this machine's;
#                                 clang++ on every header and one binary; AddressSanitizer and
#                                 UndefinedBehaviorSanitizer on two binaries, ThreadSanitizer on one
#   bash tests/run.sh --all       the same with the whole suite under clang++ and the sanitizers, without OpenMP, with
#                                 EIGEN_MAX_ALIGN_BYTES=0; for x86-64-v2, -v3 and -v4 with g++ and clang++ (run where the
#                                 machine can); planted mutations; the benchmarks
#   bash tests/run.sh --quick     the suite with g++ in Release only
#   --preset NAME                 another CMake preset than ci for the suite
#   --eigen DIR                   also the suite with the Eigen in DIR, a source tree or an installation
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

depth=default
preset=ci
eigen=
while (($#)); do
  case $1 in
    --all) depth=all ;;
    --quick) depth=quick ;;
    --preset) preset=${2:?--preset needs a name} && shift ;;
    --eigen) eigen=$(realpath "${2:?--eigen needs a folder}") && shift ;;
    -h | --help) usage && exit 0 ;;
    *) echo "tests/run.sh: unknown option $1" >&2 && usage >&2 && exit 2 ;;
  esac
  shift
done

# The module whose binary alone runs under clang++ and under the sanitizers, when not all do.
clang_module=model
sanitized_module=attention
# The modules whose code runs on several threads, for ThreadSanitizer: the first alone, when not all do.
threaded_modules=(core attention norm layer model optim train quant)

source cmake/packages.sh
packages=(g++ cmake ninja-build ccache libeigen3-dev libopenblas-dev libboost-test-dev libcli11-dev gnuplot-nox bible-kjv)
[[ $depth == quick && $preset != clang ]] || packages+=(clang libclang-rt-dev libomp-dev)
[[ $depth != all ]] || packages+=(libbenchmark-dev)
meso_packages "${packages[@]}"

export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=1000 # threads that spin for long slow each other down on a busy machine
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

configure() { cmake --preset "$@" >"$logs/configure" 2>&1 || { cat "$logs/configure" && return 1; }; }

# test PRESET [CTEST-ARGUMENT...]: runs ctest and keeps its summary and the number of Boost test cases.
run_ctest() {
  local build=build/$1 status=0
  shift
  ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" | tee "$logs/ctest" || status=$?
  grep -E '^[0-9]+% tests passed' "$logs/ctest" >>"$logs/summaries" || true
  grep -E '^Running [0-9]+ test case' "$build/Testing/Temporary/LastTest.log" >>"$logs/cases" || true
  return $status
}

suite() {
  configure "$1"
  cmake --build "build/$1"
  run_ctest "$1" -LE 'consumer|headers|cuda'
}

# The kernels run in emulation in every suite (test_cuda). With a CUDA toolkit they are also compiled by nvcc for three
# architectures, and with a GPU they run there.
nvcc_and_gpu() {
  configure "$1"
  if ! grep -q '^CUDAToolkit_NVCC_EXECUTABLE:.*nvcc' "build/$1/CMakeCache.txt" 2>/dev/null; then
    echo "CUDA: kernels ran in emulation; there is no nvcc: not compiled for a GPU, not run on one" | tee -a "$logs/tiers"
    return 0
  fi
  run_ctest "$1" -L cuda
  if grep -q 'skipped: ' "build/$1/Testing/Temporary/LastTest.log"; then
    echo "CUDA: kernels ran in emulation and compiled by nvcc; not run on a GPU: $(grep -o 'skipped: .*' \
      "build/$1/Testing/Temporary/LastTest.log" | head -1)" | tee -a "$logs/tiers"
  else
    echo "CUDA: kernels ran in emulation, compiled by nvcc and ran on a GPU" | tee -a "$logs/tiers"
  fi
}

headers() { # PRESET [HOW]
  configure "$1"
  cmake --build "build/$1" --target meso_headers meso_odr
  run_ctest "$1" -L headers
}

consumers() {
  configure "$1"
  run_ctest "$1" -L consumer
}

machine_runs() { # LEVEL of x86-64, as glibc's loader tells it
  /lib64/ld-linux-x86-64.so.2 --help 2>/dev/null | grep -q "$1 (supported"
}

# Packets, registers, FMA and alignment differ by the level. What the machine cannot run is compiled.
level() { # LEVEL [clang-]
  if machine_runs "$1"; then
    suite "${2-}$1"
  else
    configure "${2-}$1"
    cmake --build "build/${2-}$1"
    echo "$1: compiled; this machine cannot run it" | tee -a "$logs/tiers"
  fi
}

with_eigen() { # DIR
  local prefix=$1
  if [[ -e $1/Eigen/Core ]]; then # a source tree
    prefix=$PWD/build/eigen5-prefix
    cmake -S "$1" -B build/eigen5-source -D EIGEN_BUILD_TESTING=OFF -D BUILD_TESTING=OFF -D EIGEN_BUILD_DOC=OFF \
      -D EIGEN_BUILD_BLAS=OFF -D EIGEN_BUILD_LAPACK=OFF -D EIGEN_BUILD_DEMOS=OFF -D CMAKE_INSTALL_PREFIX="$prefix" \
      >"$logs/configure" 2>&1 || { cat "$logs/configure" && return 1; }
    cmake --install build/eigen5-source >"$logs/configure"
  fi
  configure eigen5 -D CMAKE_PREFIX_PATH="$prefix"
  grep '^Eigen3_DIR' build/eigen5/CMakeCache.txt
  cmake --build build/eigen5
  run_ctest eigen5 -LE 'consumer|headers|cuda'
}

binary() { # PRESET MODULE
  configure "$1"
  cmake --build "build/$1" --target "test_$2"
  run_ctest "$1" -R "^test_$2\$"
}

clang_headers_and_binary() {
  headers clang
  binary clang "$clang_module"
}

threads() { # MODULE...
  local archer
  configure tsan
  cmake --build build/tsan --target planted_race "${@/#/test_}"
  # Archer tells ThreadSanitizer of OpenMP's barriers; libomp itself is not instrumented. No suppressions.
  archer=$(clang++ -print-resource-dir)/../../libarcher.so
  [[ -e $archer ]] || { echo "libarcher.so (package libomp-dev) is not there" && return 1; }
  export OMP_TOOL_LIBRARIES=$archer TSAN_OPTIONS=ignore_noninstrumented_modules=1
  # ThreadSanitizer sees a race only where both threads run in its window, which a busy machine may prevent once.
  local attempt
  for attempt in 1 2 3 4 5; do
    if ! build/tsan/tests/planted_race >"$logs/race" 2>&1 && grep -q 'data race' "$logs/race"; then break; fi
    if ((attempt == 5)); then
      cat "$logs/race" && echo "ThreadSanitizer did not report the planted race" && return 1
    fi
  done
  echo "The planted race is reported"
  run_ctest tsan -R "^test_($(IFS='|' && echo "$*"))\$"
}

benches() {
  configure release
  cmake --build build/release --target meso_bench
  local bench
  for bench in build/release/bench/*_bench; do
    [[ ! -x $bench ]] || "$bench" --benchmark_min_time=0.01
  done
}

failed=0
tier() { # NAME COMMAND...
  local name=$1 start=$SECONDS status=0 outcome=passed
  shift
  echo "=== $name"
  set +e
  (set -e && "$@")
  status=$?
  set -e
  if ((status != 0)); then
    outcome=FAILED
    failed=1
  fi
  echo "tier $name: $outcome in $((SECONDS - start)) s" >>"$logs/tiers"
}

tier "suite ($preset)" suite "$preset"
if [[ $depth != quick ]]; then
  tier "headers alone ($preset)" headers "$preset"
  tier "consumers" consumers "$preset"
  tier "CUDA: nvcc, GPU" nvcc_and_gpu "$preset"
fi
if [[ $depth == default && $(uname -m) == x86_64 ]]; then
  other=x86-64-v2 # than native
  if machine_runs x86-64-v4; then other=x86-64-v3; fi
  tier "$other: suite" level "$other"
elif [[ $depth == all && $(uname -m) == x86_64 ]]; then
  for other in x86-64-v2 x86-64-v3 x86-64-v4; do
    tier "$other: suite" level "$other"
    tier "$other, clang++: suite" level "$other" clang-
  done
fi
[[ -z $eigen ]] || tier "Eigen in $eigen: suite" with_eigen "$eigen"
if [[ $depth == default ]]; then
  tier "clang++: every header, test_$clang_module" clang_headers_and_binary
  tier "sanitizers: test_$sanitized_module" binary asan "$sanitized_module"
  tier "sanitizers: test_cuda" binary asan cuda
  tier "threads: test_${threaded_modules[0]}" threads "${threaded_modules[0]}"
elif [[ $depth == all ]]; then
  tier "clang++: every header" headers clang
  tier "clang++: suite" suite clang
  tier "sanitizers: suite" suite asan
  tier "threads" threads "${threaded_modules[@]}"
  tier "without OpenMP: suite" suite serial
  tier "EIGEN_MAX_ALIGN_BYTES=0: suite" suite unaligned
  tier "mutations" bash tests/mutations.sh
  tier "benchmarks" benches
fi

echo
cat "$logs/tiers"
if [[ -s $logs/cases ]]; then
  awk '{ n += $2 } END { print n " Boost test cases" }' "$logs/cases"
fi
if [[ -s $logs/summaries ]]; then
  awk '{ failed += $4; total += $NF } END {
    printf "%d%% tests passed, %d tests failed out of %d\n", int(100 * (total - failed) / total), failed, total }' "$logs/summaries"
fi
((failed == 0)) || echo "tests/run.sh: FAILED"
exit $failed
