// The headers of both devices in one translation unit of nvcc, and one op on the GPU. Exit status 3 without a GPU.
#include <cstdio>
#include <meso/cuda.hpp>
#include <meso/meso.hpp>

int main() {
  try {
    meso::cuda::Context context;
    const Eigen::VectorXf x = Eigen::VectorXf::LinSpaced(5, -2, 2);
    Eigen::VectorXf y(5);
    meso::cuda::Buffer<float> in(5), out(5);
    meso::cuda::upload(context, x.data(), 5, in.data());
    meso::cuda::activation_forward(context, meso::cuda::Relu{}, in.view(1, 5), out.view(1, 5));
    meso::cuda::download(context, out.data(), 5, y.data());
    std::printf("relu(2) = %.1f, kurtosis %.3f\n", static_cast<double>(y(4)), meso::kurtosis(y));
    return y == x.cwiseMax(0.0f) ? 0 : 1;
  } catch (const meso::cuda::Error& error) {
    std::printf("no GPU: %s\n", error.what());
    return 3;
  }
}
