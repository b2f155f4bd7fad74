// Kurtosis of any dense Eigen expression: near 3 for Gaussian numbers, far above where one channel is an outlier.
#include <cmath>
#include <iostream>
#include <meso/core/random.hpp>
#include <meso/stats.hpp>

int main() {
  const Eigen::Index tokens = 64, width = 512;
  const meso::Random random{1};
  Eigen::MatrixXf x = Eigen::MatrixXf::NullaryExpr(tokens, width, [&](Eigen::Index i, Eigen::Index j) {
    return static_cast<float>(random.normal(static_cast<std::uint64_t>(i * width + j)));
  });
  const double gaussian = meso::kurtosis(x);
  const double squared = meso::kurtosis(x.array().square());  // an expression; of a χ² with one degree of freedom: 15
  const double half = meso::kurtosis(x.topRows(tokens / 2));
  std::cout << "Gaussian: " << gaussian << ", its upper half: " << half << ", its squares: " << squared << '\n';

  x.col(7).array() += 30.0f;                                              // a planted outlier channel
  const Eigen::VectorXd of_tokens = meso::row_kurtosis(x);                // over the channels of each token
  const Eigen::VectorXd of_channels = meso::row_kurtosis(x.transpose());  // over the tokens of each channel
  std::cout << "with channel 7 moved by 30: mean over tokens " << of_tokens.mean() << ", of channel 7 itself "
            << of_channels[7] << '\n';

  meso::OutlierChannels outliers;
  outliers.add(0, x);
  std::cout << "outlier channels:";
  for (const meso::Index channel : outliers.channels()) std::cout << ' ' << channel;
  std::cout << '\n';

  // Standard error of the kurtosis of n Gaussian numbers: √(24/n) = 0.03.
  const bool good = std::abs(gaussian - 3) < 0.15 && std::abs(half - 3) < 0.2 && std::abs(squared - 15) < 4 &&
                    of_tokens.minCoeff() > 50 && of_channels[7] < 6 &&
                    outliers.channels() == std::vector<meso::Index>{7};
  return good ? 0 : 1;
}
