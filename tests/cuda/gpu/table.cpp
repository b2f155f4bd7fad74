// A table of every kernel on this GPU: its largest error, relative to the largest number of the host's reference in double,
// at a small size; its time at a large one, and the share of the measured copy bandwidth or of the measured rate of
// products; then the training step of GPT-2 124M. In emulation the same code at tiny sizes, once.
#include <meso/cuda/gemm.hpp>

#include "tests/cuda/gpu/table.hpp"

namespace {

using namespace meso;

template <class T>
double product_rate(table::Table& table, const char* type) {
  const Index n = table::emulated ? 32 : 4096;
  const table::Array<T> a(table.context, n, n, 1), b(table.context, n, n, 2), c(table.context, n, n);
  const double flops = 2.0 * static_cast<double>(n * n * n);
  const double ms = table.milliseconds([&] { cuda::gemm<T, T>(table.context, a.constant(), b.constant(), c.view()); });
  std::printf("product of %td, %s: %.1f TFLOP/s\n", n, type, flops / ms / 1e9);
  return flops / ms;
}

}  // namespace

int main() {
  if (const std::string reason = cuda::unavailable(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  table::Table table;
  if (table::emulated) std::printf("In emulation, at tiny sizes: the errors count, the times mean nothing.\n");
  {
    const Index n = table::emulated ? 1024 : Index{1} << 28;
    cuda::Buffer<float> a(n), b(n);
    const double ms = table.milliseconds([&] { cuda::copy(table.context, a.data(), n, b.data()); });
    table.bandwidth = 8.0 * static_cast<double>(n) / ms;
    std::printf("copy: %.0f GB/s\n", table.bandwidth / 1e6);
  }
  table.float_rate = product_rate<float>(table, "float");
  table.bf16_rate = product_rate<table::bf16>(table, "bf16");
  std::printf("%-32s %-5s %9s %9s\n", "op", "type", "error", "ms");
  layer_rows(table);
  attention_rows(table);
  optimizer_rows(table);
  statistics_rows(table);
  training_steps(table);
  std::printf("table: %d rows, %d failures\n", table.lines, table.failures);
  return table.failures == 0 ? 0 : 1;
}
