// Products, activations, norms, embedding, positions and the loss.
#include <meso/cuda/activation.cuh>
#include <meso/cuda/cross_entropy.cuh>
#include <meso/cuda/embedding.cuh>
#include <meso/cuda/gemm.hpp>
#include <meso/cuda/linear.cuh>
#include <meso/cuda/norm.cuh>
#include <meso/cuda/position.cuh>

#include "tests/cuda/gpu/table.hpp"
#include "tests/cuda/norm_oracle.hpp"
#include "tests/support/oracle_layer.hpp"

namespace meso::table {
namespace {

namespace oracle = test::oracle;

template <class N>
void norm_rows(Table& table, const std::string& name) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width;
  table.lines_of("norm_forward " + name, [&]<class T>(Index rows) {
    const Array<T> x(context, rows, width, 1), y(context, rows, width),
        theta(context, 1, N{}.parameter_count(width), 2);
    const Array<cuda::Compute<T>> saved(context, rows, N::saved_per_row);
    return Op{
        [=, &context] { cuda::norm_forward<N, T>(context, N{}, theta.data(), x.constant(), y.view(), saved.view()); },
        [=] {
          const Matrix in = x.values();
          Matrix expected(rows, width);
          for (Index i = 0; i < rows; ++i) {
            const oracle::Vector out = oracle::norm_of<N>(in.row(i), theta.values().data);
            std::copy(out.begin(), out.end(), expected.data.begin() + i * width);
          }
          return largest_error(y.values(), expected);
        },
        2 * x.bytes()};
  });
  table.lines_of("norm_backward " + name, [&]<class T>(Index rows) {
    const Array<T> x(context, rows, width, 1), y(context, rows, width),
        theta(context, 1, N{}.parameter_count(width), 2), dy(context, rows, width, 3), dx(context, rows, width);
    const Array<cuda::Compute<T>> saved(context, rows, N::saved_per_row),
        dtheta(context, 1, N{}.parameter_count(width));
    cuda::norm_forward<N, T>(context, N{}, theta.data(), x.constant(), y.view(), saved.view());
    return Op{[=, &context] {
                cuda::norm_backward<N, T>(context, N{}, theta.data(), x.constant(), saved.constant(), dy.constant(),
                                          cuda::View<const T>{}, dx.view(), dtheta.data(), Accumulate::no);
              },
              [=] {
                const Matrix in = x.values(), slopes = dy.values();
                Matrix expected(rows, width);
                for (Index i = 0; i < rows; ++i) {
                  const oracle::Vector d = oracle::norm_backward_of<N>(in.row(i), theta.values().data, slopes.row(i));
                  std::copy(d.begin(), d.end(), expected.data.begin() + i * width);
                }
                return largest_error(dx.values(), expected);
              },
              3 * x.bytes()};
  });
}

template <class A, class F, class D>
void activation_rows(Table& table, const std::string& name, F f, D derivative) {
  cuda::Context& context = table.context;
  const Index hidden = 4 * table.sizes.width;
  table.lines_of("activation_forward " + name, [&]<class T>(Index rows) {
    const Array<T> x(context, rows, hidden, 1), y(context, rows, hidden);
    return Op{[=, &context] { cuda::activation_forward(context, A{}, x.constant(), y.view()); },
              [=] { return largest_error(y.values(), mapped(x.values(), f)); }, 2 * x.bytes()};
  });
  table.lines_of("activation_backward " + name, [&]<class T>(Index rows) {
    const Array<T> x(context, rows, hidden, 1), dy(context, rows, hidden, 2), dx(context, rows, hidden);
    return Op{[=, &context] { cuda::activation_backward<A, T>(context, {}, x.constant(), dy.constant(), dx.view()); },
              [=] {
                Matrix expected = mapped(x.values(), derivative);
                const Matrix slopes = dy.values();
                for (std::size_t i = 0; i < slopes.data.size(); ++i) expected.data[i] *= slopes.data[i];
                return largest_error(dx.values(), expected);
              },
              3 * x.bytes()};
  });
}

void swiglu_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index hidden = 2 * table.sizes.width;
  table.lines_of("activation_forward SwiGlu", [&]<class T>(Index rows) {
    const Array<T> x(context, rows, 2 * hidden, 1), y(context, rows, hidden);
    return Op{[=, &context] { cuda::activation_forward(context, cuda::SwiGlu{}, x.constant(), y.view()); },
              [=] {
                const Matrix in = x.values();
                Matrix expected(rows, hidden);
                for (Index i = 0; i < rows; ++i)
                  for (Index j = 0; j < hidden; ++j) expected(i, j) = oracle::silu(in(i, j)) * in(i, hidden + j);
                return largest_error(y.values(), expected);
              },
              1.5 * x.bytes()};
  });
  table.lines_of("activation_backward SwiGlu", [&]<class T>(Index rows) {
    const Array<T> x(context, rows, 2 * hidden, 1), dy(context, rows, hidden, 2), dx(context, rows, 2 * hidden);
    return Op{[=, &context] {
                cuda::activation_backward<cuda::SwiGlu, T>(context, {}, x.constant(), dy.constant(), dx.view());
              },
              [=] {
                const Matrix in = x.values(), d = dy.values();
                Matrix expected(rows, 2 * hidden);
                for (Index i = 0; i < rows; ++i)
                  for (Index j = 0; j < hidden; ++j) {
                    expected(i, j) = d(i, j) * in(i, hidden + j) * oracle::silu_derivative(in(i, j));
                    expected(i, hidden + j) = d(i, j) * oracle::silu(in(i, j));
                  }
                return largest_error(dx.values(), expected);
              },
              2.5 * x.bytes()};
  });
}

