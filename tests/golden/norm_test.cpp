#include <algorithm>
#include <meso/norm.hpp>
#include <type_traits>

#include "golden.hpp"

using namespace meso;
using namespace meso::test;

namespace {

/// x̂ = r·(x − mean) errs by δ roundings: (n + 2)·r·max|x| of the mean, which RMSNorm has not, and (n/2 + 7)·|x̂| of r
/// and the products. With G = max|γ ∘ dy|, X = max|x̂|:
///   y:  |γ|·δ + |y|
///   dx = r·(g − mean(g) − x̂·mean(g ∘ x̂)): r·G·((n + 3) + (n + 6)·X² + 2X·δ + (n/2 + 9)·(2 + X²))
///   dγ = Σ_rows dy ∘ x̂: Σ_rows |dy|·(δ + (rows + 2)·X); a single gain sums over the channels too
///   dβ = Σ_rows dy: rows·Σ|dy|
template <class S, class N>
void check_norm(const std::string& name, const N& norm) {
  const RowMajorMatrix<S> x = golden::load<S>(name + "/x"), dy = golden::load<S>(name + "/dy"),
                          theta = golden::load<S>(name + "/theta");
  const Index rows = x.rows(), n = x.cols(), count = theta.size();
  BOOST_TEST_REQUIRE(count == norm.parameter_count(n));
  CpuContext<> context(2);
  RowMajorMatrix<S> y(rows, n), saved(rows, N::saved_per_row), dx(rows, n), dtheta(1, count);
  norm_forward(context, norm, theta.data(), cview(x), view(y), view(saved));
  norm_backward(context, norm, theta.data(), cview(x), cview(saved), cview(dy), View<const S>{}, view(dx),
                dtheta.data(), Accumulate::no);

  const double width = static_cast<double>(n), batch = static_cast<double>(rows);
  const double gain = golden::largest(theta), slope = gain * golden::largest(dy);
  std::vector<double> delta, hat, root;
  for (Index i = 0; i < rows; ++i) {
    const bool centered = std::is_same_v<N, LayerNorm>;
    const double r = static_cast<double>(saved(i, N::saved_per_row - 1)), top = golden::largest(x.row(i));
    const S mean = centered ? saved(i, 0) : S(0);
    root.push_back(r);
    hat.push_back(r * golden::largest((x.row(i).array() - mean).eval()));
    delta.push_back((centered ? (width + 2) * r * top : 0) + (width / 2 + 7) * hat.back());
  }
  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  BOOST_TEST(golden::agrees<S>(
      name + "/y", y, [&](Index i, Index j) { return gain * delta[at(i)] + std::abs(static_cast<double>(y(i, j))); }));
  BOOST_TEST(golden::agrees<S>(name + "/dx", dx, [&](Index i, Index) {
    const double square = hat[at(i)] * hat[at(i)];
    return root[at(i)] * slope *
           (width + 3 + (width + 6) * square + 2 * hat[at(i)] * delta[at(i)] + (width / 2 + 9) * (2 + square));
  }));
  BOOST_TEST(golden::agrees<S>(name + "/dtheta", dtheta, [&](Index, Index k) {
    double sum = 0;
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < n; ++j) {
        if (count > 1 && j != k % n) continue;
        const double d = std::abs(static_cast<double>(dy(i, j)));
        const double terms = batch + (count > 1 ? 2 : width);
        sum += k < n ? d * (delta[at(i)] + terms * hat[at(i)]) : d * batch;
      }
    return sum;
  }));
}

BOOST_AUTO_TEST_SUITE(golden_norm)

BOOST_AUTO_TEST_CASE_TEMPLATE(norms, S, golden::Scalars) {
  for (const std::string width : {"7", "33"}) {
    check_norm<S>("norm/layer_norm_" + width, LayerNorm{});
    check_norm<S>("norm/rms_norm_" + width, RmsNorm{});
    check_norm<S>("norm/rms_norm_single_" + width, RmsNormSingle{});
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
