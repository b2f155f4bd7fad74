#include <cstdio>
#include <meso/meso.hpp>

int main() {
  const Eigen::VectorXd x = Eigen::VectorXd::Random(1000);
  const Eigen::MatrixXf logits = Eigen::MatrixXf::Random(4, 8);
  const auto p = meso::apply(meso::Softmax1{}, logits);
  std::printf("kurtosis %.3f, mass of row 0: %.3f\n", meso::kurtosis(x), static_cast<double>(p.row(0).sum()));
  return (p.rowwise().sum().array() < 1.0F).all() ? 0 : 1;
}
