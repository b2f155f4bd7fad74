// expect: does not satisfy meso::Rotation.*rotate_back
#include <meso/optim.hpp>

struct OneWay {
  struct Plan {
    void rotate(meso::CpuContext<>&, meso::View<const double> in, meso::View<double> out) const {
      meso::map(out) = -meso::map(in);
    }
  };
  template <class S>
  Plan prepare(std::string_view, meso::Index, meso::Index) const {
    return {};
  }
};

int main() {
  Eigen::VectorXd theta = Eigen::VectorXd::Ones(3);
  meso::OrthoAdam<OneWay>().step(theta, theta);
}
