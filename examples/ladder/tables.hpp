#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <meso/io/table.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "row.hpp"

namespace ladder {

/// Table for the terminal, about 150 columns wide, that is printed row by row; terminal_legend explains its headings.
inline meso::io::Table terminal_table(const std::vector<Row>& planned) {
  std::vector<meso::io::Column> columns{{"rung", meso::io::Align::left, 24}, {"seed"}};
  for (const Row& row : planned) columns[0].width = std::max(columns[0].width, meso::io::display_width(row.rung));
  const auto add = [&](const char* heading, std::size_t width) {
    columns.push_back({heading, meso::io::Align::right, width});
  };
  for (const char* heading : {"lr", "ppl", "κ1", "κ>1", "max1", "max>1", "first", "first∅", "mass", "null"})
    add(heading, columns.size() == 2 || columns.size() >= 8 ? 5 : 4);
  for (const char* heading : {"q8\ncoarse", "q8\nmoderate", "q8\nfine", "zp4"}) add(heading, 10);
  add("s", 4);
  return meso::io::Table(std::move(columns));
}

inline constexpr const char* terminal_legend =
    "lr: learning rate. ppl: perplexity. κ1, κ>1: mean kurtosis of token 1, of tokens > 1 (3: Gaussian). max1, max>1: "
    "largest absolute activation.\n"
    "first: share of rows whose largest weight is on the first token; first∅: the same with the null slot a candidate. "
    "mass, null: mean weight on the first token, on the null slot.\n"
    "q8 coarse, moderate, fine: perplexity with absmax-8, and what it costs (+); zp4: with zeropoint-4 weights. "
    "s: seconds of training and measuring.\n";

inline constexpr const char* wide_legend =
    "Kurtosis (3 for a Gaussian) and largest absolute value are those of the activations, apart for token 1 and for "
    "tokens > 1. First-token proportion: share of attention rows whose largest weight is on the first token; where the "
    "null competes, its slot is a candidate too. Mass: mean weight on the first token, and on the null slot. A penalty "
    "is the perplexity with quantization minus the one without. Values that were not measured are shown as –.";

inline std::vector<std::string> terminal_cells(const Row& row) {
  const auto number = [](double value) { return format_value(value, Style::number, false, 3); };
  const auto quantized = [&](double value) {
    const double penalty = value - row.perplexity;
    if (!std::isfinite(penalty)) return number(value);
    const double size = std::abs(penalty);
    return number(value) + (penalty < 0 ? "" : "+") +
           meso::io::format_fixed(penalty, size < 10    ? 3
                                           : size < 100 ? 1
                                                        : 0);
  };
  return {row.rung,
          std::to_string(row.seed),
          format_rate(row.learning_rate),
          number(row.perplexity),
          number(row.kurtosis_first),
          number(row.kurtosis_rest),
          number(row.max_abs_first),
          number(row.max_abs_rest),
          format_value(row.first_token_proportion, Style::percent),
          format_value(row.first_token_proportion_null, Style::percent),
          format_value(row.first_token_mass, Style::share),
          format_value(row.null_mass, Style::share),
          quantized(row.ppl_absmax8_coarse),
          quantized(row.ppl_absmax8_moderate),
          quantized(row.ppl_absmax8_fine),
          quantized(row.ppl_zeropoint4),
          row.finished ? meso::io::format_fixed(row.seconds, 0) : "unfinished"};
}

/// Tasks in the order in which they first occur.
inline std::vector<std::string> tasks_of(const std::vector<Row>& rows) {
  std::vector<std::string> tasks;
  for (const Row& row : rows)
    if (std::find(tasks.begin(), tasks.end(), row.task) == tasks.end()) tasks.push_back(row.task);
  return tasks;
}

/// Names of a task's rungs, first ones first.
inline std::vector<std::string> rungs_of(const std::vector<Row>& rows, const std::string& task) {
  std::vector<std::string> rungs;
  for (const Row& row : rows)
    if (row.task == task && std::find(rungs.begin(), rungs.end(), row.rung) == rungs.end()) rungs.push_back(row.rung);
  return rungs;
}

/// All rows of one task with all that was measured, for Markdown and HTML.
inline meso::io::Table full_table(const std::vector<Row>& rows, const std::string& task) {
  using meso::io::Align;
  std::vector<meso::io::Column> columns{{"rung", Align::left}, {"seed"}, {"learning rate"}, {"steps"}};
  for (const Measure& measure : measures) columns.push_back({measure.heading});
  columns.insert(columns.end(), {{"tokens/s"}, {"seconds"}});
  meso::io::Table table(columns);
  for (const Row& row : rows) {
    if (row.task != task) continue;
    std::vector<std::string> cells{row.rung, std::to_string(row.seed), format_rate(row.learning_rate),
                                   std::to_string(row.steps)};
    for (const Measure& measure : measures)
      cells.push_back(measure.penalty ? format_difference(measure.of(row), measure.style)
                                      : format_value(measure.of(row), measure.style));
    cells.push_back(meso::io::format_fixed(row.tokens_per_second, 0));
    cells.push_back(row.finished ? meso::io::format_fixed(row.seconds, 0) : "unfinished");
    table.add(cells);
  }
  return table;
}

/// The same as CSV: one line a row, planned rows that were not reached included, shares as fractions.
inline std::string full_csv(const std::vector<Row>& rows) {
  using meso::io::csv_cell;
  std::vector<std::string> header{"task", "rung",          "normalizer", "norm",   "optimizer",
                                  "seed", "learning_rate", "steps",      "tokens", "state"};
  for (const Measure& measure : measures) header.emplace_back(measure.name);
  header.insert(header.end(), {"tokens_per_second", "seconds"});
  std::string out = meso::io::csv_line(header);
  for (const Row& row : rows) {
    std::vector<std::string> cells{csv_cell(row.task),          csv_cell(row.rung),
                                   csv_cell(row.normalizer),    csv_cell(row.norm),
                                   csv_cell(row.optimizer),     csv_cell(row.seed),
                                   csv_cell(row.learning_rate), csv_cell(row.steps),
                                   csv_cell(row.tokens),        row.finished ? "finished" : "unfinished"};
    for (const Measure& measure : measures) cells.push_back(csv_cell(measure.of(row)));
    cells.push_back(csv_cell(row.tokens_per_second));
    cells.push_back(csv_cell(row.seconds));
    out += meso::io::csv_line(cells);
  }
  return out;
}

/// One measure of one rung over its finished seeds.
struct Spread {
  std::size_t seeds = 0;
  double mean = unknown;
  double low = unknown;
  double high = unknown;
  double half_range() const { return (high - low) / 2; }
};

inline Spread spread(const std::vector<Row>& rows, const std::string& task, const std::string& rung,
                     const Measure& measure) {
  Spread out;
  double sum = 0;
  for (const Row& row : rows) {
    const double value = measure.of(row);
    if (row.task != task || row.rung != rung || !row.finished || std::isnan(value)) continue;
    sum += value;
    out.low = out.seeds ? std::min(out.low, value) : value;
    out.high = out.seeds ? std::max(out.high, value) : value;
    ++out.seeds;
  }
  if (out.seeds) out.mean = sum / static_cast<double>(out.seeds);
  return out;
}

/// Difference of two means, and whether it exceeds the spread: the sum of both half ranges, so that the intervals
/// mean ± half range do not touch. Without two seeds on either side there is no spread to judge by, and no answer.
struct Gap {
  double difference = unknown;
  bool within_spread = false;
};

inline std::optional<Gap> gap(const Spread& before, const Spread& after) {
  if (before.seeds < 2 || after.seeds < 2) return std::nullopt;
  const double difference = after.mean - before.mean;
  return Gap{difference, !(std::abs(difference) > before.half_range() + after.half_range())};
}

inline std::string format_gap(const std::optional<Gap>& gap, Style style) {
  if (!gap) return meso::io::missing;
  return gap->within_spread ? "none" : format_difference(gap->difference, style);
}

inline std::string format_spread(const Spread& spread, const Measure& measure) {
  std::string out =
      measure.penalty ? format_difference(spread.mean, measure.style) : format_value(spread.mean, measure.style);
  if (spread.seeds < 2) return out;
  if (measure.style == Style::percent) return out + " ± " + meso::io::format_percent(spread.half_range());
  if (measure.style == Style::share) return out + " ± " + meso::io::format_fixed(spread.half_range(), 3);
  const std::size_t point = out.find('.');  // as many decimals as the mean shows
  const int decimals =
      point == std::string::npos || out.find('e') != std::string::npos ? 0 : static_cast<int>(out.size() - point - 1);
  return out + " ± " +
         (out.find('e') == std::string::npos ? meso::io::format_fixed(spread.half_range(), decimals)
                                             : meso::io::format_number(spread.half_range(), 2));
}

/// True when some rung of the task finished with two seeds: only then is there a spread to show.
inline bool has_spread(const std::vector<Row>& rows, const std::string& task) {
  for (const std::string& rung : rungs_of(rows, task))
    if (spread(rows, task, rung, measures[0]).seeds > 1) return true;
  return false;
}

/// Mean ± half range over seeds: a measure a line, a rung a column.
inline meso::io::Table summary_table(const std::vector<Row>& rows, const std::string& task) {
  const std::vector<std::string> rungs = rungs_of(rows, task);
  std::vector<meso::io::Column> columns{{"mean ± half range", meso::io::Align::left}};
  std::vector<std::string> seeds{"seeds finished"};
  for (const std::string& rung : rungs) {
    columns.push_back({meso::io::wrap(rung, 14)});
    seeds.push_back(std::to_string(std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.task == task && row.rung == rung && row.finished;
    })));
  }
  meso::io::Table table(columns);
  table.add(seeds);
  for (const Measure& measure : measures) {
    std::vector<std::string> cells{measure.heading};
    for (const std::string& rung : rungs) cells.push_back(format_spread(spread(rows, task, rung, measure), measure));
    table.add(cells);
  }
  return table;
}

