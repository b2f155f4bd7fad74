#!/usr/bin/env bash
# Builds and runs the main job, the ladder: bash examples/quickstart.sh [ARGUMENT OF THE LADDER...]
# Installs what is missing. Results go to results/ in the current folder; --help lists the arguments.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

source "$root/cmake/packages.sh"
meso_packages g++ cmake ninja-build ccache libeigen3-dev libcli11-dev gnuplot-nox bible-kjv

export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=1000 # threads that spin for long slow each other down on a busy machine

(
  cd "$root"
  mkdir -p build
  cmake --preset release -D MESO_BUILD_TESTS=OFF -D MESO_BUILD_BENCH=OFF >build/configure.log 2>&1 ||
    { cat build/configure.log && exit 1; }
  cmake --build build/release --target ladder
)

# The King James Bible as plain text, a chapter a line, without verse numbers, unless another text is asked for.
text=()
if [[ " $*" != *" --text"* ]]; then
  bible=$root/build/data/kjv.txt
  if [[ ! -s $bible ]]; then
    mkdir -p "${bible%/*}"
    bible -f Gen1:1-Rev22:21 </dev/null | awk '
      { chapter = $1; sub(/:.*/, "", chapter); gap = NR == 1 ? "" : chapter == last ? " " : "\n"; last = chapter
        printf "%s%s", gap, substr($0, length($1) + 2) }
      END { print "" }' >"$bible.part"
    mv "$bible.part" "$bible"
  fi
  text=(--text "$bible")
fi

exec "$root/build/release/examples/ladder/ladder" "${text[@]}" "$@"
