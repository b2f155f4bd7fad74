#include <boost/test/unit_test.hpp>
#include <meso/norm.hpp>
#include <string>
#include <type_traits>

#include "studies.hpp"

namespace meso::test {

namespace {

using oracle::Vector;

/// The bounds of one row, in roundings: with x̂ the normalized row, X = max|x̂|, G = max|γ ∘ dy|, M = n·r·max|x|:
struct Stated {
  Vector y, dx;         // exact
  Vector y_bound, hat;  // hat = x̂
  double root = 0, top = 0, mean_share = 0;
};

template <class N>
Stated stated(const N& norm, const Vector& theta, const Vector& x, const Vector& dy) {
  constexpr bool centered = std::is_same_v<N, LayerNorm>;
  const double n = static_cast<double>(x.size()), m = centered ? oracle::mean(x) : 0;
  double square = 0, largest = 0;
  for (const double v : x) {
    square += (v - m) * (v - m) / n;
    largest = std::max<double>(largest, std::abs(v));
  }
  Stated s;
  s.root = 1 / std::sqrt(square + norm.epsilon);
  for (const double v : x) s.hat.push_back((v - m) * s.root), s.top = std::max<double>(s.top, std::abs(s.hat.back()));
  s.mean_share = centered ? s.root * largest : 0;
  if constexpr (centered) {
    const Vector gain(theta.begin(), theta.begin() + static_cast<Index>(x.size())),
        bias(theta.begin() + static_cast<Index>(x.size()), theta.end());
    s.y = oracle::layer_norm(x, gain, bias, norm.epsilon);
    s.dx = oracle::layer_norm_backward(x, gain, norm.epsilon, dy);
    for (std::size_t i = 0; i < x.size(); ++i)
      s.y_bound.push_back(std::abs(gain[i]) * ((n + 2) * s.mean_share + (n / 2 + 7) * std::abs(s.hat[i])) +
                          std::abs(s.y[i]));
  } else {
    s.y = oracle::rms_norm(x, theta, norm.epsilon);
    s.dx = oracle::rms_norm_backward(x, theta, norm.epsilon, dy);
    for (const double v : s.y) s.y_bound.push_back((n / 2 + 5) * std::abs(v));
  }
  return s;
}

template <class S, class N>
Study norms(const std::string& name, const std::string& y, const std::string& dx, const std::string& dtheta) {
  return {name,
          "x N(μ, σ²), σ 10⁻³–10², \\|μ\\| ≤ 30σ, ≤ 40 tokens, width 1–150",
          {{name + " y", y, in_scalar<S>}, {name + " dx", dx, in_scalar<S>}, {name + " dθ", dtheta, in_scalar<S>}},
          [](Draw& draw, std::vector<Comparison>& to) {
            const N norm;
            const Index rows = draw.size("rows", 0, draw.chance(0.05) ? 300 : 40), width = draw.size("width", 1, 150);
            const double scale = draw.note("scale", draw.log_uniform(1e-3, 100)),
                         offset = draw.note("offset", scale * draw.uniform(-30, 30) * (draw.chance(0.5) ? 1.0 : 0.0));
            const Index count = norm.parameter_count(width);
            const Window<S> x = draw.normals<S>(rows, width, scale, offset), dy = draw.normals<S>(rows, width),
                            residual = draw.normals<S>(rows, width), gain = draw.normals<S>(1, count, 0.3, 1.0);
            const bool around = draw.note("residual", draw.chance(0.5)) && residual.storage.size() > 0,
                       add = draw.note("add", draw.chance(0.5));
            Window<S> out = draw.window<S>(rows, width), saved = draw.window<S>(rows, N::saved_per_row),
                      back = draw.window<S>(rows, width), slope = draw.normals<S>(1, count);
            const Vector theta = gain.values().data, start = slope.values().data;
            CpuContext<> context(static_cast<int>(draw.between(1, 3)));
            norm_forward(context, norm, gain.view().data, x.view(), out.view(), saved.view());
            norm_backward(context, norm, gain.view().data, x.view(), saved.constant(), dy.view(),
                          around ? residual.view() : View<const S>{}, back.view(), slope.view().data,
                          add ? Accumulate::yes : Accumulate::no);

            constexpr bool centered = std::is_same_v<N, LayerNorm>;
            const double n = static_cast<double>(width);
            const RowTiles tiles = RowTiles::of(rows, width);
            const double terms = static_cast<double>((std::min)(tiles.tile_rows, rows) + tiles.count() + (add ? 1 : 0));
            Vector sum(oracle::at(count), 0.0), magnitude = sum, own = sum, means = sum;
            bool resolved = true;
            for (Index i = 0; i < rows; ++i) {
              const Vector row = x.values().row(i), d = dy.values().row(i);
              const Stated s = stated(norm, theta, row, d);
              // The first-order bounds hold while n·u·r·max|x| ≪ 1.
              if (n * unit_roundoff<S> * s.mean_share > 0.01) {
                resolved = false;
                continue;
              }
              double g = 0;
              for (std::size_t j = 0; j < d.size(); ++j)
                g = std::max<double>(g, std::abs(theta[count == 1 ? 0 : j] * d[j]));
              const double bound =
                  s.root * g *
                  (centered ? 2 * n + 20 + (2.5 * n + 25) * s.top + (n + 1) * (1 + s.top) * s.mean_share
                            : n / 2 + 8 + (2.5 * n + 20) * s.top);
              for (Index j = 0; j < width; ++j) {
                const std::size_t k = oracle::at(j);
                const double path = around ? residual(i, j) : 0.0;
                to[0].add(static_cast<double>(out(i, j)), s.y[k], s.y_bound[k],
                          std::abs(theta[count == 1 ? 0 : k]) * s.mean_share + std::abs(s.y[k]));
                to[1].add(static_cast<double>(back(i, j)), s.dx[k] + path, bound + std::abs(s.dx[k] + path),
                          s.root * g * (1 + s.mean_share) + std::abs(path));
                const std::size_t to_gain = count == 1 ? 0 : k;
                const double hat = std::abs(s.hat[k] * d[k]);
                sum[to_gain] += s.hat[k] * d[k], magnitude[to_gain] += hat;
                means[to_gain] += std::abs(d[k]) * s.mean_share;
                own[to_gain] += centered ? std::abs(d[k]) * (n + 1) * s.mean_share + (n / 2 + 8) * hat
                                         : (count == 1 ? 1.5 * n + 6 : n / 2 + 6) * hat;
                if (centered) sum[k + oracle::at(width)] += d[k], magnitude[k + oracle::at(width)] += std::abs(d[k]);
              }
            }
            for (std::size_t k = 0; resolved && k < sum.size(); ++k) {
              const double first = add ? start[k] : 0.0, size = magnitude[k] + std::abs(first);
              to[2].add(static_cast<double>(slope(0, static_cast<Index>(k))), sum[k] + first, own[k] + terms * size,
                        size + means[k]);
            }
            to[0].require(out.intact() && saved.intact(), "y or saved written outside its window");
            to[1].require(back.intact(), "dx written outside its window");
            to[2].require(slope.intact(), "dθ written outside its window");
          }};
}

}  // namespace

template <class S>
std::vector<Study> norm_studies() {
  const std::string sums = "; (rows of a tile + tiles)·Σ\\|terms\\|";
  const std::string rms = "r·G(n/2 + 8 + (5n/2 + 20)X) + \\|dx\\|";
  return {norms<S, LayerNorm>("LayerNorm", "\\|γ\\|((n + 2)·r·max\\|x\\| + (n/2 + 7)\\|x̂\\|) + \\|y\\|",
                              "r·G(2n + 20 + (5n/2 + 25)X + (n + 1)(1 + X)·r·max\\|x\\|) + \\|dx\\|",
                              "Σ\\|dy\\|((n + 1)·r·max\\|x\\| + (n/2 + 8)\\|x̂\\|)" + sums),
          norms<S, RmsNorm>("RmsNorm", "(n/2 + 5)\\|y\\|", rms, "(n/2 + 6)·Σ\\|dy ∘ x̂\\|" + sums),
          norms<S, RmsNormSingle>("RmsNormSingle", "(n/2 + 5)\\|y\\|", rms, "(3n/2 + 6)·Σ\\|dy ∘ x̂\\|" + sums)};
}
MESO_TEST_STUDIES(norm_studies);

}  // namespace meso::test
