// Every product of the training step: y = x wᵀ, dx = dy w, dw = dyᵀ x.
#include "../support.hpp"

#ifdef MESO_WITH_OPENBLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int);
#endif

using namespace meso;

struct Layer {
  const char* name;
  Index in, out;
};
constexpr Layer layers[] = {{"qkv", bench::width, 3 * bench::width},
                            {"out", bench::width, bench::width},
                            {"up", bench::width, bench::mlp_width},
                            {"down", bench::mlp_width, bench::width},
                            {"head", bench::width, bench::vocabulary}};

struct Product {
  const char* name;
  GemmOptions options;
};
constexpr Product products[] = {{"forward", {.transpose_b = true}}, {"dx", {}}, {"dw", {.transpose_a = true}}};

struct Operands {
  bench::Matrix a, b, c;
  double flops;

  Operands(const Product& product, const Layer& layer) {
    const Index n = bench::tokens, in = layer.in, out = layer.out;
    const bench::Matrix x = bench::gaussian(n, in, 0), dy = bench::gaussian(n, out, 1), w = bench::gaussian(out, in, 2);
    if (product.options.transpose_b)
      a = x, b = w, c.resize(n, out);
    else if (product.options.transpose_a)
      a = dy, b = x, c.resize(out, in);
    else
      a = dy, b = w, c.resize(n, in);
    flops = 2.0 * static_cast<double>(n * in * out);
  }
};

template <class Products>
static void multiply(benchmark::State& state, CpuContext<Products>& context, const Product& product,
                     const Layer& layer) {
  Operands o(product, layer);
  bench::measure(state, {.flops = o.flops}, [&] {
    gemm(context, view(std::as_const(o.a)), view(std::as_const(o.b)), view(o.c), product.options);
    return o.c.data();
  });
}

#ifdef MESO_WITH_OPENBLAS
/// OpenBLAS with threads of its own.
static void multiply_openblas(benchmark::State& state, int threads, const Product& product, const Layer& layer) {
  Operands o(product, layer);
  const bool transpose_a = product.options.transpose_a, transpose_b = product.options.transpose_b;
  const auto side = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](Index x) { return static_cast<int>(x); };
  openblas_set_num_threads(threads);
  bench::measure(state, {.flops = o.flops}, [&] {
    cblas_sgemm(CblasRowMajor, side(transpose_a), side(transpose_b), size(o.c.rows()), size(o.c.cols()),
                size(transpose_a ? o.a.rows() : o.a.cols()), 1.0f, o.a.data(), size(o.a.cols()), o.b.data(),
                size(o.b.cols()), 0.0f, o.c.data(), size(o.c.cols()));
    return o.c.data();
  });
}
#endif

int main(int argc, char** argv) {
  for (const Layer& layer : layers) {
    for (const Product& product : products) {
      const std::string name = std::string("core/gemm/") + layer.name + "/" + product.name;
      bench::add_backends(name,
                          [=](benchmark::State& state, auto& context) { multiply(state, context, product, layer); });
#ifdef MESO_WITH_OPENBLAS
      const auto openblas = [=](benchmark::State& state, CpuContext<>& context) {
        multiply_openblas(state, context.threads, product, layer);
      };
      bench::add(name, openblas, "/openblas");
#endif
    }
  }
  return bench::run(argc, argv);
}
