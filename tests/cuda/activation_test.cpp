#include <meso/cuda/activation.cuh>
#include <meso/cuda/linear.cuh>

#include "tests/cuda/device_test.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

// Gelu: 8u|x| and 10u|dy| of the CPU's policies; CUDA's expf and erff carry 2 ulp, as the CPU's. bf16 adds its rounding.
template <class A, class T, class F, class D>
void check_elementwise(F&& f, D&& derivative, double slope) {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>();
  on_device([&](cuda::Context& context) {
    const Index rows = 5, cols = 301;
    DeviceMatrix<T> x(context, rows, cols, 3, 1, 2), bias(context, 1, cols, 0, 2), y(context, rows, cols, 1),
        dy(context, rows, cols, 2, 3), dx(context, rows, cols, 5);
    oracle::Matrix sum = x.values();
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) sum(i, j) += bias.values()(0, j);
    cuda::bias_activation_forward(context, A{}, x.view(), bias.data(), y.view());
    const oracle::Matrix at = x.values(), slopes = dy.values();
    check_matrix("x", at, sum, [&](Index i, Index j) { return (u + v) * 1.01 * std::abs(sum(i, j)); });
    oracle::Matrix expected = at, expected_dx = at;
    for (std::size_t k = 0; k < at.data.size(); ++k) {
      expected.data[k] = f(at.data[k]);
      expected_dx.data[k] = slopes.data[k] * derivative(at.data[k]);
    }
    check_matrix("y", y.values(), expected,
                 [&](Index i, Index j) { return 11 * u * std::abs(at(i, j)) + v * std::abs(expected(i, j)); });
    cuda::activation_backward(context, A{}, x.constant(), dy.constant(), dx.view());
    check_matrix("dx", dx.values(), expected_dx, [&](Index i, Index j) {
      const double a = std::abs(at(i, j));
      return (18 + slope * a * (1 + 0.3 * a * a)) * u * std::abs(slopes(i, j)) + v * std::abs(expected_dx(i, j));
    });
    MESO_CHECK(x.intact() && y.intact() && dx.intact());
  });
}

template <class T>
void check_all() {
  check_elementwise<cuda::Gelu, T>(oracle::gelu, oracle::gelu_derivative, 0);
  check_elementwise<cuda::GeluTanh, T>(oracle::gelu_tanh, oracle::gelu_tanh_derivative, 4);
  check_elementwise<cuda::Relu, T>([](double x) { return x > 0 ? x : 0; }, [](double x) { return x > 0 ? 1.0 : 0.0; },
                                   0);
}

template <class T>
void check_gated() {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>();
  on_device([&](cuda::Context& context) {
    const Index rows = 3, cols = 130;
    DeviceMatrix<T> x(context, rows, 2 * cols, 1, 1, 2), y(context, rows, cols, 1), dy(context, rows, cols, 2, 3),
        dx(context, rows, 2 * cols, 1);
    cuda::activation_forward(context, cuda::SwiGlu{}, x.constant(), y.view());
    cuda::activation_backward(context, cuda::SwiGlu{}, x.constant(), dy.constant(), dx.view());
    const oracle::Matrix at = x.values(), out = y.values(), slopes = dy.values(), gradient = dx.values();
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) {
        const double g = at(i, j), up = at(i, cols + j), d = slopes(i, j), s = 1 / (1 + std::exp(-g));
        MESO_CHECK_WITHIN(out(i, j), oracle::silu(g) * up, (10 * u + v) * std::abs(oracle::silu(g) * up));
        MESO_CHECK_WITHIN(gradient(i, cols + j), d * oracle::silu(g), (10 * u + v) * std::abs(d * oracle::silu(g)));
        const double expected = d * up * oracle::silu_derivative(g);
        MESO_CHECK_WITHIN(gradient(i, j), expected,
                          std::abs(d * up) * s * (10 + 15 * std::abs(g)) * u + v * std::abs(expected));
      }
    MESO_CHECK(y.intact() && dx.intact());
  });
}

oracle::Matrix left_columns(const oracle::Matrix& x, Index cols) {
  oracle::Matrix left(x.rows, cols);
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < cols; ++j) left(i, j) = x(i, j);
  return left;
}

