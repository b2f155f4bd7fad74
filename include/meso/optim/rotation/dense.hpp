#pragma once
#include <cstdint>
#include <meso/optim/rotation/haar.hpp>
#include <string>
#include <string_view>

namespace meso {

/// One Haar matrix on the flattened parameter of D elements: ḡ = Q vec(g). Algorithm 1 of OrthoAdam as written.
/// It stores D² scalars and costs 4D² operations a step: for small parameters only.
/// Source: Kaul et al., "From Attention to Activation", ICLR 2025, Algorithm 1.
/// Throws: std::invalid_argument when a parameter has more than max_elements elements.
struct DenseRotation {
  std::uint64_t seed = 0;
  Index max_elements = 4096;

  template <class S>
  struct Plan {
    Index size = 0;
    Buffer<S> q;

    template <class Products>
    void rotate(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      gemm(context, contiguous_view(in.data, 1, size), q.view(size, size), contiguous_view(out.data, 1, size),
           {.transpose_b = true});
    }
    template <class Products>
    void rotate_back(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      gemm(context, contiguous_view(in.data, 1, size), q.view(size, size), contiguous_view(out.data, 1, size));
    }
  };

  template <class S>
  Plan<S> prepare(std::string_view name, Index rows, Index cols) const {
    const Index size = rows * cols;
    check(size <= max_elements, "DenseRotation: parameter ", name, " is (", rows, ", ", cols, "): ", size,
          " elements need a matrix of ", static_cast<double>(size) * static_cast<double>(size) * sizeof(S),
          " bytes, too large to store; the limit is max_elements = ", max_elements, " (use KroneckerRotation)");
    Plan<S> plan{size, Buffer<S>(size * size)};
    haar_matrix(Random{seed, stream_of(std::string(name) + " dense")}, plan.q.view(size, size));
    return plan;
  }
};

}  // namespace meso
