#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <meso/io/gnuplot.hpp>
#include <string>
#include <utility>
#include <vector>

#include "row.hpp"
#include "tables.hpp"

namespace ladder {

/// A plot and the name of its files, without the extension.
struct NamedPlot {
  std::string name{};
  meso::io::Plot plot{};
};

/// Mean over runs of y at each x, where some run has a finite y.
class MeanLine {
 public:
  void add(double x, double y) {
    if (!std::isfinite(y)) return;
    auto& [sum, count] = points_[x];
    sum += y;
    ++count;
  }
  meso::io::Series series(const std::string& name) const {
    meso::io::Series out{name};
    for (const auto& [x, point] : points_) {
      out.x.push_back(x);
      out.y.push_back(point.first / point.second);
    }
    return out;
  }

 private:
  std::map<double, std::pair<double, int>> points_;
};

/// A logarithmic axis where values are positive and span more than a factor of 15: one outlier would flatten the rest.
inline void choose_scale(meso::io::Plot& plot) {
  double low = INFINITY, high = 0;
  for (const meso::io::Series& series : plot.series)
    for (const double y : series.y) {
      low = std::min(low, y);
      high = std::max(high, y);
    }
  plot.log_y = low > 0 && high > 15 * low;
}

/// One line a rung, the mean over its seeds: finished ones, or what there is of an unfinished rung. `each` calls its
/// second argument with the points of a row.
template <class Each>
std::vector<meso::io::Series> lines(const std::vector<Row>& rows, const std::string& task, const Each& each) {
  std::vector<meso::io::Series> out;
  for (const std::string& rung : rungs_of(rows, task)) {
    const auto of_rung = [&](const Row& row) { return row.task == task && row.rung == rung; };
    const bool finished =
        std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return of_rung(row) && row.finished; });
    MeanLine line;
    for (const Row& row : rows)
      if (of_rung(row) && row.finished == finished) each(row, [&](double x, double y) { line.add(x, y); });
    out.push_back(line.series(rung + (finished ? "" : " (unfinished)")));
  }
  std::erase_if(out, [](const meso::io::Series& series) { return series.x.empty(); });
  return out;
}

/// All plots that the rows have data for, per layer and per step, task by task. `title_of` names a task.
template <class Title>
std::vector<NamedPlot> plots(const std::vector<Row>& rows, const Title& title_of) {
  struct Layers {
    const char *name, *label;
    std::vector<double> Row::*values;
    bool share;
  };
  struct Steps {
    const char *name, *label;
    double Step::*value;
    bool share;
  };
  constexpr Layers per_layer[] = {
      {"layer_kurtosis", "mean kurtosis, tokens > 1", &Row::layer_kurtosis_rest, false},
      {"layer_max_abs", "max abs activation", &Row::layer_max_abs, false},
      {"layer_first_token_mass", "first-token mass", &Row::layer_first_token_mass, true},
  };
  constexpr Steps per_step[] = {
      {"step_loss", "training loss (nats)", &Step::loss, false},
      {"step_kurtosis", "mean kurtosis, tokens > 1", &Step::kurtosis_rest, false},
      {"step_first_token_mass", "first-token mass", &Step::first_token_mass, true},
      {"step_max_abs", "max abs activation", &Step::max_abs, false},
  };
  std::vector<NamedPlot> out;
  for (const std::string& task : tasks_of(rows)) {
    const std::string whole = title_of(task), title = whole.substr(0, whole.find(':'));  // sizes do not fit a picture
    const bool several = has_spread(rows, task);
    const auto add = [&](const char* name, const char* x_label, const char* label, std::vector<meso::io::Series> series,
                         bool share, bool layers) {
      meso::io::Plot plot{title + ": " + label + (several ? " (mean over seeds)" : ""), x_label, label};
      plot.markers = plot.integer_x = layers;
      plot.series = std::move(series);
      if (!share) choose_scale(plot);
      if (!plot.series.empty()) out.push_back({task + "_" + name, std::move(plot)});
    };
    // One layer makes no line; its value stands in the table.
    const bool deep = std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.task == task && std::max(row.layer_kurtosis_rest.size(), row.layer_first_token_mass.size()) > 1;
    });
    for (const Layers& p : per_layer)
      if (deep)
        add(p.name, "layer", p.label,
            lines(rows, task,
                  [&](const Row& row, const auto& point) {
                    for (std::size_t i = 0; i < (row.*p.values).size(); ++i)
                      point(static_cast<double>(i + 1), (row.*p.values)[i]);
                  }),
            p.share, true);
    for (const Steps& p : per_step)
      add(p.name, "step", p.label,
          lines(rows, task,
                [&](const Row& row, const auto& point) {
                  for (const Step& step : row.series) point(static_cast<double>(step.step), step.*p.value);
                }),
          p.share, false);
  }
  return out;
}

}  // namespace ladder
