#include <atomic>
#include <ctime>
#include <stdexcept>

#include <boost/test/unit_test.hpp>
#include <meso/core/check.hpp>
#include <meso/core/context.hpp>
#include <meso/core/eigen.hpp>
#include <meso/core/parameter.hpp>
#include <meso/core/random.hpp>
#include <meso/core/tiles.hpp>

#include "support/error_of.hpp"

using namespace meso;
using meso::test::error_of;

BOOST_AUTO_TEST_SUITE(core)

BOOST_AUTO_TEST_CASE(views_of_blocks_keep_the_stride) {
  RowMajorMatrix<float> x(3, 4);
  x << 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11;
  const View<float> v = view(x);
  const View<float> b = v.block(1, 1, 2, 2);
  BOOST_TEST(b(0, 0) == 5);
  BOOST_TEST(b(1, 1) == 10);
  BOOST_TEST(b.stride == 4);
  BOOST_TEST(!b.contiguous());
  map(b) *= 2;
  BOOST_TEST(x(2, 2) == 20);
  const View<const float> constant = b;
  BOOST_TEST(constant(0, 0) == 10);
  Eigen::VectorXd column = Eigen::VectorXd::LinSpaced(3, 1, 3);
  BOOST_TEST(view(column)(2, 0) == 3);
}

BOOST_AUTO_TEST_CASE(check_messages_carry_both_shapes) {
  RowMajorMatrix<float> a(2, 3), b(3, 2);
  BOOST_TEST(error_of([&] { check_same_shape("op", "a", view(a), "b", view(b)); }) ==
             "op: a is (2, 3) but b is (3, 2); they must have the same shape");
  BOOST_TEST(error_of([&] { check_shape("op", "a", view(a), 2, 4); }) == "op: a is (2, 3), expected (2, 4)");
}

// Known-answer vectors of Random123 for philox4x32-10.
BOOST_AUTO_TEST_CASE(philox_known_answers) {
  using Words = std::array<std::uint32_t, 4>;
  const Words zero = philox({0, 0, 0, 0}, {0, 0});
  const Words ones = philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff});
  const Words pi = philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  BOOST_TEST(zero == (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}), boost::test_tools::per_element());
  BOOST_TEST(ones == (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}), boost::test_tools::per_element());
  BOOST_TEST(pi == (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}), boost::test_tools::per_element());
}

// Mean and variance of n draws lie within 5 standard errors: 5/√n and 5·√(2/n); uniform: 5·√(1/12n).
BOOST_AUTO_TEST_CASE(moments_of_the_generators) {
  const Random random{7, stream_of("moments")};
  constexpr int n = 20000;
  double sum = 0, squares = 0, uniform = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i)), v = random.uniform(static_cast<std::uint64_t>(i));
    BOOST_REQUIRE((v >= 0 && v < 1));
    sum += x;
    squares += x * x;
    uniform += v;
  }
  BOOST_TEST(std::abs(sum / n) < 5 / std::sqrt(n));
  BOOST_TEST(std::abs(squares / n - 1) < 5 * std::sqrt(2.0 / n));
  BOOST_TEST(std::abs(uniform / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
}

BOOST_AUTO_TEST_CASE(layout_pads_packs_and_finds) {
  ParameterLayout layout;
  const Index a = layout.add("a", 3, 5, ParameterKind::matrix);
  const Index b = layout.add("b", 2, 5, ParameterKind::matrix, ParameterLayout::Placement::packed);
  const Index c = layout.add("c.bias", 1, 3, ParameterKind::bias);
  BOOST_TEST(layout[a].offset == 0);
  BOOST_TEST(layout[b].offset == 15);
  BOOST_TEST(layout[c].offset == 32);
  BOOST_TEST(layout.size() == 48);
  BOOST_TEST(layout.trainable() == 28);
  BOOST_TEST(layout.find("b") == b);
  BOOST_TEST(layout.freeze("c.") == 1);
  BOOST_TEST(layout.trainable() == 25);
  BOOST_TEST(layout.scale_learning_rate("", 0.5) == 3);
  BOOST_TEST(error_of([&] { layout.find("nowhere"); }) == "there is no parameter named nowhere");
  BOOST_TEST(error_of([&] { layout.add("a", 1, 1, ParameterKind::matrix); }) == "parameter a is declared twice");
  BOOST_TEST(error_of([&] { layout.add("d", 0, 1, ParameterKind::matrix); }) == "parameter d: shape (0, 1) is empty");

  Parameters<float> parameters(layout);
  parameters["b"](1, 4) = 7;
  BOOST_TEST(parameters.values.data()[24] == 7);
  const Parameters<float> copy = parameters;
  parameters["b"](1, 4) = 8;
  BOOST_TEST(copy["b"](1, 4) == 7);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(parameters[c].data) % alignment == 0);
}

