// Optimizers on the 10.8 M parameters of the training step.
#include <meso/optim.hpp>

#include "../model/workload.hpp"

using namespace meso;

struct Operands {
  Parameters<float> parameters, gradients;

  Operands() {
    parameters = gradients = Parameters<float>(declare_parameters(completed(bench::step_config<Gpt2>())).layout);
    for (Index i = 0; i < parameters.layout.count(); ++i) {
      const View<float> g = gradients[i];
      map(g) = 1e-3f * bench::gaussian(g.rows, g.cols, static_cast<std::uint64_t>(i));
    }
  }
  double bytes(double each) const { return each * static_cast<double>(parameters.layout.trainable()); }
};

/// Reads values, gradients and two moments, writes all but the gradients: 28 bytes a parameter.
template <class Optimizer>
static void step(benchmark::State& state, CpuContext<>& context) {
  Operands o;
  Optimizer optimizer({.learning_rate = 1e-4});
  bench::measure(state, {.bytes = o.bytes(28)}, [&] {
    optimizer.step(context, o.parameters, o.gradients);
    return o.parameters.values.data();
  });
}

static void norm_of_gradients(benchmark::State& state, CpuContext<>& context) {
  const Operands o;
  bench::measure(state, {.bytes = o.bytes(4)}, [&] { return global_norm(context, o.gradients); });
}

int main(int argc, char** argv) {
  bench::add("optim/adam", step<Adam>);
  bench::add("optim/ortho_adam_hadamard", step<OrthoAdam<HadamardRotation>>);
  bench::add("optim/ortho_adam_kronecker", 2, step<OrthoAdam<KroneckerRotation>>);
  bench::add("optim/global_norm", norm_of_gradients);
  return bench::run(argc, argv);
}
