#pragma once
#include <meso/layer/activation.hpp>
#include <meso/norm/norm.hpp>
#include <meso/normalizer/normalizer.hpp>

namespace meso {

/// The result type of apply(): a matrix of the argument's scalar and storage order.
template <class Derived>
using PlainMatrix = Eigen::Matrix<typename Derived::Scalar, Eigen::Dynamic, Eigen::Dynamic,
                                  Derived::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>;

/// Weights of a matrix of scores, one query a row, all keys visible, by any normalizer without learned parameters or
/// with their initial values. Takes any dense expression in any storage order and returns a matrix of the same order.
template <class N, class Derived>
requires AnyNormalizer<N, typename Derived::Scalar> PlainMatrix<Derived> apply(
    const N& normalizer, const Eigen::DenseBase<Derived>& scores) {
  using S = typename Derived::Scalar;
  const RowMajorMatrix<S> z = scores.derived();
  RowMajorMatrix<S> p(z.rows(), z.cols());
  Buffer<S> theta(N::parameters_per_head);
  initialize_normalizer(normalizer, 1, z.cols(), theta.data());
  const ConstArray<S> parameters = array(std::as_const(theta).data(), theta.size());
  if constexpr (Normalizer<N, S>) {
    for (Index i = 0; i < z.rows(); ++i)
      normalizer.forward(Row{0, i, z.cols(), z.cols()}, parameters, row_array(view(z), i), row_array(view(p), i));
  } else {
    normalizer.forward_matrix(ScoreMatrix{0, z.cols()}, parameters, view(z), view(p));
  }
  return p;
}

/// Normalized rows of x, one token a row, by any norm with parameters of the caller: a vector of
/// parameter_count(width) values. Takes any dense expression and returns a matrix of the same storage order.
/// Throws: std::invalid_argument when theta has another length.
template <class N, class Theta, class Derived>
requires Norm<N, typename Derived::Scalar> PlainMatrix<Derived> apply(const N& norm,
                                                                      const Eigen::DenseBase<Theta>& theta,
                                                                      const Eigen::DenseBase<Derived>& x) {
  using S = typename Derived::Scalar;
  check(theta.size() == norm.parameter_count(x.cols()), "apply: the norm has ", norm.parameter_count(x.cols()),
        " parameters at width ", x.cols(), " but ", theta.size(), " were given");
  const RowMajorMatrix<S> in = x.derived();
  const Eigen::Array<S, Eigen::Dynamic, 1> parameters = theta.derived();
  RowMajorMatrix<S> y(in.rows(), in.cols());
  Buffer<S> saved(N::saved_per_row);
  for (Index i = 0; i < in.rows(); ++i)
    norm.forward(array(parameters.data(), parameters.size()), row_array(view(in), i), row_array(view(y), i),
                 array(saved.data(), saved.size()));
  return y;
}

/// The same with the norm's initial parameters (gain 1, bias 0).
template <class N, class Derived>
requires Norm<N, typename Derived::Scalar> PlainMatrix<Derived> apply(const N& norm,
                                                                      const Eigen::DenseBase<Derived>& x) {
  using S = typename Derived::Scalar;
  Eigen::Array<S, Eigen::Dynamic, 1> theta(norm.parameter_count(x.cols()));
  norm.initialize(x.cols(), array(theta.data(), theta.size()));
  return apply(norm, theta, x);
}

/// f(x) element-wise, by any activation that is not gated. Takes any dense expression in any storage order.
template <class A, class Derived>
requires ElementwiseActivation<A, typename Derived::Scalar> PlainMatrix<Derived> apply(
    const A& activation, const Eigen::DenseBase<Derived>& x) {
  using S = typename Derived::Scalar;
  const PlainMatrix<Derived> in = x.derived();
  PlainMatrix<Derived> y(in.rows(), in.cols());
  activation.forward(array(static_cast<const S*>(in.data()), in.size()), array(y.data(), y.size()));
  return y;
}

/// f(gate, up) element-wise, by a gated activation.
/// Throws: std::invalid_argument when the shapes differ.
template <class A, class Derived, class Other>
requires GatedActivation<A, typename Derived::Scalar> PlainMatrix<Derived> apply(const A& activation,
                                                                                 const Eigen::DenseBase<Derived>& gate,
                                                                                 const Eigen::DenseBase<Other>& up) {
  using S = typename Derived::Scalar;
  check(gate.rows() == up.rows() && gate.cols() == up.cols(), "apply: gate is (", gate.rows(), ", ", gate.cols(),
        ") but up is (", up.rows(), ", ", up.cols(), ")");
  const PlainMatrix<Derived> g = gate.derived(), u = up.derived();
  PlainMatrix<Derived> y(g.rows(), g.cols());
  activation.forward(array(static_cast<const S*>(g.data()), g.size()), array(static_cast<const S*>(u.data()), u.size()),
                     array(y.data(), y.size()));
  return y;
}

}  // namespace meso
