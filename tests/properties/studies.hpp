#pragma once
#include <vector>

#include "support/study.hpp"

/// Every op against its oracle, by module: what the property tests and the table of docs/numerics.md both run.
/// Each function is defined for float and double in the source file of its name.
namespace meso::test {

template <class S>
std::vector<Study> core_studies();
template <class S>
std::vector<Study> layer_studies();
template <class S>
std::vector<Study> activation_studies();
template <class S>
std::vector<Study> norm_studies();
template <class S>
std::vector<Study> normalizer_studies();
template <class S>
std::vector<Study> attention_studies();
template <class S>
std::vector<Study> statistics_studies();
template <class S>
std::vector<Study> quantization_studies();
template <class S>
std::vector<Study> optimizer_studies();

#define MESO_TEST_STUDIES(name)                                      \
  template std::vector<meso::test::Study> meso::test::name<float>(); \
  template std::vector<meso::test::Study> meso::test::name<double>()

}  // namespace meso::test
