#include <meso/cuda/cross_entropy.cuh>
#include <meso/cuda/embedding.cuh>
#include <meso/cuda/finite.cuh>
#include <meso/cuda/gemm.hpp>
#include <meso/cuda/position.cuh>

#include "tests/cuda/device_test.hpp"
#include "tests/support/oracle_layer.hpp"

using namespace meso;
using namespace meso::test;
using cuda::bf16;

namespace {

std::vector<Token> tokens_of(Index count, Index vocabulary, std::uint64_t seed) {
  std::vector<Token> tokens;
  for (Index i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(Random{seed, 3}.below(static_cast<std::uint64_t>(i), vocabulary)));
  return tokens;
}

// One element of a strided window that is not finite is found, wherever it stands; the guards around it are not looked at.
template <class T>
void check_all_finite() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  on_device([&](cuda::Context& context) {
    DeviceMatrix<T> x(context, 7, 37, 2, 1);
    const oracle::Matrix clean = x.values();
    MESO_CHECK(cuda::all_finite(context, x.constant()));
    for (const Index place : {Index{0}, Index{37}, Index{100}, Index{7 * 37 - 1}})
      for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
        oracle::Matrix values = clean;
        values.data[oracle::at(place)] = bad;
        x.set(values);
        MESO_CHECK(!cuda::all_finite(context, x.constant()));
        MESO_CHECK(cuda::all_finite(context, x.constant().row_range(place < 37 ? 1 : 0, place < 37 ? 6 : place / 37)));
      }
    x.set(clean);
    MESO_CHECK(cuda::all_finite(context, x.view()));
  });
}

template <class T>
void check_embedding() {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>();
  on_device([&](cuda::Context& context) {
    const Index vocabulary = 13, width = 37, time = 6, count = 24;
    const std::vector<Token> tokens = tokens_of(count, vocabulary, 1);
    DeviceMatrix<T> table(context, vocabulary, width, 1, 1), positions(context, time + 2, width, 2, 2),
        y(context, count, width, 3), dy(context, count, width, 1, 3);
    DeviceMatrix<C> dtable(context, vocabulary, width, 1, 4), dpositions(context, time + 2, width, 1, 5);
    cuda::TokenBatch batch;
    batch.set(context, tokens, vocabulary);
    cuda::embedding_forward<T>(context, batch, time, table.constant(), positions.constant(), y.view());
    const oracle::Matrix rows = table.values(), places = positions.values(), d = dy.values();
    oracle::Matrix expected(count, width);
    for (Index i = 0; i < count; ++i)
      for (Index j = 0; j < width; ++j) expected(i, j) = rows(tokens[oracle::at(i)], j) + places(i % time, j);
    check_matrix("y", y.values(), expected, [&](Index i, Index j) { return (u + v) * std::abs(expected(i, j)); });
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      const oracle::Matrix before = dtable.values(), before_positions = dpositions.values();
      cuda::embedding_backward<T>(context, batch, dy.constant(), dtable.view(), accumulate);
      cuda::position_backward<T>(context, time, dy.constant(), dpositions.view(), accumulate);
      const auto compare = [&](const char* name, const oracle::Matrix& actual, oracle::Product sums,
                               const oracle::Matrix& old) {
        if (accumulate == Accumulate::yes)
          for (std::size_t k = 0; k < old.data.size(); ++k)
            sums.value.data[k] += old.data[k], sums.magnitude.data[k] += std::abs(old.data[k]);
        check_matrix(name, actual, sums.value, [&](Index i, Index j) { return 25 * u * sums.magnitude(i, j); });
      };
      compare("dtable", dtable.values(),
              oracle::sums_by(d, vocabulary, [&](Index i) { return static_cast<Index>(tokens[oracle::at(i)]); }),
              before);
      compare("dpositions", dpositions.values(), oracle::sums_by(d, time + 2, [&](Index i) { return i % time; }),
              before_positions);
    }
    MESO_CHECK(y.intact() && dtable.intact() && dpositions.intact());
    MESO_CHECK_THROWS(batch.set(context, std::vector<Token>{0, 13}, vocabulary), std::invalid_argument);
    batch.set(context, tokens, vocabulary + 1);
    MESO_CHECK_THROWS(cuda::embedding_forward<T>(context, batch, time, table.constant(), {}, y.view()),
                      std::invalid_argument);
    MESO_CHECK_THROWS(cuda::embedding_backward<T>(context, batch, dy.constant(), dtable.view(), Accumulate::no),
                      std::invalid_argument);
    MESO_CHECK_THROWS(cuda::position_backward<T>(context, time + 4, dy.constant(), dpositions.view(), Accumulate::no),
                      std::invalid_argument);
  });
}

