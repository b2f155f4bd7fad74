// A linear layer with what stands next to it gives the bits of the steps one by one.
#include <boost/test/unit_test.hpp>
#include <meso/core/random.hpp>
#include <meso/layer.hpp>
#include <meso/layer/fused_linear.hpp>

using namespace meso;

namespace {

/// A policy without an epilogue.
struct Plain {
  template <class Products, class S>
  void operator()(CpuContext<Products>& context, const Parameters<S>& parameters, Index weight, Index count, Index bias,
                  const ConstView<S>& x, const View<S>& y) const {
    FloatLinear{}(context, parameters, weight, count, bias, x, y);
  }
};

RowMajorMatrix<double> random(Index rows, Index cols, std::uint64_t seed) {
  RowMajorMatrix<double> m(rows, cols);
  fill_normal(view(m), Random{seed, 1});
  return m;
}

template <class A>
void check(const A& activation) {
  constexpr Index count = A::gated ? 2 : 1, tokens = 70, in = 9, hidden = 37, out = 11;
  ParameterLayout layout;
  const Index up = layout.add("up", hidden, in, ParameterKind::matrix);
  if (A::gated) layout.add("second", hidden, in, ParameterKind::matrix, ParameterLayout::Placement::packed);
  const Index up_bias = layout.add("bias", 1, hidden, ParameterKind::bias);
  if (A::gated) layout.add("second bias", 1, hidden, ParameterKind::bias, ParameterLayout::Placement::packed);
  const Index down = layout.add("down", out, hidden, ParameterKind::matrix);
  Parameters<double> w(layout);
  for (const ParameterInfo& info : layout) fill_normal(w[info.name], Random{1, stream_of(info.name)});
  CpuContext<> context(2);
  const RowMajorMatrix<double> x = random(tokens, in, 2), residual = random(tokens, out, 3),
                               dz = random(tokens, out, 4);

  RowMajorMatrix<double> u(tokens, count * hidden), y(tokens, hidden), expected_u = u, expected_y = y;
  FloatLinear{}(context, w, up, count, up_bias, view(x), view(expected_u));
  activation_forward(context, activation, view(expected_u), view(expected_y));
  linear_activation_forward(context, FloatLinear{}, activation, w, up, up_bias, view(x), view(u), view(y));
  BOOST_TEST((u == expected_u && y == expected_y));
  u.setZero(), y.setZero();
  linear_activation_forward(context, Plain{}, activation, w, up, up_bias, view(x), view(u), view(y));
  BOOST_TEST((u == expected_u && y == expected_y));

  RowMajorMatrix<double> z(tokens, out), expected_z = z;
  FloatLinear{}(context, w, down, Index{1}, Index{-1}, view(y), view(expected_z));
  expected_z += residual;
  linear_residual_forward(context, FloatLinear{}, w, down, Index{-1}, view(y), view(residual), view(z));
  BOOST_TEST((z == expected_z));

  RowMajorMatrix<double> dy(tokens, hidden), du(tokens, count * hidden), dw = random(out, hidden, 5), expected_dy = dy,
                                                                         expected_du = du, expected_dw = dw;
  Eigen::VectorXd db = Eigen::VectorXd::Ones(out), expected_db = db;
  linear_backward(context, view(y), w[down], view(dz), view(expected_dy), view(expected_dw), expected_db.data(),
                  Accumulate::yes);
  activation_backward(context, activation, view(u), view(expected_dy), view(expected_du));
  activation_linear_backward(context, activation, view(u), view(y), w[down], view(dz), view(dy), view(du), view(dw),
                             db.data(), Accumulate::yes);
  BOOST_TEST((dy == expected_dy && du == expected_du && dw == expected_dw && db == expected_db));

  const View<double> narrow = view(z).col_range(0, out - 1);
  BOOST_CHECK_THROW(linear_residual_forward(context, FloatLinear{}, w, down, Index{-1}, view(y), narrow, view(z)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(linear_activation_forward(context, FloatLinear{}, activation, w, up, up_bias, view(x), view(u),
                                              view(y).col_range(0, hidden - 1)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(activation_linear_backward(context, activation, view(u), view(y), w[down], view(dz), view(dy),
                                               view(du).col_range(0, hidden - 1), view(dw), nullptr, Accumulate::no),
                    std::invalid_argument);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fused_linear)

BOOST_AUTO_TEST_CASE(element_wise) { check(Gelu{}); }
BOOST_AUTO_TEST_CASE(gated) { check(SwiGlu{}); }

BOOST_AUTO_TEST_SUITE_END()
