#include <boost/test/unit_test.hpp>
#include <cmath>
#include <meso/apply.hpp>
#include <meso/normalizer/sparsemax.hpp>

#include "support/oracle.hpp"
#include "support/tolerance.hpp"

BOOST_AUTO_TEST_SUITE(sparsemax)

using meso::Index;
using namespace meso::test;

BOOST_AUTO_TEST_CASE(closed_forms) {
  const auto p = [](auto... z) { return meso::apply(meso::Sparsemax{}, Eigen::RowVector3d(z...)); };
  BOOST_TEST((p(0.0, 0.0, 3.0).array() == Eigen::RowVector3d(0, 0, 1).array()).all());
  BOOST_TEST((p(1.0, 1.5, -7.0).array() == Eigen::RowVector3d(0.25, 0.75, 0).array()).all());
  // A score exactly 1 below the maximum is on the edge of the support: weight 0.
  BOOST_TEST((p(2.0, 1.0, 0.0).array() == Eigen::RowVector3d(1, 0, 0).array()).all());
  BOOST_TEST((meso::apply(meso::Sparsemax{}, Eigen::MatrixXd::Constant(2, 8, -3.25)).array() == 0.125).all());
}

// The iteration against sorting, on rows of every kind of support, and on a staircase, which takes many steps.
BOOST_AUTO_TEST_CASE(equals_sorting) {
  const auto compare = [](const oracle::Vector& z) {
    const Index n = static_cast<Index>(z.size());
    const oracle::Vector exact = oracle::sparsemax(z);
    const Eigen::MatrixXd p = meso::apply(meso::Sparsemax{}, Eigen::Map<const Eigen::RowVectorXd>(z.data(), n));
    // Both sides: scores rounded by the shift, and the sums.
    double top = 0;
    for (const double v : z) top = std::max<double>(top, std::abs(v));
    return all_within(p.data(), exact.data(), n,
                      [&](Index) { return 2 * unit_roundoff<double> * (static_cast<double>(n) * (1 + top) + 4); });
  };
  for (const double scale : {1e-3, 0.03, 0.3, 1.0, 10.0})
    for (Index n = 1; n <= 60; ++n) BOOST_TEST(compare(oracle::normal(static_cast<std::uint64_t>(n), n, scale)));
  oracle::Vector staircase;
  for (int k = 0; k < 200; ++k) staircase.push_back(-1.0 + std::pow(0.9, k));
  BOOST_TEST(compare(staircase));
}

BOOST_AUTO_TEST_SUITE_END()