void linear_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width;
  table.lines_of("gemm, weights transposed", [&]<class T>(Index rows) {
    const Array<T> x(context, rows, width, 1), w(context, width, width, 2), y(context, rows, width);
    return Op{[=, &context] { cuda::gemm<T, T>(context, x.constant(), w.constant(), y.view(), {.transpose_b = true}); },
              [=] { return largest_error(y.values(), oracle::product(x.values(), false, w.values(), true).value); }, 0,
              2.0 * static_cast<double>(rows * width * width)};
  });
  table.lines_of("add bias and residual", [&]<class T>(Index rows) {
    const Array<T> y(context, rows, width, 1), residual(context, rows, width, 2), bias(context, 1, width, 3);
    const auto before = std::make_shared<Matrix>(rows <= table.sizes.checked ? y.values() : Matrix());
    return Op{[=, &context] { cuda::add<T>(context, bias.data(), residual.constant(), y.view()); },
              [=] {
                const Matrix r = residual.values(), b = bias.values();
                Matrix expected = *before;
                for (Index i = 0; i < rows; ++i)
                  for (Index j = 0; j < width; ++j) expected(i, j) += r(i, j) + b(0, j);
                return largest_error(y.values(), expected);
              },
              3 * y.bytes()};
  });
  table.lines_of("column_sums", [&]<class T>(Index rows) {
    const Array<T> x(context, rows, width, 1);
    const Array<cuda::Compute<T>> sum(context, 1, width);
    return Op{[=, &context] { cuda::column_sums(context, x.constant(), sum.data(), Accumulate::no); },
              [=] { return largest_error(sum.values(), oracle::column_sums(x.values()).value); }, x.bytes()};
  });
  table.line("cast float to bf16", "bf16", 0.005, 1, [&](Index rows) {
    const Array<float> x(context, rows, width);
    const Array<bf16> y(context, rows, width);
    std::vector<float> values;  // that no bf16 is
    for (Index i = 0; i < rows * width; ++i) values.push_back(static_cast<float>(i % 1009 + 1) / 3.0f);
    cuda::upload(context, values.data(), rows * width, x.data());
    return Op{[=, &context] { cuda::cast(context, x.data(), rows * width, y.data()); },
              [=] { return largest_error(y.values(), x.values()); }, x.bytes() + y.bytes()};
  });
}

void embedding_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width, vocabulary = table.sizes.vocabulary;
  const auto batch_of = [&](Index rows) {
    auto tokens = std::make_shared<std::vector<Token>>();
    for (Index i = 0; i < rows; ++i)
      tokens->push_back(static_cast<Token>(Random{1, 3}.below(static_cast<std::uint64_t>(i), vocabulary)));
    auto batch = std::make_shared<cuda::TokenBatch>();
    batch->set(context, *tokens, vocabulary);
    return std::pair(tokens, batch);
  };
  table.lines_of("embedding_forward", [&]<class T>(Index rows) {
    const auto made = batch_of(rows);
    const auto tokens = made.first;
    const auto batch = made.second;
    const Index time = rows / 2;
    const Array<T> words(context, vocabulary, width, 1), places(context, time, width, 2), y(context, rows, width);
    return Op{[=, &context] {
                cuda::embedding_forward<T>(context, *batch, time, words.constant(), places.constant(), y.view());
              },
              [=] {
                const Matrix w = words.values(), p = places.values();
                Matrix expected(rows, width);
                for (Index i = 0; i < rows; ++i)
                  for (Index j = 0; j < width; ++j) expected(i, j) = w((*tokens)[at(i)], j) + p(i % time, j);
                return largest_error(y.values(), expected);
              },
              2 * y.bytes() + places.bytes()};
  });
  table.lines_of("embedding_backward", [&]<class T>(Index rows) {
    const auto made = batch_of(rows);
    const auto tokens = made.first;
    const auto batch = made.second;
    const Array<T> dy(context, rows, width, 1);
    const Array<cuda::Compute<T>> dwords(context, vocabulary, width);
    return Op{
        [=, &context] { cuda::embedding_backward<T>(context, *batch, dy.constant(), dwords.view(), Accumulate::no); },
        [=] {
          const auto key = [&](Index i) { return static_cast<Index>((*tokens)[at(i)]); };
          return largest_error(dwords.values(), oracle::sums_by(dy.values(), vocabulary, key).value);
        },
        dy.bytes() + dwords.bytes()};
  });
  table.lines_of("position_backward", [&]<class T>(Index rows) {
    const Index time = rows / 2;
    const Array<T> dy(context, rows, width, 1);
    const Array<cuda::Compute<T>> dplaces(context, time, width);
    return Op{
        [=, &context] { cuda::position_backward<T>(context, time, dy.constant(), dplaces.view(), Accumulate::no); },
        [=] {
          const auto key = [&](Index i) { return i % time; };
          return largest_error(dplaces.values(), oracle::sums_by(dy.values(), time, key).value);
        },
        dy.bytes() + dplaces.bytes()};
  });
}

