// expect: meso::view needs a row-major matrix
#include <meso/core/eigen.hpp>

int main() {
  Eigen::MatrixXf x(2, 3);
  return static_cast<int>(meso::view(x).rows);
}
