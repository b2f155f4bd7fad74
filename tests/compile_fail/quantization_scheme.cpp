// expect: does not satisfy meso::QuantizationScheme.*grid
#include <meso/quant.hpp>

struct WithoutGrid {
  using Storage = std::int8_t;
};

int main() { meso::quantize(Eigen::MatrixXf::Ones(2, 2), WithoutGrid{}); }
