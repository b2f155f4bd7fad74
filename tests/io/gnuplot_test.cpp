#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <meso/io/gnuplot.hpp>
#include <stdexcept>
#include <string>

#include "temporary_folder.hpp"

namespace {

using namespace meso::io;

/// False, and said so, where there is no gnuplot.
bool has_gnuplot() {
  std::string output;
  const bool found = meso::io::detail::run_program({"gnuplot", "--version"}, output) == 0;
  if (!found) std::cerr << "skipped: there is no gnuplot to draw with\n";
  return found;
}

Plot sample() {
  Plot plot{.title = "It's 100% \"a_b\" $HOME `x` {/Bold κ}", .x_label = "st'ep", .y_label = "κ"};
  plot.series = {{"so'ft_max \\ \n 1", {1, 2, 3}, {3, 4, 100}}, {"b", {1, 2, 3}, {5, std::nan(""), -5}}};
  return plot;
}

BOOST_AUTO_TEST_SUITE(io_gnuplot)

BOOST_AUTO_TEST_CASE(programs_run_without_a_shell) {
  std::string output;
  BOOST_TEST(meso::io::detail::run_program({"printf", "%s", "$HOME; `x` 'y'"}, output) == 0);
  BOOST_TEST(output == "$HOME; `x` 'y'");
  BOOST_TEST(meso::io::detail::run_program({"sh", "-c", "echo no >&2; exit 3"}, output) == 3);
  BOOST_TEST(output == "no\n");
  BOOST_TEST(meso::io::detail::run_program({"sh", "-c", "kill -9 $$"}, output) == 128 + 9);
  BOOST_TEST(meso::io::detail::run_program({"no-such-program-at-all"}, output) == -1);
  BOOST_TEST(output == "No such file or directory");
}

BOOST_AUTO_TEST_CASE(data_keeps_the_gaps_and_the_index_of_a_series) {
  Plot plot = sample();
  const std::vector<const Series*> shown{&plot.series[0], &plot.series[1]};
  BOOST_TEST(meso::io::detail::gnuplot_data(plot, shown) ==
             "# so'ft_max \\   1\n1 3\n2 4\n3 100\n\n\n# b\n1 5\nNaN NaN\n3 -5\n");
  plot.log_y = true;
  BOOST_TEST(meso::io::detail::gnuplot_data(plot, {&plot.series[1]}) == "# b\n1 5\nNaN NaN\nNaN NaN\n");
}

BOOST_AUTO_TEST_CASE(strings_are_quoted) {
  BOOST_TEST(meso::io::detail::gnuplot_quoted("a'b\n\"c\"") == "'a''b \"c\"'");
}

BOOST_AUTO_TEST_CASE(svg_and_png_are_drawn_whatever_the_names) {
  if (!has_gnuplot()) return;
  const TemporaryFolder folder;
  const auto odd = folder / "it's a `folder` $HOME";
  std::filesystem::create_directory(odd);
  for (const bool log : {false, true}) {
    Plot plot = sample();
    plot.log_y = log;
    plot.markers = plot.integer_x = true;
    const PlotResult result = draw(plot, odd / "a plot's");
    BOOST_TEST(result.ok, result.message);
    BOOST_TEST(result.message == "");
    BOOST_TEST(read_file(result.png).substr(1, 3) == "PNG");
    const std::string svg = read_file(result.svg);
    BOOST_TEST(svg.find("<svg") != std::string::npos);
    BOOST_TEST(svg.find("so'ft_max \\   1") != std::string::npos);
    BOOST_TEST(svg.find("{/Bold κ}") != std::string::npos);  // no markup is interpreted
  }
}

BOOST_AUTO_TEST_CASE(one_point_and_many_series_are_drawn) {
  if (!has_gnuplot()) return;
  const TemporaryFolder folder;
  for (const bool log : {false, true}) {
    Plot plot{.title = "one", .log_x = log, .log_y = log, .series = {{"p", {4}, {2}}}};
    const PlotResult result = draw(plot, folder / "one");
    BOOST_TEST(result.ok, result.message);
  }
  Plot plot{.title = "many"};
  for (int i = 0; i < 45; ++i) plot.series.push_back({"s", {0, 1}, {0.0, 1.0 * i}});
  const PlotResult result = draw(plot, folder / "many");
  BOOST_TEST(result.ok, result.message);
}

BOOST_AUTO_TEST_CASE(nothing_to_draw_is_said) {
  const TemporaryFolder folder;
  Plot plot{.log_y = true, .series = {{"a", {1, 2}, {std::nan(""), 0}}, {"b", {}, {}}}};
  const PlotResult result = draw(plot, folder / "none");
  BOOST_TEST(!result.ok);
  BOOST_TEST(!result.gnuplot_missing);
  BOOST_TEST(result.message == "nothing to draw in " + (folder / "none").string());
}

BOOST_AUTO_TEST_CASE(a_missing_or_failing_gnuplot_is_said_and_the_script_stays) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "plot.svg", "stale");
  PlotResult result = draw(sample(), folder / "plot", {.gnuplot = "no-such-gnuplot"});
  BOOST_TEST(!result.ok);
  BOOST_TEST(result.gnuplot_missing);
  BOOST_TEST(result.message == "no plots: cannot run no-such-gnuplot: No such file or directory");
  BOOST_TEST(!std::filesystem::exists(result.svg));
  BOOST_TEST(std::filesystem::exists(folder / "plot.gp"));
  BOOST_TEST(std::filesystem::exists(folder / "plot.dat"));
  result = draw(sample(), folder / "plot", {.gnuplot = "false"});
  BOOST_TEST(!result.ok);
  BOOST_TEST(!result.gnuplot_missing);
  BOOST_TEST(result.message.find("status 1") != std::string::npos);
}

// What gnuplot leaves on a full disk, with status 0.
BOOST_AUTO_TEST_CASE(half_a_picture_is_no_picture) {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& svg, const std::string& png) {
    std::ofstream(folder / "gnuplot") << "#!/bin/sh\ncd " << folder.path.string() << "\nprintf '" << svg
                                      << "' >plot.svg\nprintf '" << png << "' >plot.png\n";
    std::filesystem::permissions(folder / "gnuplot", std::filesystem::perms::owner_all);
    return draw(sample(), folder / "plot", {.gnuplot = (folder / "gnuplot").string()});
  };
  const std::string start(80, ' '), svg = start + "<svg></svg>\n", png = start + "IEND\\256\\102\\140\\202";
  BOOST_TEST(with(svg, png).ok);
  for (const PlotResult& result : {with(start + "<svg><pa", png), with(svg, start + "IDAT"), with("", png)}) {
    BOOST_TEST(!result.ok);
    BOOST_TEST(result.message.find("failed on") != std::string::npos, result.message);
  }
}

BOOST_AUTO_TEST_CASE(x_and_y_of_different_length_are_refused) {
  const TemporaryFolder folder;
  BOOST_CHECK_THROW(draw({.series = {{"a", {1, 2}, {1}}}}, folder / "x"), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
