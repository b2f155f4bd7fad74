#include <boost/test/unit_test.hpp>
#include <meso/core/exp.hpp>
#include <meso/core/gemm.hpp>

#include "studies.hpp"
#include "support/oracle_layer.hpp"

namespace meso::test {

namespace {

template <class S>
Study exponential() {
  return {"flushed_exp",
          "x from the logarithm of the smallest normal number to that of the largest",
          {{"flushed_exp", "5", {unit_roundoff<S>, 0}}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Window<S> x = draw.window<S>(1, draw.size("n", 0, 200));
            Window<S> in = x, out = x;
            for (Index j = 0; j < x.cols; ++j) {
              // One in four is small, where the result is near 1.
              const double high = -detail::FlushedExp<S>::lowest;
              in(0, j) = static_cast<S>(draw.chance(0.25) ? draw.normal() : draw.uniform(-high, high));
            }
            if (x.cols > 0) row_array(out.view(), 0) = flushed_exp(row_array(in.constant(), 0));
            for (Index j = 0; j < x.cols; ++j) {
              const double v = static_cast<double>(in(0, j));
              to[0].add_relative(static_cast<double>(out(0, j)),
                                 static_cast<double>(std::exp(static_cast<long double>(v))), 5);
            }
            to[0].require(out.intact(), "written outside the window");
          }};
}

template <class S>
Study products() {
  return {"gemm",
          "N(0, 1), ≤ 40³, now and then 300³; transposed, accumulated, with a bias",
          {{"gemm", "(k + 2)·\\|α\\|\\|a\\|\\|b\\|, k + 3 with a bias", in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const Index most = draw.chance(0.05) ? 300 : 40;
            const Index m = draw.size("m", 0, most), n = draw.size("n", 0, most), k = draw.size("k", 0, most);
            const GemmOptions options{draw.chance(0.5), draw.chance(0.5), draw.chance(0.3),
                                      draw.chance(0.5) ? 1.0 : static_cast<double>(static_cast<S>(draw.normal()))};
            draw.note("transpose_a", options.transpose_a), draw.note("transpose_b", options.transpose_b);
            draw.note("accumulate", options.accumulate), draw.note("alpha", options.alpha);
            const Window<S> a = options.transpose_a ? draw.normals<S>(k, m) : draw.normals<S>(m, k);
            const Window<S> b = options.transpose_b ? draw.normals<S>(n, k) : draw.normals<S>(k, n);
            const bool with_bias = !options.accumulate && draw.chance(0.5);
            const RowMajorMatrix<S> bias = draw.normals<S>(1, n).view().cols > 0
                                               ? RowMajorMatrix<S>(RowMajorMatrix<S>::Constant(1, n, S(0.7)))
                                               : RowMajorMatrix<S>(1, 1);
            Window<S> c = draw.normals<S>(m, n);
            const Window<S> before = c;
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            gemm(context, a.view(), b.view(), c.view(), options, with_bias ? bias.data() : nullptr);
            const oracle::Product exact =
                oracle::product(a.values(), options.transpose_a, b.values(), options.transpose_b, options.alpha);
            for (Index i = 0; i < m; ++i)
              for (Index j = 0; j < n; ++j) {
                const double start = options.accumulate ? static_cast<double>(before.storage(c.top + i, c.left + j))
                                     : with_bias        ? static_cast<double>(bias(0, j))
                                                        : 0.0;
                const double scale = exact.magnitude(i, j) + std::abs(start);
                const double terms = static_cast<double>(k) + (options.accumulate || with_bias ? 3 : 2);
                to[0].add(static_cast<double>(c(i, j)), exact.value(i, j) + start, terms * scale, scale);
              }
            to[0].require(c.intact(), "written outside the window");
          }};
}

}  // namespace

template <class S>
std::vector<Study> core_studies() {
  return {exponential<S>(), products<S>()};
}
MESO_TEST_STUDIES(core_studies);

}  // namespace meso::test
