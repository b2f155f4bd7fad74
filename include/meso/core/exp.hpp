#pragma once
#include <cmath>
#include <limits>
#include <meso/core/eigen.hpp>

namespace meso::detail {

/// e^x of a packet of float, 0 for x < −86.98996: e^x = 2ⁿ·e^r, n = round(x/log 2), |r| ≤ log(2)/2, and e^r by the
/// polynomial of degree 6 with the smallest largest relative error, 3.1·10⁻⁹ (Remez; its first coefficients are 1).
/// The power of two is built from the bits of n: 0 for n = −126, so that nothing has to be selected.
template <class Packet>
EIGEN_STRONG_INLINE Packet flushed_exp_packet(const Packet& x) {
  using namespace Eigen::internal;
  using Bits = typename unpacket_traits<Packet>::integer_packet;
  const auto constant = [](float c) { return pset1<Packet>(c); };
  // In this order NaN passes both.
  const Packet clamped = pmin<Packet>(pmax<Packet>(x, constant(-87.3f)), constant(88.8f));
  // 1.5·2²³ makes the sum an integer in its last bits, n + 126.
  Packet shifted = pmadd(clamped, constant(1.44269504f), constant(12582912.0f + 126.0f));
  EIGEN_OPTIMIZATION_BARRIER(shifted)  // -ffast-math would take the constant off again
  const Packet n = psub(shifted, constant(12582912.0f + 126.0f));
  // log 2 in two parts, the first so short that its product with n is exact.
  const Packet r = pmadd(n, constant(2.12194440e-4f), pmadd(n, constant(-0.693359375f), clamped));
  Packet twice = pmadd(constant(2 * 0.0013814613f), r, constant(2 * 0.00836871f));
  twice = pmadd(twice, r, constant(2 * 0.04166839f));
  twice = pmadd(twice, r, constant(2 * 0.16666521f));
  twice = pmadd(twice, r, constant(2 * 0.49999994f));
  twice = pmadd(twice, r, constant(2.0f));
  twice = pmadd(twice, r, constant(2.0f));
  return pmul(twice, preinterpret<Packet>(Bits(plogical_shift_left<23>(preinterpret<Bits>(shifted)))));
}

/// Functor of meso::flushed_exp.
template <class S>
struct FlushedExp {
  // The smallest argument with a result above 0: just above −125.5·log 2 in float, log of the smallest normal number in
  // double.
  static constexpr S lowest = sizeof(S) == sizeof(float) ? S(-86.98996) : S(-708.396418532264);

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
    if constexpr (std::is_same_v<S, float> && requires { typename unpacket_traits<Packet>::integer_packet; })
      return flushed_exp_packet(x);
    else
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

/// e^x element-wise, with e^x = 0 where it would be below 1.7·10⁻³⁸ in float, the smallest normal number in double; so
/// e^{−∞} = 0 exactly. Eigen's own vectorized exp clamps its argument and returns 3·10⁻³⁹ (float) or 6·10⁻³⁰⁹ (double) at
/// −∞ instead.
/// An element has the same bits in the vectorized body of a loop and in its scalar ends.
/// Returns an Eigen expression that refers to its argument: assign it at once, never to auto.
/// Error: relative, ≤ 5u (in double that of Eigen's packet exp), and absolute, ≤ 1.7·10⁻³⁸ (float) or 2.3·10⁻³⁰⁸ (double)
/// where flushed.
template <class Derived>
auto flushed_exp(const Eigen::ArrayBase<Derived>& x) {
  return x.derived().unaryExpr(detail::FlushedExp<typename Derived::Scalar>{});
}

/// The largest element of x, which has one, as the shift of a softmax. A NaN beside a finite number may be passed over,
/// since its exponential is NaN all the same; beside −∞ alone it is returned.
template <class S>
S shift_of(ConstArray<S> x) {
  const S top = x.maxCoeff();  // half as long as with PropagateNaN
  return top == -std::numeric_limits<S>::infinity() ? x.template maxCoeff<Eigen::PropagateNaN>() : top;
}

/// e = e^{x − shift}, element-wise as flushed_exp; returns Σ e. One pass. e may be x; without e.data() only the sum.
/// Error of the sum: relative, ≤ (n/4 + 16)·u beyond that of its terms, n·u without packets.
template <class S>
S exp_and_sum(ConstArray<S> x, S shift, Array<S> e) {
  using namespace Eigen::internal;
  const Index n = x.size();
  const detail::FlushedExp<S> exp;
  Index i = 0;
  S sum = 0;
  if constexpr (packet_traits<S>::Vectorizable && packet_traits<S>::HasExp) {
    using Packet = typename packet_traits<S>::type;
    constexpr Index size = packet_traits<S>::size;
    const Packet by = pset1<Packet>(shift);
    Packet sums[4] = {pset1<Packet>(S(0)), pset1<Packet>(S(0)), pset1<Packet>(S(0)), pset1<Packet>(S(0))};
    const auto add = [&](Packet& to) {
      const Packet y = exp.packetOp(psub(ploadu<Packet>(x.data() + i), by));
      if (e.data()) pstoreu(e.data() + i, y);
      to = padd(to, y);
      i += size;
    };
    while (i + 4 * size <= n)
      for (Packet& to : sums) add(to);
    while (i + size <= n) add(sums[0]);
    sum = predux(padd(padd(sums[0], sums[1]), padd(sums[2], sums[3])));
  }
  for (; i < n; ++i) {
    const S y = exp(x.data()[i] - shift);
    if (e.data()) e.data()[i] = y;
    sum += y;
  }
  return sum;
}

}  // namespace meso
