#include <boost/test/unit_test.hpp>
#include <examples/ladder/results.hpp>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "temporary_folder.hpp"

namespace {

using namespace ladder;

Row planned(const std::string& task, const std::string& rung, std::uint64_t seed) {
  Row row;
  row.task = task;
  row.rung = rung;
  row.seed = seed;
  row.learning_rate = 0.003;
  row.steps = 20;
  return row;
}

Row done(Row row, double perplexity, double kurtosis) {
  row.finished = true;
  row.perplexity = perplexity;
  row.kurtosis_rest = kurtosis;
  row.ppl_zeropoint4 = perplexity + 0.25;
  row.first_token_mass = 0.5;
  row.seconds = 12;
  row.layer_kurtosis_rest = {3, kurtosis};
  row.layer_max_abs = {1, 2};
  row.series = {{0, 5.5, 3.0, 0.1, 2.0}, {20, 2.5, kurtosis, 0.5, 4.0}};
  return row;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Fixture {
  TemporaryFolder folder;
  std::ostringstream out;
  ResultsConfig config(bool draw = false) {
    return {.directory = folder / "results", .title = "T", .command = "ladder <x>", .out = &out, .draw = draw};
  }
  std::string stored(const std::string& name) { return meso::io::read_file(folder / ("results/" + name)); }
};

const Measure& measure(const std::string& name) {
  for (const Measure& m : measures)
    if (m.name == name) return m;
  throw std::logic_error(name);
}

BOOST_FIXTURE_TEST_SUITE(io_ladder_results, Fixture)

BOOST_AUTO_TEST_CASE(a_row_is_printed_and_stored_at_once_and_the_rest_is_unfinished) {
  Results results(config(), {planned("bigram", "one", 1), planned("text", "two", 1)});
  results.add(done(planned("bigram", "one", 1), 5.25, 4.0));
  BOOST_TEST(holds(out.str(), "Task bigram\n"));
  BOOST_TEST(holds(out.str(), "5.50+0.250"));
  BOOST_TEST(!holds(out.str(), "two"));
  const std::string csv = stored("ladder.csv");
  BOOST_TEST(holds(csv, "bigram,one,,,,1,0.003,20,0,finished,5.25,,4,"));
  BOOST_TEST(holds(csv, "text,two,,,,1,0.003,20,0,unfinished,,,"));
  BOOST_TEST(holds(csv, ",5.5,0.25,,12\n"));
  BOOST_TEST(holds(stored("ladder.md"), "| one  |    1 |         0.003 |"));
  BOOST_TEST(holds(stored("steps.csv"), "bigram,one,1,20,2.5,4,0.5,4\n"));
  BOOST_TEST(holds(stored("layers.csv"), "bigram,one,1,2,4,2,\n"));  // no mass per layer was given
  results.finish("Stopped.");
  BOOST_TEST(holds(out.str(), "Task text\n"));
  BOOST_TEST(holds(out.str(), "unfinished"));
  BOOST_TEST(holds(out.str(), "\nStopped.\n"));
  BOOST_TEST(!std::filesystem::exists(folder / "results/summary.csv"));  // one seed has no spread
  const std::string page = stored("report.html");
  for (const char* part : {"<h2>Task bigram</h2>", "<h2>Task text</h2>", "<td>unfinished</td>", "ladder &lt;x&gt;",
                           "<p>Stopped.</p>", "<td>+0.250</td>"})
    BOOST_TEST(holds(page, part), part << " is missing");
}

BOOST_AUTO_TEST_CASE(a_row_cut_short_shows_what_it_measured_and_counts_in_no_mean) {
  Results results(config(), {planned("text", "one", 1), planned("text", "one", 2)});
  Row cut = done(planned("text", "one", 1), 9.75, 4.0);
  cut.finished = false;
  results.add(cut);
  BOOST_TEST(holds(out.str(), "9.75"));
  BOOST_TEST(holds(out.str(), "unfinished\n"));
  results.add(done(planned("text", "one", 2), 5.25, 4.0));
  BOOST_TEST(spread(results.rows(), "text", "one", measure("perplexity")).seeds == 1u);
  BOOST_TEST(spread(results.rows(), "text", "one", measure("perplexity")).mean == 5.25);
}

BOOST_AUTO_TEST_CASE(a_row_that_was_not_planned_is_appended) {
  Results results(config(), {});
  results.add(done(planned("text", "extra", 1), 5.25, 4.0));
  results.add(done(planned("text", "extra", 1), 5.5, 4.0));
  BOOST_TEST(results.rows().size() == 2u);
}

BOOST_AUTO_TEST_CASE(old_files_stay_until_there_is_a_row) {
  {
    Results first(config(), {planned("text", "one", 1)});
    first.add(done(planned("text", "one", 1), 5.25, 4.0));
    first.finish();
  }
  const std::string csv = stored("ladder.csv"), steps = stored("steps.csv"), page = stored("report.html");
  Results second(config(), {planned("text", "two", 1)});
  second.finish("Stopped.");
  BOOST_TEST(holds(out.str(), "nothing was written"));
  BOOST_TEST(stored("ladder.csv") == csv);
  BOOST_TEST(stored("steps.csv") == steps);
  BOOST_TEST(stored("report.html") == page);
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_made_is_named_before_any_work) {
  meso::io::write_file_atomically(folder / "results", "a file in its place");
  BOOST_CHECK_EXCEPTION(Results(config(), {}), std::runtime_error, [&](const std::runtime_error& error) {
    return holds(error.what(), (folder / "results").string());
  });
}

BOOST_AUTO_TEST_CASE(spread_and_gaps_over_seeds) {
  std::vector<Row> rows;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const double shift = 0.125 * static_cast<double>(seed);  // half range 0.125
    rows.push_back(done(planned("text", "a", seed), 5.0 + shift, 4.0 + shift));
    rows.push_back(done(planned("text", "b", seed), 5.25 + shift, 3.0 + shift));  // perplexity: exactly the spread
    if (seed == 0) rows.push_back(done(planned("text", "c", seed), 9, 9));
  }
  const Spread a = spread(rows, "text", "a", measure("perplexity"));
  BOOST_TEST(a.seeds == 3u);
  BOOST_TEST(a.mean == 5.125);
  BOOST_TEST(a.low == 5.0);
  BOOST_TEST(a.high == 5.25);
  BOOST_TEST(format_spread(a, measure("perplexity")) == "5.125 ± 0.125");
  const auto between = [&](const char* one, const char* two, const char* name) {
    const Measure& m = measure(name);
    return format_gap(gap(spread(rows, "text", one, m), spread(rows, "text", two, m)), m.style);
  };
  BOOST_TEST(between("a", "b", "perplexity") == "none");
  BOOST_TEST(between("a", "b", "kurtosis_rest") == "-1.000");
  BOOST_TEST(between("b", "c", "perplexity") == "–");      // one seed: nothing to judge by
  BOOST_TEST(between("a", "b", "kurtosis_first") == "–");  // not measured
  BOOST_TEST(between("a", "b", "penalty_zeropoint4") == "none");
  BOOST_TEST(holds(summary_csv(rows), "text,b,perplexity,3,5.375,5.25,5.5,0.125,none\n"));
  BOOST_TEST(holds(summary_csv(rows), "text,b,kurtosis_rest,3,3.125,3,3.25,0.125,-1\n"));
  BOOST_TEST(holds(summary_csv(rows), "text,c,perplexity,1,9,9,9,0,\n"));

  Results results(config(), {});
  for (const Row& row : rows) results.add(row);
  results.finish();
  BOOST_TEST(holds(out.str(), "5.125 ± 0.125"));
  BOOST_TEST(holds(out.str(), "none"));
  BOOST_TEST(holds(stored("ladder.md"), "5.125 ± 0.125"));
  BOOST_TEST(holds(stored("report.html"), "<td>none</td>"));
  BOOST_TEST(holds(stored("summary.csv"), "text,a,perplexity,3,"));
}

BOOST_AUTO_TEST_CASE(differences_carry_their_sign) {
  BOOST_TEST(format_difference(0.25, Style::number) == "+0.250");
  BOOST_TEST(format_difference(-0.002, Style::number) == "-0.002");
  BOOST_TEST(format_difference(0, Style::number) == "0.000");
  BOOST_TEST(format_difference(209.46, Style::number) == "+209.5");
  BOOST_TEST(format_difference(12345, Style::number) == "+12345");
  BOOST_TEST(format_difference(0.5, Style::percent) == "+50%");
  BOOST_TEST(format_difference(unknown, Style::number) == "–");
}

BOOST_AUTO_TEST_CASE(lines_are_means_over_finished_seeds) {
  std::vector<Row> rows{done(planned("text", "a", 1), 5, 4), done(planned("text", "a", 2), 5, 6),
                        done(planned("text", "b", 1), 5, 100)};
  rows[2].finished = false;
  rows.push_back(planned("text", "never", 1));
  const auto all = plots(rows, [](const std::string& task) { return "Task " + task; });
  // No mass per layer was given.
  BOOST_TEST_REQUIRE(all.size() == 6u);
  const meso::io::Plot& plot = all[0].plot;
  BOOST_TEST(all[0].name == "text_layer_kurtosis");
  BOOST_TEST_REQUIRE(plot.series.size() == 2u);
  BOOST_TEST(plot.series[0].name == "a");
  BOOST_TEST(plot.series[0].y == (std::vector<double>{3, 5}), boost::test_tools::per_element());
  BOOST_TEST(plot.series[1].name == "b (unfinished)");
  BOOST_TEST(plot.log_y);  // 3 to 100
  BOOST_TEST(!all[2].plot.log_y);
  BOOST_TEST(all[2].name == "text_step_loss");
}

BOOST_AUTO_TEST_CASE(one_layer_has_no_plot_per_layer) {
  Row row = done(planned("bigram", "a", 1), 5, 4);
  row.layer_kurtosis_rest = {4};
  row.layer_max_abs = {2};
  for (const NamedPlot& p : plots({row}, [](const std::string& task) { return task; }))
    BOOST_TEST(!holds(p.name, "layer"), p.name);
}

BOOST_AUTO_TEST_CASE(the_page_holds_the_plots_and_a_missing_gnuplot_is_said_once) {
  ResultsConfig without = config(true);
  without.plot.gnuplot = "no-such-gnuplot";
  Results results(without, {});
  results.add(done(planned("text", "a", 1), 5, 4));
  results.finish();
  const std::string said = "cannot run no-such-gnuplot";
  BOOST_TEST(holds(out.str(), said));
  BOOST_TEST(out.str().find(said) == out.str().rfind(said));
  BOOST_TEST(std::filesystem::exists(folder / "results/plots/text_step_loss.gp"));
  BOOST_TEST(!holds(stored("report.html"), "<svg"));

  std::string ignored;
  if (meso::io::detail::run_program({"gnuplot", "--version"}, ignored) != 0) return;
  Results drawn(config(true), {});
  drawn.add(done(planned("text", "a", 1), 5, 4));
  drawn.finish();
  BOOST_TEST(holds(stored("report.html"), "<title>Task text: training loss (nats)</title>"));
  BOOST_TEST(std::filesystem::exists(folder / "results/plots/text_layer_max_abs.png"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
