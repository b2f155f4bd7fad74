// What one outlier channel costs a quantized matrix: with one scale for all the outlier takes the whole range; with a
// scale a row it does, too, if the channel is a column.
#include <cmath>
#include <iostream>
#include <meso/core/random.hpp>
#include <meso/quant.hpp>

int main() {
  const Eigen::Index tokens = 64, width = 128;
  const meso::Random random{1};
  const Eigen::MatrixXf gaussian = Eigen::MatrixXf::NullaryExpr(tokens, width, [&](Eigen::Index i, Eigen::Index j) {
    return static_cast<float>(random.normal(static_cast<std::uint64_t>(i * width + j)));
  });
  Eigen::MatrixXf planted = gaussian;
  planted.col(3) *= 60.0f;

  // Root mean square error over all channels but the planted one; the values have variance 1.
  const auto error = [](const Eigen::MatrixXf& x, const auto& scheme, const meso::Granularity& granularity) {
    Eigen::MatrixXf difference = meso::fake_quantize(x, scheme, granularity) - x;
    difference.col(3).setZero();
    return difference.norm() / std::sqrt(static_cast<float>(difference.size()));
  };
  const meso::Absmax absmax8{.bits = 8};
  const meso::Zeropoint zeropoint4{.bits = 4};
  const auto print = [&](const char* name, const Eigen::MatrixXf& x) {
    std::cout << name << ": absmax-8 " << error(x, absmax8, meso::per_tensor) << " a tensor, "
              << error(x, absmax8, meso::per_row) << " a row, " << error(x, absmax8, meso::per_group(16))
              << " a group of 16; zeropoint-4 " << error(x, zeropoint4, meso::per_row) << " a row\n";
  };
  print("Gaussian         ", gaussian);
  print("an outlier channel", planted);

  // Integers with a scale a row: at most half a step of error, and 1 byte a number.
  const meso::QuantizedMatrix<float> q = meso::quantize(gaussian, absmax8, meso::per_row);
  const Eigen::MatrixXf back = meso::dequantize(q);
  std::cout << "row 0 has the scale " << q.scale(0, 0) << "; its first number " << gaussian(0, 0) << " is "
            << static_cast<int>(q.values(0, 0)) << " steps, " << back(0, 0) << '\n';
  const bool half_a_step =
      ((back - gaussian).cwiseAbs().array() <= 0.5001f * q.scales.col(0).array().replicate(1, width)).all();
  const bool outlier_costs =
      error(planted, absmax8, meso::per_row) > 10 * error(gaussian, absmax8, meso::per_row) &&
      error(planted, absmax8, meso::per_group(16)) < 0.5f * error(planted, absmax8, meso::per_row);
  return half_a_step && outlier_costs ? 0 : 1;
}
