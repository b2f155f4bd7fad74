#!/usr/bin/env bash
# Builds the benchmarks in Release and runs them: bash bench/run.sh [FILTER [ARGUMENT OF GOOGLE BENCHMARK...]]
# FILTER is a part of an executable's name, as in `attention`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source cmake/packages.sh
meso_packages g++ cmake ninja-build ccache libeigen3-dev libbenchmark-dev

export OMP_WAIT_POLICY=passive # threads that spin slow each other down on a busy machine
cmake --preset release -D MESO_BUILD_TESTS=OFF -D MESO_BUILD_EXAMPLES=OFF
cmake --build build/release --target meso_bench

filter=${1:-}
for bench in build/release/bench/*"$filter"*_bench*; do
  if [[ -f $bench && -x $bench ]]; then
    echo "=== ${bench##*/}"
    "$bench" "${@:2}"
  fi
done
