#pragma once
#include <cstdint>
#include <meso/optim/rotation/haar.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meso {

/// One Haar matrix an axis: Ḡ = Q_row G Q_colᵀ, back Q_rowᵀ U Q_col. A vector (1, n) has only its axis of n.
/// An axis longer than max_dim gets ⌈d/max_dim⌉ contiguous Haar blocks of nearly equal size, none of them 1.
/// Memory: Σ d·min(d, max_dim) scalars; 4·elements·(rows + cols) operations a rotation.
/// Source: the usual practical form of OrthoAdam (Kaul et al., ICLR 2025).
/// Error: of one rotation, ≤ 2(rows + cols + 4)·u·|Q_row||G||Q_colᵀ| element-wise.
/// Throws: std::invalid_argument when max_dim < 3, which would need blocks of 1.
struct KroneckerRotation {
  std::uint64_t seed = 0;
  Index max_dim = 2048;

  template <class S>
  struct Block {
    Index first = 0;
    Index size = 0;
    Buffer<S> q;

    View<const S> matrix() const { return q.view(size, size); }
  };

  template <class S>
  struct Plan {
    std::vector<Block<S>> rows, cols;  ///< rows is empty for a vector

    template <class Products>
    void rotate(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      const auto scratch = context.workspace.template take<S>(rows.empty() ? 0 : in.size());
      const View<S> left = scratch.view(in.rows, in.cols);
      for (const Block<S>& b : rows)
        gemm(context, b.matrix(), in.row_range(b.first, b.size), left.row_range(b.first, b.size));
      if (!rows.empty()) in = left;
      for (const Block<S>& b : cols)
        gemm(context, in.col_range(b.first, b.size), b.matrix(), out.col_range(b.first, b.size), {.transpose_b = true});
    }
    template <class Products>
    void rotate_back(CpuContext<Products>& context, View<const S> in, View<S> out) const {
      const auto scratch = context.workspace.template take<S>(rows.empty() ? 0 : in.size());
      const View<S> left = scratch.view(in.rows, in.cols);
      for (const Block<S>& b : rows)
        gemm(context, b.matrix(), in.row_range(b.first, b.size), left.row_range(b.first, b.size),
             {.transpose_a = true});
      if (!rows.empty()) in = left;
      for (const Block<S>& b : cols)
        gemm(context, in.col_range(b.first, b.size), b.matrix(), out.col_range(b.first, b.size));
    }
  };

  void validate() const { check(max_dim >= 3, "KroneckerRotation: max_dim is ", max_dim, ", expected at least 3"); }

  template <class S>
  Plan<S> prepare(std::string_view name, Index rows, Index cols) const {
    Plan<S> plan;
    if (rows > 1) plan.rows = axis<S>(std::string(name) + " rows", rows);
    plan.cols = axis<S>(std::string(name) + " cols", cols);
    return plan;
  }

 private:
  template <class S>
  std::vector<Block<S>> axis(const std::string& name, Index size) const {
    const Index count = (size + max_dim - 1) / max_dim;
    std::vector<Block<S>> blocks;
    Index first = 0;
    for (Index b = 0; b < count; ++b) {
      const Index n = size / count + (b < size % count ? 1 : 0);
      blocks.push_back({first, n, Buffer<S>(n * n)});
      haar_matrix(Random{seed, stream_of(name + " " + std::to_string(b))}, blocks.back().q.view(n, n));
      first += n;
    }
    return blocks;
  }
};

}  // namespace meso
