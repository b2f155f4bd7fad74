#!/usr/bin/env bash
# Seconds to compile each header alone, the slowest first: bash bench/headers.sh [PART OF A PATH [COMPILER FLAG...]]
# CXX names another compiler than g++, EIGEN another folder than the system's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../include"

find meso -name "*.hpp" -path "*${1:-}*" -not -path "meso/cuda*" | sort | while read -r header; do
  start=$EPOCHREALTIME
  echo "#include <$header>" |
    "${CXX:-g++}" -std=c++20 -fopenmp -O3 "${@:2}" -I. -isystem "${EIGEN:-/usr/include/eigen3}" -x c++ -c - -o /dev/null
  awk -v start="$start" -v end="$EPOCHREALTIME" -v header="$header" 'BEGIN { printf "%6.2f %s\n", end - start, header }'
done | sort -rn
