#!/usr/bin/env bash
# Builds the benchmarks in Release and runs them beside PyTorch and OpenBLAS, where these are there.
#   bash bench/run.sh [FILTER] [--quick] [--rounds N] [--march NAME] [--no-pip]     --help says more
# MESO_PYTHON lists the interpreters to look for PyTorch in, separated by colons; default: python3. Where none of them has
# PyTorch 2, it is installed with pip into build/bench/venv, once, and asked too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

march=native pip=yes help=no
arguments=()
while (($#)); do
  case $1 in
    --march) march=${2:?--march needs a name, as in x86-64-v3} && shift ;;
    --march=*) march=${1#*=} ;;
    --no-pip) pip=no ;;
    -h | --help) help=yes && arguments+=("$1") ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[[ $march =~ ^[A-Za-z0-9_.-]+$ ]] || { echo "bench/run.sh: --march is \"$march\", expected a name as in x86-64-v3" >&2 && exit 2; }

source cmake/packages.sh
meso_packages g++ cmake ninja-build ccache libeigen3-dev libbenchmark-dev libopenblas-dev libopenblas0-openmp \
  gnuplot-nox python3

build=build/release
[[ $march == native ]] || build=build/bench-$march
export MESO_PYTHON=${MESO_PYTHON:-python3}

has_pytorch_2() { "$1" -c 'import torch, sys; sys.exit(int(torch.__version__.split(".")[0]) < 2)' 2>/dev/null; }

# Adds build/bench/venv to MESO_PYTHON, made if need be. One line where that does not work out.
add_pytorch_2() {
  local python venv=build/bench/venv log=build/bench/pip.log
  local IFS=:
  for python in $MESO_PYTHON; do
    ! has_pytorch_2 "$python" || return 0
  done
  mkdir -p build/bench
  if ! has_pytorch_2 "$venv/bin/python"; then
    echo "Installing PyTorch into $venv with pip: a large download, once; --no-pip leaves it out"
    if ! { python3 -m venv --clear "$venv" && "$venv/bin/pip" install --retries 1 torch numpy; } >"$log" 2>&1 ||
      ! has_pytorch_2 "$venv/bin/python"; then
      echo "not run: PyTorch 2, which pip could not install: $(grep -v '^ *$' "$log" | tail -1)"
      return 0
    fi
  fi
  MESO_PYTHON+=:$venv/bin/python
}

if [[ $help == no ]]; then
  cmake --preset release -B "$build" -D MESO_MARCH="$march" -D MESO_BUILD_TESTS=OFF -D MESO_BUILD_EXAMPLES=OFF
  cmake --build "$build" --target meso_bench
  [[ $pip == no ]] || add_pytorch_2
fi
python3 -B bench/compare.py --march="$march" --build="$build" "${arguments[@]}"
