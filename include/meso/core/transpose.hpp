#pragma once
#include <Eigen/Core>

#include <meso/core/view.hpp>

namespace meso::detail {

/// out(j, i) = in(i, j) for a block of n × n, one packet a row; `first` is the first row.
template <int n, class S, class Packet>
void transpose_packets(const Packet& first, const S* in, Index in_stride, S* out, Index out_stride) {
  Eigen::internal::PacketBlock<Packet, n> block;
  block.packet[0] = first;
  for (int k = 1; k < n; ++k) block.packet[k] = Eigen::internal::ploadu<Packet>(in + k * in_stride);
  Eigen::internal::ptranspose(block);
  for (int k = 0; k < n; ++k) Eigen::internal::pstoreu(out + k * out_stride, block.packet[k]);
}

/// out(j, i) = in(i, j); in (rows, cols).
template <class S>
void transpose_copy(const S* in, Index in_stride, Index rows, Index cols, S* out, Index out_stride) {
  using Traits = Eigen::internal::packet_traits<S>;
  constexpr int n = Traits::Vectorizable ? Traits::size : 1;
  const Index whole_rows = n > 1 ? rows - rows % n : 0, whole_cols = cols - cols % n;
  if constexpr (n > 1) {
    for (Index i = 0; i < whole_rows; i += n) {
      for (Index j = 0; j < whole_cols; j += n) {
        const S* corner = in + i * in_stride + j;
        transpose_packets<n>(Eigen::internal::ploadu<typename Traits::type>(corner), corner, in_stride,
                             out + j * out_stride + i, out_stride);
      }
      for (Index j = whole_cols; j < cols; ++j)
        for (Index k = i; k < i + n; ++k) out[j * out_stride + k] = in[k * in_stride + j];
    }
  }
  for (Index i = whole_rows; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) out[j * out_stride + i] = in[i * in_stride + j];
}

}  // namespace meso::detail
