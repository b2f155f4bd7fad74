// RMSNorm with one gain for all channels knows no channel from another: it commutes with every rotation of them. One
// gain a channel does not, and so lets single channels grow.
#include <Eigen/QR>
#include <iostream>
#include <meso/apply.hpp>
#include <meso/core/random.hpp>
#include <meso/norm.hpp>

Eigen::MatrixXd gaussian(Eigen::Index rows, Eigen::Index cols, std::uint64_t seed) {
  const meso::Random random{seed};
  return Eigen::MatrixXd::NullaryExpr(rows, cols, [&](Eigen::Index i, Eigen::Index j) {
    return random.normal(static_cast<std::uint64_t>(i * cols + j));
  });
}

int main() {
  const Eigen::Index tokens = 5, width = 16;
  const Eigen::MatrixXd x = gaussian(tokens, width, 1);
  const Eigen::MatrixXd q = Eigen::HouseholderQR<Eigen::MatrixXd>(gaussian(width, width, 2)).householderQ();
  const Eigen::VectorXd one_gain = Eigen::VectorXd::Constant(1, 1.5);
  const Eigen::VectorXd gains = Eigen::VectorXd::LinSpaced(width, 0.5, 2.5);

  const auto difference = [&](const auto& norm, const Eigen::VectorXd& theta) {
    const Eigen::MatrixXd norm_first = meso::apply(norm, theta, x) * q;
    const Eigen::MatrixXd rotation_first = meso::apply(norm, theta, x * q);
    return (norm_first - rotation_first).cwiseAbs().maxCoeff();
  };
  const double single = difference(meso::RmsNormSingle{}, one_gain), several = difference(meso::RmsNorm{}, gains);
  std::cout << "largest difference between norm(x) Q and norm(x Q)\n";
  std::cout << "  one gain (RmsNormSingle):  " << single << '\n';
  std::cout << "  a gain a channel (RmsNorm): " << several << '\n';
  return single < 1e-13 && several > 0.1 ? 0 : 1;
}
