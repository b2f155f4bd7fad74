// Norms at the shape of the training step, and beyond the caches.
#include <meso/norm.hpp>

#include "../support.hpp"

using namespace meso;

template <class Norm>
struct Rows {
  Index rows, width = bench::width;
  bench::Matrix x, dy, saved{rows, Norm::saved_per_row};
  Eigen::ArrayXf theta{Norm{}.parameter_count(width)}, dtheta = theta;

  explicit Rows(Index n) : rows(n), x(bench::gaussian(n, width, 0)), dy(bench::gaussian(n, width, 1)) {
    Norm{}.template initialize<float>(width, array(theta.data(), theta.size()));
  }
  double bytes(double arrays) const { return arrays * sizeof(float) * static_cast<double>(x.size()); }
};

template <class Norm>
static void forward(benchmark::State& state, CpuContext<>& context, Index rows) {
  Rows<Norm> r(rows);
  bench::Matrix y = r.x;
  bench::measure(state, {.bytes = r.bytes(2)}, [&] {
    norm_forward(context, Norm{}, r.theta.data(), view(std::as_const(r.x)), view(y), view(r.saved));
    return y(rows - 1, 0);
  });
}

template <class Norm>
static void backward(benchmark::State& state, CpuContext<>& context, Index rows) {
  Rows<Norm> r(rows);
  bench::Matrix dx = r.x;
  norm_forward(context, Norm{}, r.theta.data(), view(std::as_const(r.x)), view(dx), view(r.saved));
  bench::measure(state, {.bytes = r.bytes(3)}, [&] {
    norm_backward(context, Norm{}, r.theta.data(), view(std::as_const(r.x)), view(std::as_const(r.saved)),
                  view(std::as_const(r.dy)), {}, view(dx), r.dtheta.data(), Accumulate::no);
    return dx(rows - 1, 0) + r.dtheta[0];
  });
}

template <class Norm>
static void add(const std::string& name) {
  const auto with = [](auto op, Index rows) {
    return [=](benchmark::State& state, CpuContext<>& context) { op(state, context, rows); };
  };
  bench::add(name + "/forward/step", with(forward<Norm>, bench::tokens));
  bench::add(name + "/backward/step", with(backward<Norm>, bench::tokens));
  bench::add(name + "/forward/large", with(forward<Norm>, bench::large_size(2) / bench::width));
  bench::add(name + "/backward/large", with(backward<Norm>, bench::large_size(3) / bench::width));
}

int main(int argc, char** argv) {
  add<LayerNorm>("norm/layer_norm");
  add<RmsNorm>("norm/rms_norm");
  return bench::run(argc, argv);
}
