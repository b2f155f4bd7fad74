// expect: does not satisfy meso::UpdateRule
#include <meso/optim.hpp>

struct NoMoment {
  double learning_rate = 1, weight_decay = 0;
  static constexpr int moments = 1;
  static constexpr bool decoupled_decay = false;
  void direction(meso::Index, meso::ConstArray<double>, meso::Array<double>) const {}  // lacks its moment
};

int main() {
  Eigen::VectorXd theta = Eigen::VectorXd::Ones(3);
  meso::Optimizer<NoMoment>().step(theta, theta);
}
