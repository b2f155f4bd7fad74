#!/usr/bin/env bash
# Builds the benchmarks in Release and runs them beside PyTorch and OpenBLAS, where these are there.
#   bash bench/run.sh [FILTER] [--quick] [--rounds N]     --help says more
# MESO_PYTHON lists the interpreters to look for PyTorch in, separated by colons; default: python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source cmake/packages.sh
meso_packages g++ cmake ninja-build ccache libeigen3-dev libbenchmark-dev libopenblas-dev libopenblas0-openmp \
  gnuplot-nox python3

if [[ " $* " != *" --help "* && " $* " != *" -h "* ]]; then
  cmake --preset release -D MESO_BUILD_TESTS=OFF -D MESO_BUILD_EXAMPLES=OFF
  cmake --build build/release --target meso_bench
fi
python3 -B bench/compare.py "$@"