template <class T>
void check_rotary() {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>();
  on_device([&](cuda::Context& context) {
    const Index time = 7, heads = 3, head_size = 10, count = 14;
    Buffer<C> table;
    cuda::fill_rotation(cuda::Rotary{}, time, head_size, table);
    cuda::Buffer<C> device(table.size());
    cuda::upload(context, table.data(), device.size(), device.data());
    for (const bool back : {false, true}) {
      DeviceMatrix<T> x(context, count, heads * head_size + 5, 2, 1);
      const oracle::Matrix before = x.values();
      cuda::rotate_heads(context, cuda::Rotary{}, x.view(), device.data(), time, heads, head_size, back);
      const oracle::Matrix after = x.values();
      for (Index i = 0; i < count; ++i)
        for (Index h = 0; h < heads; ++h) {
          const auto begin = before.data.begin() + i * before.cols + h * head_size;
          const oracle::Turned turned =
              oracle::rotary(oracle::Vector(begin, begin + head_size), i % time, 10000, back ? -1 : 1);
          for (Index c = 0; c < head_size; ++c)
            MESO_CHECK_WITHIN(
                after(i, h * head_size + c), turned.value[oracle::at(c)],
                3 * u * turned.magnitude[oracle::at(c)] + 1e-14 + v * std::abs(turned.value[oracle::at(c)]));
        }
      for (Index i = 0; i < count; ++i) MESO_CHECK(after(i, before.cols - 1) == before(i, before.cols - 1));
      MESO_CHECK(x.intact());
    }
  });
}

template <class T>
void check_cross_entropy(Index rows, Index vocabulary) {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<T, C> ? 0 : roundoff<T>(), n = static_cast<double>(vocabulary);
  on_device([&](cuda::Context& context) {
    std::vector<Token> targets = tokens_of(rows, vocabulary, 1);
    if (rows > 2) targets[2] = ignored_target;
    DeviceMatrix<T> logits(context, rows, vocabulary, 3, 1, 3), dlogits(context, rows, vocabulary, 2);
    const oracle::Matrix x = logits.values();
    const LossSum loss = cuda::cross_entropy<T>(context, logits.constant(), targets, dlogits.view(), 0.5);
    const oracle::CrossEntropy expected = oracle::cross_entropy(x, targets);
    MESO_CHECK(loss.count == expected.count);
    double sum = 0, bound = 0;
    oracle::Matrix slopes(rows, vocabulary), slope_bound(rows, vocabulary);
    const double scale = 0.5 / static_cast<double>(expected.count);
    for (Index i = 0; i < rows; ++i) {
      const Token target = targets[oracle::at(i)];
      if (target < 0) continue;
      double top = -1e30;
      for (Index j = 0; j < vocabulary; ++j) top = std::max<double>(top, x(i, j));
      sum += expected.loss[oracle::at(i)];
      bound += (1.4 * n + 8 + top - x(i, target)) * u;
      for (Index j = 0; j < vocabulary; ++j) {
        const double p = expected.softmax(i, j), d = p - (j == target ? 1 : 0);
        slopes(i, j) = scale * d;
        slope_bound(i, j) = scale * ((1.4 * n + 10 + top - x(i, j)) * p * u + (3 * u + v) * std::abs(d));
      }
    }
    MESO_CHECK_WITHIN(loss.sum, sum, bound + 1e-14 * sum);
    check_matrix("dlogits", dlogits.values(), slopes, [&](Index i, Index j) { return slope_bound(i, j); });
    MESO_CHECK(dlogits.intact());
    targets[0] = static_cast<Token>(vocabulary);
    MESO_CHECK_THROWS(cuda::cross_entropy<T>(context, logits.constant(), targets, dlogits.view()),
                      std::invalid_argument);
  });
}

