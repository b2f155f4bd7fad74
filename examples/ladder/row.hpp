#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <meso/io/csv.hpp>
#include <meso/io/table.hpp>
#include <string>
#include <vector>

namespace ladder {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// What was measured at one training step. NaN where nothing was measured.
struct Step {
  std::int64_t step = 0;
  double loss = unknown;
  double kurtosis_rest = unknown;
  double first_token_mass = unknown;
  double max_abs = unknown;
};

/// One trained rung of the ladder: what it was, and what was measured. NaN where nothing was measured.
/// Shares (proportions and masses) are fractions of 1. Per-layer vectors may be empty.
struct Row {
  std::string task{};  ///< bigram or text: one table each
  std::string rung{};  ///< short name, the same for all seeds
  std::string normalizer{};
  std::string norm{};
  std::string optimizer{};
  std::uint64_t seed = 0;
  double learning_rate = unknown;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  bool finished = false;

  double perplexity = unknown;
  double kurtosis_first = unknown;
  double kurtosis_rest = unknown;
  double max_abs_first = unknown;
  double max_abs_rest = unknown;
  double first_token_proportion = unknown;
  double first_token_proportion_null = unknown;
  double first_token_mass = unknown;
  double null_mass = unknown;
  double ppl_absmax8_coarse = unknown;
  double ppl_absmax8_moderate = unknown;
  double ppl_absmax8_fine = unknown;
  double ppl_zeropoint4 = unknown;
  double tokens_per_second = unknown;
  double seconds = unknown;

  std::vector<double> layer_kurtosis_rest{};
  std::vector<double> layer_max_abs{};
  std::vector<double> layer_first_token_mass{};
  std::vector<Step> series{};
};

/// The same rung of the same task with the same seed.
inline bool same_run(const Row& a, const Row& b) { return a.task == b.task && a.rung == b.rung && a.seed == b.seed; }

enum class Style { number, percent, share };

/// One number of a row: how it is called in CSV, in wide tables and on the terminal, and how it is printed.
struct Measure {
  const char* name;
  const char* heading;
  Style style;
  double Row::*value;
  bool penalty = false;  ///< the value minus the row's perplexity

  double of(const Row& row) const { return penalty ? row.*value - row.perplexity : row.*value; }
};

inline constexpr std::array measures{
    Measure{"perplexity", "perplexity", Style::number, &Row::perplexity},
    Measure{"kurtosis_first", "kurtosis token 1", Style::number, &Row::kurtosis_first},
    Measure{"kurtosis_rest", "kurtosis tokens > 1", Style::number, &Row::kurtosis_rest},
    Measure{"max_abs_first", "max abs token 1", Style::number, &Row::max_abs_first},
    Measure{"max_abs_rest", "max abs tokens > 1", Style::number, &Row::max_abs_rest},
    Measure{"first_token_proportion", "first-token proportion", Style::percent, &Row::first_token_proportion},
    Measure{"first_token_proportion_null", "first-token proportion, null competes", Style::percent,
            &Row::first_token_proportion_null},
    Measure{"first_token_mass", "first-token mass", Style::share, &Row::first_token_mass},
    Measure{"null_mass", "null mass", Style::share, &Row::null_mass},
    Measure{"ppl_absmax8_coarse", "perplexity absmax-8 coarse", Style::number, &Row::ppl_absmax8_coarse},
    Measure{"penalty_absmax8_coarse", "penalty coarse", Style::number, &Row::ppl_absmax8_coarse, true},
    Measure{"ppl_absmax8_moderate", "perplexity absmax-8 moderate", Style::number, &Row::ppl_absmax8_moderate},
    Measure{"penalty_absmax8_moderate", "penalty moderate", Style::number, &Row::ppl_absmax8_moderate, true},
    Measure{"ppl_absmax8_fine", "perplexity absmax-8 fine", Style::number, &Row::ppl_absmax8_fine},
    Measure{"penalty_absmax8_fine", "penalty fine", Style::number, &Row::ppl_absmax8_fine, true},
    Measure{"ppl_zeropoint4", "perplexity zeropoint-4", Style::number, &Row::ppl_zeropoint4},
    Measure{"penalty_zeropoint4", "penalty zeropoint-4", Style::number, &Row::ppl_zeropoint4, true},
};

/// A value as tables show it; `digits` for plain numbers. A penalty or a gap carries its sign.
inline std::string format_value(double value, Style style, bool sign = false, int digits = 4) {
  const std::string text = style == Style::percent ? meso::io::format_percent(value)
                           : style == Style::share ? meso::io::format_fixed(value, 3)
                                                   : meso::io::format_number(value, digits);
  return sign && value > 0 ? meso::message("+", text) : text;
}

/// A penalty or a gap in perplexity and the like: signed, three decimals, fewer when it is large.
inline std::string format_difference(double value, Style style) {
  if (style != Style::number) return format_value(value, style, true);
  const double size = value < 0 ? -value : value;
  const std::string text = size >= 1000 ? meso::io::format_number(value, 3)
                                        : meso::io::format_fixed(value, size < 10    ? 3
                                                                        : size < 100 ? 2
                                                                                     : 1);
  return value > 0 ? meso::message("+", text) : text;
}

/// The shortest form of a learning rate: 0.003.
inline std::string format_rate(double value) {
  return value == value ? meso::io::csv_cell(value) : std::string(meso::io::missing);
}

}  // namespace ladder
