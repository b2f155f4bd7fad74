#include <meso/cuda/sinks.cuh>

#include "tests/cuda/attention_instances.hpp"
#include "tests/cuda/device_test.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

template <class T, class Normalizer, class Mask>
void check_rows(const Normalizer& normalizer, const Mask& mask, double plant) {
  on_device([&](cuda::Context& context) {
    const AttentionShape s{2, 45, 4, 2, 32, 45};
    DeviceMatrix<T> q(context, 90, 128, 8, 1), k(context, 90, 64, 8, 2), v(context, 90, 64, 8, 3), o(context, 90, 128);
    DeviceMatrix<cuda::Compute<T>> lse(context, 90, 4);
    oracle::Matrix queries = q.values(), keys = k.values();
    for (Index i = 0; i < 90; ++i) queries(i, 0) = 1;  // head 0 looks for channel 0,
    keys(0, 0) = plant;                                // which key 1 of sequence 1 has: a planted sink
    q.set(queries);
    k.set(keys);
    cuda::attention_forward<Normalizer, Mask, T>(context, normalizer, mask, s, nullptr, q.constant(), k.constant(),
                                                 v.constant(), o.view(), lse.view());
    cuda::Buffer<cuda::AttentionRowStatistics> out(90 * 4);
    cuda::attention_row_statistics<Normalizer, Mask, T>(context, normalizer, mask, s, nullptr, q.constant(),
                                                        k.constant(), lse.view(), out.data(), 2);
    std::vector<cuda::AttentionRowStatistics> rows(360);
    cuda::download(context, out.data(), 360, rows.data());
    const SinkOptions options{.count_first_query = true, .sink_key = 2, .sink_threshold = 0.05};
    cuda::Buffer<SinkSums> out_sums(2 * 4);
    cuda::attention_sink_sums<Normalizer, Mask, T>(context, normalizer, mask, s, nullptr, q.constant(), k.constant(),
                                                   lse.view(), options, out_sums.data());
    std::vector<SinkSums> sums(8);
    cuda::download(context, out_sums.data(), 8, sums.data());
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 4; ++h) {
        // The rows of this sequence and head, counted by hand.
        Index first = 0, first_with_null = 0, nowhere = 0;
        double first_mass = 0, entropy = 0, sink = 0;
        for (Index i = 0; i < 45; ++i) {
          const cuda::AttentionRowStatistics& r = rows[oracle::at((b * 45 + i) * 4 + h)];
          const bool largest = r.first > r.other && r.first > 0;
          first += largest;
          first_with_null += largest && r.first > r.null_mass;
          nowhere += r.null_mass > r.first && r.null_mass > r.other;
          first_mass += r.first;
          entropy += r.entropy;
          if (i >= 2) sink += r.sink;
        }
        const SinkSums& of = sums[oracle::at(b * 4 + h)];
        MESO_CHECK(of.rows == 45 && of.first == first && of.first_with_null == first_with_null);
        MESO_CHECK(of.nowhere == nowhere && of.sequences == 1 && of.open_rows == 0);
        MESO_CHECK(of.sinks == (sink / 43 > options.sink_threshold ? 1 : 0));
        MESO_CHECK_WITHIN(of.first_mass.value(), first_mass / 45, 50 * roundoff<double>() * first_mass);
        MESO_CHECK_WITHIN(of.entropy.value(), entropy / 45, 50 * roundoff<double>() * entropy);
      }
    queries = q.values(), keys = k.values();
    const cuda::MaskRange range = cuda::mask_range(mask, s.time);
    for (Index row = 0; row < 90; ++row)
      for (Index h = 0; h < 4; ++h) {
        const Index i = row % 45, first = std::max<Index>(0, i - range.behind);
        oracle::Vector z;
        for (Index j = first; j <= std::min<Index>(44, i + range.ahead); ++j) {
          double sum = 0;
          for (Index c = 0; c < 32; ++c) sum += queries(row, h * 32 + c) * keys(row / 45 * 45 + j, h / 2 * 32 + c);
          z.push_back(sum / std::sqrt(32.0));
        }
        const double null = std::exp(normalizer.null_logit());
        const oracle::Vector p = oracle::null_logit(z, null);
        double total = null, entropy = 0, other = -std::numeric_limits<double>::infinity();
        for (const double x : z) total += std::exp(x);
        for (std::size_t j = 0; j < p.size(); ++j) {
          if (first + static_cast<Index>(j) > 0) other = std::max<double>(other, p[j]);
          entropy -= p[j] * std::log(p[j]);
        }
        if (null > 0) entropy -= null / total * std::log(null / total);
        const cuda::AttentionRowStatistics r = rows[oracle::at(row * 4 + h)];
        const double u = 200 * roundoff<cuda::Compute<T>>();
        MESO_CHECK_WITHIN(r.first, first == 0 ? p[0] : 0, u);
        MESO_CHECK_WITHIN(r.other, other, u);
        const Index seen = 2 - first;
        MESO_CHECK_WITHIN(r.sink, seen >= 0 && seen < static_cast<Index>(p.size()) ? p[oracle::at(seen)] : 0, u);
        MESO_CHECK(r.sees_first == (first == 0));
        MESO_CHECK_WITHIN(r.null_mass, null / total, u);
        MESO_CHECK_WITHIN(r.entropy, entropy, 10 * u);
        if (plant > 100 && row < 45 && h == 0 && first == 0) MESO_CHECK(r.first > 0.99);
      }
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_sinks)

MESO_TEST(statistics_of_rows) {
  check_rows<float>(cuda::Softmax1{}, Causal{}, 400);
  check_rows<float>(cuda::Softmax{}, SlidingWindow{7}, 1);
  check_rows<bf16>(cuda::SoftmaxN{3}, Bidirectional{}, 1);
}

MESO_TEST_SUITE_END()