BOOST_AUTO_TEST_CASE(layout_finds_every_name_and_prefix) {
  ParameterLayout layout;
  for (const char* name : {"b.10.x", "b.1.x", "b", "b.1.y", "a.1.", "b.1", "b.2.x"})
    layout.add(name, 1, 2, ParameterKind::gain);
  for (Index i = 0; i < layout.count(); ++i) BOOST_TEST(layout.find(layout[i].name) == i);
  BOOST_TEST(layout.scale_learning_rate("b.1.", 0.5) == 2);
  BOOST_TEST(layout["b.1.x"].learning_rate_scale == 0.5);
  BOOST_TEST(layout["b.1.y"].learning_rate_scale == 0.5);
  BOOST_TEST(layout["b.10.x"].learning_rate_scale == 1.0);
  BOOST_TEST(layout.freeze("b") == 6);
  BOOST_TEST(!layout["a.1."].frozen);
  BOOST_TEST(layout.freeze("b.1.xy") == 0);
  const ParameterLayout copy = layout;
  BOOST_TEST(copy.find("b.2.x") == 6);
}

// Compared with all before, a name would make this 6·10¹⁰ comparisons of text, minutes.
BOOST_AUTO_TEST_CASE(layout_of_many_parameters) {
  const std::clock_t start = std::clock();
  ParameterLayout layout;
  for (int i = 0; i < 200000; ++i) layout.add("blocks." + std::to_string(i) + ".mlp.up", 1, 1, ParameterKind::matrix);
  Index found = 0;
  for (int i = 0; i < 200000; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    found += layout.find(block + "mlp.up") == i && layout.freeze(block) == 1;
  }
  BOOST_TEST(found == 200000);
  BOOST_TEST(static_cast<double>(std::clock() - start) < 20.0 * static_cast<double>(CLOCKS_PER_SEC));
}

BOOST_AUTO_TEST_CASE(layout_counts_no_more_than_an_index_holds) {
  const Index huge = Index{1} << 32;
  ParameterLayout layout;
  BOOST_TEST(error_of([&] { layout.add("a", huge, huge, ParameterKind::matrix); })
                 .starts_with("parameter a: shape (4294967296, 4294967296) behind 0 elements has too many to count, "
                              "expected at most 922337"));
  layout.add("b", huge, huge / 4, ParameterKind::matrix);  // 2⁶²
  BOOST_TEST(layout.size() == (Index{1} << 62));
  BOOST_TEST(
      error_of([&] { layout.add("c", huge / 4, huge, ParameterKind::matrix); }).starts_with("parameter c: shape"));
  BOOST_TEST(layout.count() == 1);
  layout.add("c", 1, 1, ParameterKind::matrix);  // what was refused took no name
}

BOOST_AUTO_TEST_CASE(workspace_reuses_what_it_has) {
  Workspace workspace;
  const void* first = nullptr;
  {
    const auto a = workspace.take<float>(100);
    first = a.data();
    const auto b = workspace.take<double>(10);
    BOOST_TEST(static_cast<const void*>(b.data()) != first);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(b.data()) % alignment == 0);
  }
  const Index bytes = workspace.bytes();
  const auto again = workspace.take<float>(90);
  BOOST_TEST(static_cast<const void*>(again.data()) == first);
  BOOST_TEST(workspace.bytes() == bytes);
}

BOOST_AUTO_TEST_CASE(parallel_for_runs_each_tile_once_and_rethrows_the_first_error) {
  for (const int threads : {1, 2, 3}) {
    CpuContext<> context(threads);
    std::array<std::atomic<int>, 37> runs{};
    std::atomic<bool> worker_in_range{true};
    parallel_for(context, 37, [&](Index tile, Index worker) {
      ++runs[static_cast<std::size_t>(tile)];
      if (worker < 0 || worker >= workers(context)) worker_in_range = false;
    });
    for (const auto& run : runs) BOOST_TEST(run == 1);
    BOOST_TEST(worker_in_range);
    BOOST_TEST(error_of([&] {
                 parallel_for(context, 20, [&](Index tile, Index) { check(tile != 5 && tile != 11, "tile ", tile); });
               }) == "tile 5");
  }
}

BOOST_AUTO_TEST_CASE(row_tiles_cover_the_rows_once) {
  for (const Index rows : {0, 1, 7, 128, 129, 5000})
    for (const Index cols : {1, 3, 128, 40000}) {
      const RowTiles tiles = RowTiles::of(rows, cols);
      Index next = 0;
      for (Index t = 0; t < tiles.count(); ++t) {
        BOOST_TEST(tiles[t].first == next);
        BOOST_TEST(tiles[t].count > 0);
        next += tiles[t].count;
      }
      BOOST_TEST(next == rows);
    }
}

BOOST_AUTO_TEST_SUITE_END()