template <class T, class Out>
void check_gemm() {
  using C = cuda::Compute<T>;
  const double u = roundoff<C>(), v = std::is_same_v<Out, C> ? 0 : roundoff<Out>();
  on_device([&](cuda::Context& context) {
    const Index m = 24, n = 40, k = 33;
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const bool accumulate : {false, true}) {
          // A bf16 row must begin at a multiple of 16 bytes for the tensor cores; cuBLAS takes any.
          DeviceMatrix<T> a(context, transpose_a ? k : m, transpose_a ? m : k, 4, 1),
              b(context, transpose_b ? n : k, transpose_b ? k : n, 3, 2);
          DeviceMatrix<Out> c(context, m, n, 4, 3);
          const oracle::Matrix before = c.values();
          cuda::gemm<T, Out>(
              context, a.constant(), b.constant(), c.view(),
              {.transpose_a = transpose_a, .transpose_b = transpose_b, .accumulate = accumulate, .alpha = 0.5});
          oracle::Product expected = oracle::product(a.values(), transpose_a, b.values(), transpose_b, 0.5);
          if (accumulate)
            for (std::size_t i = 0; i < before.data.size(); ++i)
              expected.value.data[i] += before.data[i], expected.magnitude.data[i] += std::abs(before.data[i]);
          check_matrix("c", c.values(), expected.value, [&](Index i, Index j) {
            return (k + 3) * u * expected.magnitude(i, j) + v * std::abs(expected.value(i, j));
          });
          MESO_CHECK(c.intact());
        }
    DeviceMatrix<T> a(context, 3 * 4, 8, 0, 1), b(context, 3 * 8, 16, 0, 2);
    DeviceMatrix<Out> c(context, 3 * 4, 16);
    cuda::batched_gemm<T, Out>(context, a.constant().row_range(0, 4), 32, b.constant().row_range(0, 8), 128,
                               c.view().row_range(0, 4), 64, 3);
    const oracle::Matrix left = a.values(), right = b.values(), out = c.values();
    for (Index z = 0; z < 3; ++z)
      for (Index i = 0; i < 4; ++i)
        for (Index j = 0; j < 16; ++j) {
          double sum = 0, magnitude = 0;
          for (Index l = 0; l < 8; ++l) {
            sum += left(z * 4 + i, l) * right(z * 8 + l, j);
            magnitude += std::abs(left(z * 4 + i, l) * right(z * 8 + l, j));
          }
          MESO_CHECK_WITHIN(out(z * 4 + i, j), sum, 10 * u * magnitude + v * std::abs(sum));
        }
  });
}

}  // namespace

MESO_TEST_SUITE(cuda_layer)

MESO_TEST(all_finite) {
  check_all_finite<float>();
  check_all_finite<double>();
  check_all_finite<bf16>();
}
MESO_TEST(embedding) {
  check_embedding<float>();
  check_embedding<double>();
  check_embedding<bf16>();
}
MESO_TEST(rotary) {
  check_rotary<float>();
  check_rotary<double>();
  check_rotary<bf16>();
}
MESO_TEST(cross_entropy_and_gradient) {
  check_cross_entropy<float>(5, 300);
  check_cross_entropy<float>(1, 3);
  check_cross_entropy<double>(4, 65);
  check_cross_entropy<bf16>(4, 130);
}
MESO_TEST(cross_entropy_of_planted_infinities) {
  on_device([](cuda::Context& context) {
    const double infinity = std::numeric_limits<double>::infinity();
    DeviceMatrix<float> logits(context, 3, 5), dlogits(context, 3, 5);
    oracle::Matrix x(3, 5);
    x(0, 1) = -infinity;
    x(1, 0) = -infinity;
    x(2, 3) = std::numeric_limits<double>::quiet_NaN();
    logits.set(x);
    LossSum loss = cuda::cross_entropy<float>(context, logits.constant().row_range(0, 1), std::vector<Token>{0},
                                              dlogits.view().row_range(0, 1));
    MESO_CHECK_WITHIN(loss.sum, std::log(4.0), 1e-6);
    MESO_CHECK(dlogits.values()(0, 1) == 0);
    loss = cuda::cross_entropy<float>(context, logits.constant().row_range(1, 1), std::vector<Token>{0},
                                      dlogits.view().row_range(1, 1));
    MESO_CHECK(loss.sum == infinity);
    loss = cuda::cross_entropy<float>(context, logits.constant().row_range(2, 1), std::vector<Token>{0},
                                      dlogits.view().row_range(2, 1));
    MESO_CHECK(std::isnan(loss.sum) && std::isnan(dlogits.values()(2, 0)));
  });
}
MESO_TEST(matrix_products) {
  check_gemm<float, float>();
  check_gemm<double, double>();
  check_gemm<bf16, bf16>();
  check_gemm<bf16, float>();
}
MESO_TEST(a_product_of_wrong_shapes_names_them) {
  on_device([](cuda::Context& context) {
    DeviceMatrix<float> a(context, 3, 4), b(context, 5, 6), c(context, 3, 6);
    std::string text;
    try {
      cuda::gemm<float, float>(context, a.constant(), b.constant(), c.view());
    } catch (const std::invalid_argument& e) {
      text = e.what();
    }
    MESO_CHECK(text == "gemm: c is (3, 6) but a is (3, 4) and b is (5, 6)");
  });
}

MESO_TEST_SUITE_END()
