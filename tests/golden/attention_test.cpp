#include <algorithm>
#include <meso/attention.hpp>
#include <meso/normalizer.hpp>

#include "golden.hpp"

using namespace meso;
using namespace meso::test;

namespace {

struct Shape {
  std::string name;
  AttentionShape sizes;
};

const Shape multi_head{"multi_head", {2, 9, 3, 3, 4, 12}};
const Shape grouped{"grouped", {2, 9, 4, 2, 4, 12}};
const Shape multi_query{"multi_query", {1, 7, 3, 1, 5, 12}};
const Shape tiles_32{"tiles_32", {1, 70, 2, 1, 3, 12}};
const Shape tiles_64{"tiles_64", {1, 130, 1, 1, 3, 12}};

/// A score errs by (d + 3)·Z roundings, Z ≥ Σ|q||k|/√d; a weight by `slope` times that, slope bounding the normalizer's
/// derivative (weights are compared by themselves in normalizer_test.cpp), and by 2·time + 40 of its own and of the
/// sums over keys. Then o = P v ≤ slope·max|v|, dv = Pᵀ do, dP = do vᵀ ≤ d·max|do|·max|v|, dz ≤ 2·slope·dP,
/// dq = dz k/√d, dk = dzᵀ q/√d, dv and dk summed over the queries of a group.
template <class S, class N, class M>
void check_attention(const Shape& shape, const std::string& name, const N& normalizer, const M& mask, double slope = 1,
                     const std::string& theta_name = "") {
  const std::string inputs = "attention/" + shape.name, outputs = inputs + "/" + name;
  const AttentionShape& sizes = shape.sizes;
  const RowMajorMatrix<S> q = golden::load<S>(inputs + "/q"), k = golden::load<S>(inputs + "/k"),
                          v = golden::load<S>(inputs + "/v"), d_o = golden::load<S>(inputs + "/do");
  RowMajorMatrix<S> theta, dtheta;
  if (N::parameters_per_head > 0) theta = dtheta = golden::load<S>(inputs + "/" + theta_name);
  RowMajorMatrix<S> o = q, dq = q, dk = k, dv = v;
  CpuContext<> context(2);
  attention_forward(context, normalizer, mask, sizes, theta.data(), cview(q), cview(k), cview(v), view(o));
  attention_backward(context, normalizer, mask, sizes, theta.data(), cview(q), cview(k), cview(v), cview(d_o), view(dq),
                     view(dk), view(dv), dtheta.data(), Accumulate::no);

  const double d = static_cast<double>(sizes.head_size), time = static_cast<double>(sizes.time);
  const double top_q = golden::largest(q), top_k = golden::largest(k), top_v = golden::largest(v),
               top_o = golden::largest(d_o);
  const double score = top_q * top_k * std::sqrt(d), queries = time * static_cast<double>(sizes.group());
  const double weight = slope * (slope * 2 * (d + 3) * score + 2 * time + 40);
  const auto all = [&](double bound) { return [bound, weight](Index, Index) { return weight * bound; }; };
  BOOST_TEST(golden::agrees<S>(outputs + "/o", o, all(top_v)));
  BOOST_TEST(golden::agrees<S>(outputs + "/dv", dv, all(top_o * queries)));
  BOOST_TEST(golden::agrees<S>(outputs + "/dq", dq, all(2 * top_o * top_v * top_k * std::sqrt(d))));
  BOOST_TEST(golden::agrees<S>(outputs + "/dk", dk, all(2 * top_o * top_v * top_q * std::sqrt(d) * queries)));
  if (N::parameters_per_head > 0)
    BOOST_TEST(golden::agrees<S>(outputs + "/dtheta", dtheta,
                                 all(2 * d * top_o * top_v * score * time * static_cast<double>(sizes.batch))));
}

BOOST_AUTO_TEST_SUITE(golden_attention)

BOOST_AUTO_TEST_CASE_TEMPLATE(softmax_and_softmax1_under_every_mask, S, golden::Scalars) {
  for (const Shape& shape : {multi_head, grouped}) {
    check_attention<S>(shape, "softmax_causal", Softmax{}, Causal{});
    check_attention<S>(shape, "softmax_bidirectional", Softmax{}, Bidirectional{});
    check_attention<S>(shape, "softmax_window3", Softmax{}, SlidingWindow{3});
    check_attention<S>(shape, "softmax1_causal", Softmax1{}, Causal{});
    check_attention<S>(shape, "softmax1_bidirectional", Softmax1{}, Bidirectional{});
    check_attention<S>(shape, "softmax1_window3", Softmax1{}, SlidingWindow{3});
  }
  check_attention<S>(multi_query, "softmax1_causal", Softmax1{}, Causal{});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sequences_of_several_tiles, S, golden::Scalars) {
  check_attention<S>(tiles_32, "softmax1_causal", Softmax1{}, Causal{});
  check_attention<S>(tiles_32, "softmax_window40", Softmax{}, SlidingWindow{40});
  check_attention<S>(tiles_32, "learned_sink_window5", LearnedSink{}, SlidingWindow{5}, 1, "sink");
  check_attention<S>(tiles_64, "softmax1_causal", Softmax1{}, Causal{});
  check_attention<S>(tiles_64, "softmax_bidirectional", Softmax{}, Bidirectional{});
  check_attention<S>(tiles_64, "softmax1_window66", Softmax1{}, SlidingWindow{66});
}

// Slopes: weights of sigmoid and ReLU are below 9 at these scores; ssmax multiplies scores by s·log n < 3; softpick's
// weights change by up to e^z/Σ|e^z − 1|, 20 where all scores of a row are near 0.
BOOST_AUTO_TEST_CASE_TEMPLATE(other_normalizers, S, golden::Scalars) {
  check_attention<S>(grouped, "softmax_n_causal", SoftmaxN{.n = 4}, Causal{});
  check_attention<S>(grouped, "learned_sink_causal", LearnedSink{}, Causal{}, 1, "sink");
  check_attention<S>(grouped, "sigmoid_causal", SigmoidAttention{}, Causal{}, 9);
  check_attention<S>(grouped, "sigmoid_visible_causal", SigmoidAttention{SigmoidAttention::Bias::visible}, Causal{}, 9);
  check_attention<S>(grouped, "relu_causal", ReluAttention{}, Causal{}, 9);
  check_attention<S>(grouped, "softpick_causal", Softpick{}, Causal{}, 20);
  check_attention<S>(grouped, "ssmax_causal", ScalableSoftmax{}, Causal{}, 3, "ssmax");
  check_attention<S>(grouped, "sparsemax_causal", Sparsemax{}, Causal{}, 2);
  check_attention<S>(grouped, "sinkhorn_bidirectional", Sinkhorn{}, Bidirectional{}, 8);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
