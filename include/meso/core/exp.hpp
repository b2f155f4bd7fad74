#pragma once
#include <cmath>
#include <meso/core/eigen.hpp>

namespace meso::detail {

/// Functor of meso::flushed_exp.
template <class S>
struct FlushedExp {
  // log of the smallest normal number
  static constexpr S lowest = sizeof(S) == sizeof(float) ? S(-87.33654) : S(-708.396418532264);

  S operator()(const S& x) const {
    using Traits = Eigen::internal::packet_traits<S>;
    if constexpr (Traits::Vectorizable && Traits::HasExp)
      return Eigen::internal::pfirst(packetOp(Eigen::internal::pset1<typename Traits::type>(x)));
    else
      return x < lowest ? S(0) : std::exp(x);
  }
  template <class Packet>
  Packet packetOp(const Packet& x) const {
    using namespace Eigen::internal;
    return pselect(pcmp_lt(x, pset1<Packet>(lowest)), pset1<Packet>(S(0)), pexp(x));
  }
};

}  // namespace meso::detail

template <class S>
struct Eigen::internal::functor_traits<meso::detail::FlushedExp<S>> {
  enum {
    Cost = functor_traits<scalar_exp_op<S>>::Cost + 2 * NumTraits<S>::AddCost,
    PacketAccess = packet_traits<S>::HasExp
  };
};

namespace meso {

/// e^x element-wise, with e^x = 0 where it would be below the smallest normal number; so e^{−∞} = 0 exactly.
/// Eigen's own vectorized exp clamps its argument and returns 3·10⁻³⁹ (float) or 6·10⁻³⁰⁹ (double) at −∞ instead.
/// An element has the same bits in the vectorized body of a loop and in its scalar ends.
/// Returns an Eigen expression that refers to its argument: assign it at once, never to auto.
/// Error: relative, ≤ 5u (Eigen's packet exp), and absolute, ≤ 1.2·10⁻³⁸ (float) or 2.3·10⁻³⁰⁸ (double) where flushed.
template <class Derived>
auto flushed_exp(const Eigen::ArrayBase<Derived>& x) {
  return x.derived().unaryExpr(detail::FlushedExp<typename Derived::Scalar>{});
}

}  // namespace meso
