#include "tests/cuda/device_test.hpp"

using namespace meso;
using namespace meso::test;

static_assert(std::is_copy_constructible_v<Buffer<float>> && std::is_nothrow_move_assignable_v<Buffer<float>>);
static_assert(!std::is_copy_constructible_v<cuda::Buffer<float>> && !std::is_copy_assignable_v<cuda::Buffer<float>>);
static_assert(std::is_nothrow_move_constructible_v<cuda::Buffer<float>>);
static_assert(std::is_nothrow_move_assignable_v<cuda::Buffer<float>>);

MESO_TEST_SUITE(cuda_memory)

MESO_TEST(buffers_are_zero_keep_what_fits_and_move) {
  on_device([](cuda::Context& context) {
    cuda::Buffer<int> a(5);
    const std::vector<int> ones(5, 1);
    std::vector<int> back(5, 7);
    cuda::download(context, a.data(), 5, back.data());
    MESO_CHECK(back == std::vector<int>(5, 0));
    cuda::upload(context, ones.data(), 5, a.data());
    a.resize(3);
    a.resize(5);
    cuda::Buffer<int> b = std::move(a);
    MESO_CHECK(a.size() == 0 && a.data() == nullptr && b.size() == 5);
    cuda::download(context, b.data(), 5, back.data());
    MESO_CHECK(back == ones);
    MESO_CHECK(reinterpret_cast<std::uintptr_t>(b.data()) % cuda::DeviceMemory::alignment == 0);
  });
}

MESO_TEST(the_pool_hands_out_what_it_has) {
  on_device([](cuda::Context&) {
    cuda::Workspace pool;
    double* first = nullptr;
    {
      const auto a = pool.take<double>(100);
      first = a.data();
      const auto b = pool.take<double>(100);
      MESO_CHECK(b.data() != first);
    }
    const Index bytes = pool.bytes();
    const auto again = pool.take<float>(10);
    MESO_CHECK(again.data() != nullptr && pool.bytes() == bytes);
  });
}

MESO_TEST(uploads_may_be_overwritten_at_once) {
  // More than the ring has blocks, growing and shrinking, and one that goes directly.
  on_device([](cuda::Context& context) {
    const auto many = static_cast<Index>(cuda::Staging::most / sizeof(int)) + 1;
    std::vector<Index> sizes;
    for (Index i = 0; i < 3 * static_cast<Index>(cuda::Staging::blocks); ++i) sizes.push_back(1 + i * 7919 % 1000);
    sizes.push_back(many);
    sizes.push_back(many - 1);
    std::vector<int> host(static_cast<std::size_t>(many));
    std::vector<cuda::Buffer<int>> device;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      device.emplace_back(sizes[k]);
      std::fill(host.begin(), host.end(), static_cast<int>(k) + 1);
      cuda::upload(context, host.data(), sizes[k], device.back().data());
      std::fill(host.begin(), host.end(), -1);
    }
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      std::vector<int> back(static_cast<std::size_t>(sizes[k]));
      cuda::download(context, device[k].data(), sizes[k], back.data());
      MESO_CHECK(back == std::vector<int>(back.size(), static_cast<int>(k) + 1));
    }
  });
}

MESO_TEST_SUITE_END()