/// op(x, row, y) on rows that begin at multiples of 16 bytes, which are read in packs, and on rows that do not: the same
/// bits, and nothing past the last column. `times`: columns of x for one of y.
template <class T, class F>
void check_packs(Index cols, Index times, F&& op) {
  on_device([&](cuda::Context& context) {
    const Index rows = 5, wide = 304;
    DeviceMatrix<T> x(context, rows, times * wide, 8, 1, 2), row(context, 1, times * wide, 8, 2),
        y(context, rows, wide, 8, 3);
    DeviceMatrix<T> other_x(context, rows, times * cols, 3), other_row(context, 1, times * cols, 1),
        other_y(context, rows, cols, 1);
    other_x.set(left_columns(x.values(), times * cols));
    other_row.set(left_columns(row.values(), times * cols));
    other_y.set(left_columns(y.values(), cols));
    const oracle::Matrix before = y.values();
    const cuda::View<T> packs_x = x.view().col_range(0, times * cols), packs_y = y.view().col_range(0, cols);
    MESO_CHECK(cuda::detail::aligned(packs_x) && cuda::detail::aligned(packs_y));
    MESO_CHECK(!cuda::detail::aligned(other_x.view()) && !cuda::detail::aligned(other_y.view()));
    op(context, packs_x, row.data(), packs_y);
    op(context, other_x.view(), other_row.data(), other_y.view());
    MESO_CHECK(left_columns(x.values(), times * cols).data == other_x.values().data);
    MESO_CHECK(left_columns(y.values(), cols).data == other_y.values().data);
    MESO_CHECK(left_columns(y.values(), cols).data != left_columns(before, cols).data);
    for (Index i = 0; i < rows; ++i)
      for (Index j = cols; j < wide; ++j) MESO_CHECK(y.values()(i, j) == before(i, j));
    MESO_CHECK(x.intact() && y.intact() && other_x.intact() && other_y.intact());
  });
}

template <class T>
void check_all_packs() {
  const auto forward = [](auto activation) {
    return [=](cuda::Context& context, const cuda::View<T>& x, const T* bias, const cuda::View<T>& y) {
      cuda::bias_activation_forward(context, activation, x, bias, y);
    };
  };
  const auto backward = [](auto activation) {
    return [=](cuda::Context& context, const cuda::View<T>& x, const T*, const cuda::View<T>& y) {
      using A = decltype(activation);
      const cuda::View<T> dx = A::gated ? x : y;  // in place of x, or of dy
      cuda::activation_backward<A, T>(context, {}, x, y, dx);
      if (A::gated) cuda::add<T>(context, nullptr, x.col_range(0, y.cols), y);
    };
  };
  check_packs<T>(301, 1, forward(cuda::Gelu{}));  // with a last pack that is not whole
  check_packs<T>(304, 2, forward(cuda::SwiGlu{}));
  check_packs<T>(301, 2, forward(cuda::SwiGlu{}));
  check_packs<T>(301, 1, backward(cuda::Gelu{}));
  check_packs<T>(304, 2, backward(cuda::SwiGlu{}));
  check_packs<T>(301, 1, [](cuda::Context& context, const cuda::View<T>& x, const T* bias, const cuda::View<T>& y) {
    cuda::add<T>(context, bias, x, y);
  });
}

template <class From, class To>
void check_cast() {
  on_device([](cuda::Context& context) {
    const Index count = 317;
    DeviceMatrix<From> from(context, 1, count, 8, 1);
    DeviceMatrix<To> to(context, 1, count, 8), other(context, 1, count, 3);
    cuda::cast(context, from.data(), count, to.data());
    cuda::cast(context, from.data(), count, other.data());
    const oracle::Matrix expected = from.values();
    check_matrix("cast", to.values(), expected,
                 [&](Index, Index j) { return roundoff<To>() * std::abs(expected(0, j)); });
    MESO_CHECK(to.values().data == other.values().data);
    MESO_CHECK(to.intact() && other.intact());
  });
}

template <class T>
void check_sums() {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>();
  on_device([&](cuda::Context& context) {
    for (const Index rows : {Index{1}, Index{300}}) {
      const Index cols = 37;
      DeviceMatrix<T> x(context, rows, cols, 3, 1);
      DeviceMatrix<C> sum(context, 1, cols, 0, 9);
      const oracle::Matrix before = sum.values(), terms = x.values();
      cuda::column_sums(context, x.constant(), sum.data(), Accumulate::yes);
      oracle::Matrix expected = before, absolute(1, cols);
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < cols; ++j) expected(0, j) += terms(i, j), absolute(0, j) += std::abs(terms(i, j));
      check_matrix("sum", sum.values(), expected, [&](Index, Index j) {
        return (24 + static_cast<double>(rows) / 128 + 2) * u * (absolute(0, j) + std::abs(before(0, j)));
      });
    }
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_activation)

MESO_TEST(elementwise_float) { check_all<float>(); }
MESO_TEST(elementwise_double) { check_all<double>(); }
MESO_TEST(elementwise_bf16) { check_all<bf16>(); }
MESO_TEST(gated) {
  check_gated<float>();
  check_gated<bf16>();
}
MESO_TEST(packs_have_the_bits_of_single_elements) {
  check_all_packs<float>();
  check_all_packs<double>();
  check_all_packs<bf16>();
}
MESO_TEST(casts) {
  check_cast<float, bf16>();
  check_cast<float, float>();
}
MESO_TEST(sums_of_columns) {
  check_sums<float>();
  check_sums<bf16>();
}
MESO_TEST(a_wrong_shape_throws) {
  on_device([](cuda::Context& context) {
    DeviceMatrix<float> x(context, 3, 4), y(context, 3, 5);
    MESO_CHECK_THROWS(cuda::activation_forward(context, cuda::Gelu{}, x.constant(), y.view()), std::invalid_argument);
  });
}

MESO_TEST_SUITE_END()