void rotary_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index width = table.sizes.width, head_size = 64, heads = width / head_size;
  table.lines_of("rotate_heads", [&]<class T>(Index rows) {
    using C = cuda::Compute<T>;
    const Array<T> x(context, rows, width, 1);
    const Array<C> angles(context, rows, head_size);
    std::vector<C> values;
    for (Index t = 0; t < rows; ++t)
      for (Index c = 0; c < head_size; ++c) {
        const double pair = static_cast<double>(c % (head_size / 2));
        const double angle = static_cast<double>(t) * std::pow(10000.0, -2 * pair / static_cast<double>(head_size));
        values.push_back(static_cast<C>(c < head_size / 2 ? std::cos(angle) : std::sin(angle)));
      }
    cuda::upload(context, values.data(), rows * head_size, angles.data());
    const auto before = std::make_shared<Matrix>(rows <= table.sizes.checked ? x.values() : Matrix());
    return Op{[=, &context] {
                cuda::rotate_heads(context, cuda::Rotary{}, x.view(), angles.data(), rows, heads, head_size, false);
              },
              [=] {
                Matrix expected(rows, width);
                for (Index i = 0; i < rows; ++i)
                  for (Index h = 0; h < heads; ++h) {
                    const auto begin = before->data.begin() + i * width + h * head_size;
                    const oracle::Turned turned = oracle::rotary(oracle::Vector(begin, begin + head_size), i, 10000, 1);
                    for (Index c = 0; c < head_size; ++c) expected(i, h * head_size + c) = turned.value[at(c)];
                  }
                return largest_error(x.values(), expected);
              },
              2 * x.bytes() + angles.bytes()};
  });
}

void cross_entropy_rows(Table& table) {
  cuda::Context& context = table.context;
  const Index vocabulary = table.sizes.vocabulary;
  table.lines_of("cross_entropy", [&]<class T>(Index rows) {
    const Array<T> x(context, rows, vocabulary, 1), dx(context, rows, vocabulary);
    const Array<Token> targets(context, 1, rows);
    const Array<double> loss(context, 1, 1);
    std::vector<Token> values;
    for (Index i = 0; i < rows; ++i) values.push_back(static_cast<Token>(i * 31 % vocabulary));
    cuda::upload(context, values.data(), rows, targets.data());
    return Op{[=, &context] {
                cuda::cross_entropy<T>(context, x.constant(), targets.data(), rows, dx.view(), 1.0, loss.data());
              },
              [=] {
                const oracle::CrossEntropy c = oracle::cross_entropy(x.values(), values);
                Matrix expected = c.softmax;
                for (Index i = 0; i < rows; ++i) expected(i, values[at(i)]) -= 1;
                for (double& d : expected.data) d /= static_cast<double>(rows);
                double sum = 0;
                for (const double l : c.loss) sum += l;
                return std::max<double>(largest_error(dx.values(), expected), largest_error(loss.values().data, {sum}));
              },
              2 * x.bytes()};
  });
}

}  // namespace

void layer_rows(Table& table) {
  linear_rows(table);
  activation_rows<cuda::Gelu>(table, "Gelu", oracle::gelu, oracle::gelu_derivative);
  swiglu_rows(table);
  norm_rows<cuda::LayerNorm>(table, "LayerNorm");
  norm_rows<cuda::RmsNorm>(table, "RmsNorm");
  norm_rows<cuda::RmsNormSingle>(table, "RmsNormSingle");
  embedding_rows(table);
  rotary_rows(table);
  cross_entropy_rows(table);
}

}  // namespace meso::table
