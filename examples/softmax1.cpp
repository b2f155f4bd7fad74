// Softmax-1 beside softmax on a plain Eigen matrix of scores, one query a row: the weights may sum to less than 1, and
// what is missing, the null mass, is attention that goes nowhere.
#include <cmath>
#include <iostream>
#include <meso/apply.hpp>
#include <meso/normalizer.hpp>

int main() {
  Eigen::MatrixXf scores(3, 4);
  scores << 3, 1, 0, -1,  // one key stands out
      0, 0, 0, 0,         // no preference
      -6, -7, -6, -8;     // no key matches

  const Eigen::MatrixXf softmax = meso::apply(meso::Softmax{}, scores);
  const Eigen::MatrixXf softmax1 = meso::apply(meso::Softmax1{}, scores);
  const Eigen::VectorXf null_mass = 1 - softmax1.rowwise().sum().array();
  std::cout << "scores\n" << scores << "\n\nsoftmax\n" << softmax << "\n\nsoftmax-1\n" << softmax1;
  std::cout << "\n\nnull mass of softmax-1: " << null_mass.transpose() << '\n';

  // Any dense expression does; here no copy of the half is ever named.
  const Eigen::MatrixXf sharper = meso::apply(meso::Softmax1{}, 2 * scores.leftCols(2));
  std::cout << "softmax-1 of twice the scores of keys 1 and 2\n" << sharper << '\n';

  // The null mass is 1 / (1 + Σ e^z).
  const Eigen::ArrayXf expected = 1 / (1 + scores.array().exp().rowwise().sum());
  const bool good = (null_mass.array() - expected).abs().maxCoeff() < 1e-6f &&
                    (softmax.rowwise().sum().array() - 1).abs().maxCoeff() < 1e-6f &&
                    std::abs(sharper(1, 0) - 1.0f / 3) < 1e-6f;
  return good ? 0 : 1;
}
