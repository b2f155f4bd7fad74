#include <meso/cuda/norm.cuh>

#include "tests/cuda/device_test.hpp"
#include "tests/cuda/norm_oracle.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

/// Bounds: those of the CPU's policies with n roundings for the sums, which the device's order stays far below.
template <class N, class T>
void check_norm(Index rows, Index cols) {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>(), n = static_cast<double>(cols);
  on_device([&](cuda::Context& context) {
    const Index count = N{}.parameter_count(cols);
    DeviceMatrix<T> x(context, rows, cols, 3, 1, 1, 0.5), theta(context, 1, count, 0, 2), y(context, rows, cols, 1),
        dy(context, rows, cols, 2, 3), residual(context, rows, cols, 1, 4), dx(context, rows, cols, 5);
    DeviceMatrix<C> saved(context, rows, N::saved_per_row, 1), dtheta(context, 1, count, 0, 5);
    const oracle::Matrix in = x.values(), slopes = dy.values(), around = residual.values(), parameters = theta.values(),
                         before = dtheta.values();
    cuda::norm_forward<N, T>(context, N{}, theta.data(), x.constant(), y.view(), saved.view());
    cuda::norm_backward<N, T>(context, N{}, theta.data(), x.constant(), saved.constant(), dy.constant(),
                              residual.constant(), dx.view(), dtheta.data(), Accumulate::yes);
    oracle::Matrix expected(rows, cols), expected_dx(rows, cols), dx_bound(rows, cols), y_bound(rows, cols);
    oracle::Matrix expected_dtheta = before, dtheta_bound(1, count);
    for (double& b : dtheta_bound.data) b = u;
    for (Index i = 0; i < rows; ++i) {
      const oracle::Vector row = in.row(i), out = oracle::norm_of<N>(row, parameters.row(0)),
                           d = oracle::norm_backward_of<N>(row, parameters.row(0), slopes.row(i));
      oracle::Vector ones(row.size(), 1.0), zeros(row.size(), 0.0);
      ones.resize(N::single ? 1 : row.size());
      if constexpr (N::centered) ones.insert(ones.end(), zeros.begin(), zeros.end());
      const oracle::Vector normal = oracle::norm_of<N>(row, ones);
      double top = 0, g_top = 0, x_top = 0, square = 0;
      const double mean = N::centered ? oracle::mean(row) : 0;
      for (Index j = 0; j < cols; ++j) {
        const double gain = parameters(0, N::single ? 0 : j);
        top = std::max<double>(top, std::abs(row[oracle::at(j)]));
        g_top = std::max<double>(g_top, std::abs(gain * slopes(i, j)));
        x_top = std::max<double>(x_top, std::abs(normal[oracle::at(j)]));
        square += (row[oracle::at(j)] - mean) * (row[oracle::at(j)] - mean);
      }
      const double r = 1 / std::sqrt(square / n + 1e-5);
      for (Index j = 0; j < cols; ++j) {
        const double gain = std::abs(parameters(0, N::single ? 0 : j)), hat = std::abs(normal[oracle::at(j)]);
        expected(i, j) = out[oracle::at(j)];
        expected_dx(i, j) = d[oracle::at(j)] + around(i, j);
        y_bound(i, j) = gain * ((n + 2) * r * top + (n / 2 + 7) * hat) * u + (u + v) * std::abs(out[oracle::at(j)]);
        dx_bound(i, j) = r * g_top * (2 * n + 20 + (2.5 * n + 25) * x_top + (n + 1) * (1 + x_top) * r * top) * u +
                         (2 * u + v) * std::abs(expected_dx(i, j));
        const double term = slopes(i, j) * normal[oracle::at(j)];
        expected_dtheta(0, N::single ? 0 : j) += term;
        dtheta_bound(0, N::single ? 0 : j) +=
            (std::abs(slopes(i, j)) * ((n + 1) * r * top + (1.5 * n + 8 + 40) * hat)) * u;
        if constexpr (N::centered) {
          expected_dtheta(0, cols + j) += slopes(i, j);
          dtheta_bound(0, cols + j) += 40 * std::abs(slopes(i, j)) * u;
        }
      }
    }
    for (Index j = 0; j < count; ++j) dtheta_bound(0, j) += 4 * u * std::abs(before(0, j));
    check_matrix("y", y.values(), expected, [&](Index i, Index j) { return y_bound(i, j); });
    check_matrix("dx", dx.values(), expected_dx, [&](Index i, Index j) { return dx_bound(i, j); });
    check_matrix("dtheta", dtheta.values(), expected_dtheta, [&](Index i, Index j) { return dtheta_bound(i, j); });
    MESO_CHECK(y.intact() && dx.intact() && saved.intact() && dtheta.intact());
  });
}

template <class N>
void check_types() {
  check_norm<N, float>(5, 33);
  check_norm<N, float>(130, 300);
  check_norm<N, float>(1, 1);
  check_norm<N, double>(3, 65);
  check_norm<N, bf16>(7, 100);
}

}  // namespace

MESO_TEST_SUITE(cuda_norm)

MESO_TEST(layer_norm) { check_types<cuda::LayerNorm>(); }
MESO_TEST(rms_norm) { check_types<cuda::RmsNorm>(); }
MESO_TEST(rms_norm_single) { check_types<cuda::RmsNormSingle>(); }

MESO_TEST_SUITE_END()
