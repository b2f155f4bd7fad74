#!/usr/bin/env bash
# Plants fourteen wrong changes in a copy of the library, one by one, and shows which test catches each.
#   bash tests/mutations.sh [PART OF A NAME]
# Exits 1 if a wrong change passes the tests, or if it could not be planted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source cmake/packages.sh
meso_packages g++ cmake ninja-build ccache libeigen3-dev libboost-test-dev perl
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=1000

copy=build/mutations
mkdir -p "$copy"
mirror() { # brings the copy back to the tree as it is; only files that differ are written, so that little is rebuilt
  git ls-files -co --exclude-standard -- CMakeLists.txt CMakePresets.json cmake include tests examples | while read -r file; do
    mkdir -p "$copy/$(dirname "$file")"
    cmp -s "$file" "$copy/$file" || cp "$file" "$copy/$file"
  done
}
build() { cmake --build "$copy/build/mutant" --target "$1" >"$copy/build.log" 2>&1; }
run() { "$copy/build/mutant/tests/$1" --log_level=error --color_output=no >"$copy/test.log" 2>&1; }

mirror
(cd "$copy" && cmake --preset release -B build/mutant -D MESO_BUILD_EXAMPLES=OFF -D MESO_BUILD_BENCH=OFF >configure.log 2>&1) ||
  { cat "$copy/configure.log" && exit 1; }

filter=${1:-}
planted=0 caught=0
mutant() { # NAME TEST FILE PERL-SUBSTITUTION
  local name=$1 test=$2 file=include/meso/$3 change=$4 verdict case
  [[ $name == *"$filter"* ]] || return 0
  planted=$((planted + 1))
  mirror
  perl -0pi -e "$change" "$copy/$file"
  if cmp -s "$file" "$copy/$file"; then
    verdict="NOT PLANTED: $file has changed"
  elif ! build "$test"; then
    verdict="NOT PLANTED: it does not compile ($(grep -m1 error "$copy/build.log"))"
  elif run "$test"; then
    verdict="MISSED by $test"
  else
    case=$(grep -m1 -oE 'error: in "[^"]*"' "$copy/test.log" | cut -d'"' -f2 || true)
    verdict="caught by $test: ${case:-it crashed}"
    caught=$((caught + 1))
  fi
  printf '%-34s %s\n' "$name" "$verdict"
}

mutant "a sign in the gradient of RMSNorm" test_norm norm/rms_norm.hpp 's/\(dy - x \*/(dy + x */'
mutant "no 1/sqrt(d)" test_attention attention/tile.hpp 's/1\.0 \/ std::sqrt\(static_cast<double>\(shape\.head_size\)\)/1.0/'
mutant "bias correction off by one" test_optim optim/adam_rule.hpp 's/static_cast<double>\(step\)/static_cast<double>(step + 1)/g'
mutant "a shifted causal mask" test_attention attention/mask.hpp 's/return \{0, \(std::min\)\(query \+ 1, keys\)\}/return {0, (std::min)(query + 2, keys)}/'
mutant "the 1 of softmax-1 not shifted" test_normalizer normalizer/null_logit.hpp 's/const S sum = detail::null_term<S>\(s, top\)/const S sum = std::exp(s)/'
mutant "epsilon outside the root" test_norm norm/layer_norm.hpp 's/std::sqrt\(\(x - mean\)\.square\(\)\.mean\(\) \+ static_cast<S>\(epsilon\)\)/(std::sqrt((x - mean).square().mean()) + static_cast<S>(epsilon))/'
mutant "mean instead of sum" test_layer layer/linear.hpp 's/sum_partials<S>\(partials, sum, accumulate == Accumulate::yes\);/sum_partials<S>(partials, sum, accumulate == Accumulate::yes); array(sum, x.cols) \/= static_cast<S>(x.rows);/'
mutant "a transposed Q" test_optim optim/rotation/kronecker.hpp 's/(void rotate_back.*?left\.row_range\(b\.first, b\.size\)),\s*\{\.transpose_a = true\}/$1/s'
mutant "swapped betas" test_optim optim/adam_rule.hpp 's/m = static_cast<S>\(beta1\) \* m/m = static_cast<S>(beta2) * m/'
mutant "median instead of mean" test_stats stats/hidden_states.hpp 's/RunningMean mean;(\s*if \(const Layer\* l = find\(layer\)\).*?)mean\.add\(\((.*?)\)\.value\(\)\);\s*return mean\.value\(\);/std::vector<double> mean;$1mean.push_back(($2).value());\n    if (mean.empty()) return nan;\n    std::sort(mean.begin(), mean.end());\n    return mean[mean.size() \/ 2];/s'
mutant "lse in base 2" test_normalizer normalizer/null_logit.hpp 's/return top \+ std::log\(sum\)/return top + std::log2(sum)/'
mutant "the tied head's gradient dropped" test_model model/decoder.hpp 's/detail::tied_head<A>\(\) \? Accumulate::yes : accumulate/accumulate/'
mutant "a wrong group in grouped queries" test_attention attention/attention.hpp 's/h = g \* shape\.group\(\); h < \(g \+ 1\) \* shape\.group\(\); \+\+h/h = g; h < shape.heads; h += shape.key_value_heads/g'
mutant "an ignored target counted" test_layer layer/loss.hpp 's/ - std::count\(targets\.begin\(\), targets\.end\(\), ignored_target\)//'

mirror
echo "$caught of $planted wrong changes caught"
((caught == planted && planted > 0))