inline constexpr const char* summary_legend =
    "Half range: (largest − smallest) / 2 over the finished seeds. A gap to the rung before counts when it exceeds the "
    "sum of both half ranges; otherwise it is within the spread and printed as none. –: fewer than two seeds, or not "
    "measured.";

/// Each rung against the one before it: the difference of the means, or "none" within the spread.
inline meso::io::Table gap_table(const std::vector<Row>& rows, const std::string& task) {
  const std::vector<std::string> rungs = rungs_of(rows, task);
  std::vector<meso::io::Column> columns{{"gap to the rung before", meso::io::Align::left}};
  for (std::size_t i = 1; i < rungs.size(); ++i) columns.push_back({meso::io::wrap(rungs[i], 14)});
  meso::io::Table table(columns);
  for (const Measure& measure : measures) {
    std::vector<std::string> cells{measure.heading};
    for (std::size_t i = 1; i < rungs.size(); ++i)
      cells.push_back(format_gap(gap(spread(rows, task, rungs[i - 1], measure), spread(rows, task, rungs[i], measure)),
                                 measure.style));
    table.add(cells);
  }
  return table;
}

/// Spread and gap of every rung and measure as CSV. A gap within the spread is "none", one that cannot be judged empty.
inline std::string summary_csv(const std::vector<Row>& rows) {
  using meso::io::csv_cell;
  std::string out = meso::io::csv_line(
      {"task", "rung", "measure", "seeds", "mean", "min", "max", "half_range", "gap_to_previous_rung"});
  for (const std::string& task : tasks_of(rows)) {
    const std::vector<std::string> rungs = rungs_of(rows, task);
    for (std::size_t i = 0; i < rungs.size(); ++i)
      for (const Measure& measure : measures) {
        const Spread s = spread(rows, task, rungs[i], measure);
        const std::optional<Gap> g = i ? gap(spread(rows, task, rungs[i - 1], measure), s) : std::nullopt;
        out += meso::io::csv_line({csv_cell(task), csv_cell(rungs[i]), csv_cell(measure.name), csv_cell(s.seeds),
                                   csv_cell(s.mean), csv_cell(s.low), csv_cell(s.high), csv_cell(s.half_range()),
                                   !g                 ? ""
                                   : g->within_spread ? "none"
                                                      : csv_cell(g->difference)});
      }
  }
  return out;
}

}  // namespace ladder
