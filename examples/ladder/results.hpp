#pragma once
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <meso/io/csv.hpp>
#include <meso/io/file.hpp>
#include <meso/io/gnuplot.hpp>
#include <meso/io/html_report.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "plots.hpp"
#include "row.hpp"
#include "tables.hpp"

namespace ladder {

struct ResultsConfig {
  std::filesystem::path directory = "results";
  std::string title = "The ladder";
  std::string command{};                                           ///< as the user typed it
  std::vector<std::pair<std::string, std::string>> facts{};        ///< machine_facts() and settings, for the page
  std::vector<std::pair<std::string, std::string>> task_titles{};  ///< {"text", "English bytes, 4 layers, …"}
  std::ostream* out = &std::cout;
  bool draw = true;
  meso::io::PlotConfig plot{};
};

/// Compiler, flags that matter, processor: what a number of seconds means something with.
inline std::vector<std::pair<std::string, std::string>> machine_facts() {
#ifdef __clang__
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
#ifdef NDEBUG
  const std::string asserts = ", no asserts";
#else
  const std::string asserts = ", asserts";
#endif
#ifdef __OPTIMIZE__
  const std::string build = "optimized" + asserts;
#else
  const std::string build = "not optimized" + asserts;
#endif
  std::vector<std::pair<std::string, std::string>> facts{{"compiler", compiler + ", " + build}};
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);)
    if (line.starts_with("model name")) {
      const std::size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
      if (start != std::string::npos) facts.emplace_back("processor", line.substr(start));
      break;
    }
  facts.emplace_back("cores", std::to_string(std::thread::hardware_concurrency()));
  return facts;
}

/// What a run of the ladder prints and stores. Give it the planned rows, each row when it is done, and `finish` at the
/// end, also of an interrupted run. A row goes at once to the terminal and to the files
///   ladder.csv  ladder.md  (all rows, those not reached marked unfinished; replaced as a whole)
///   steps.csv   layers.csv (appended)
/// and `finish` adds summary.csv, plots/ and report.html. Old files stay until the first row is there.
/// Throws: std::runtime_error with the path and the reason when the directory cannot be made or written.
class Results {
 public:
  /// `planned`: rows to come in the order of the ladder, measures empty.
  Results(ResultsConfig config, std::vector<Row> planned)
      : config_(std::move(config)),
        rows_(std::move(planned)),
        reached_(rows_.size(), false),
        table_(terminal_table(rows_)) {
    for (Row& row : rows_) row.finished = false;
    // A folder that cannot be written must fail now, not after the first rung is trained.
    std::error_code error;
    std::filesystem::create_directories(config_.directory / "plots", error);
    if (error)
      throw std::runtime_error("cannot create folder " + (config_.directory / "plots").string() + ": " +
                               error.message());
    for (const auto& folder : {config_.directory, config_.directory / "plots"})
      if (::access(folder.c_str(), W_OK | X_OK) != 0)
        throw std::runtime_error("cannot write in folder " + folder.string() + ": " +
                                 std::generic_category().message(errno));
  }

  /// Prints and stores one row. It takes the place of the planned row of its task, rung and seed, if there is one.
  /// A row with finished = false is one that was cut short: what it measured is shown, and it counts in no mean.
  void add(Row row) {
    print(row);
    if (!steps_) {
      steps_.emplace(config_.directory / "steps.csv",
                     std::vector<std::string>{"task", "rung", "seed", "step", "loss", "kurtosis_rest",
                                              "first_token_mass", "max_abs"});
      layers_.emplace(
          config_.directory / "layers.csv",
          std::vector<std::string>{"task", "rung", "seed", "layer", "kurtosis_rest", "max_abs", "first_token_mass"});
    }
    for (const Step& s : row.series)
      steps_->row(row.task, row.rung, row.seed, s.step, s.loss, s.kurtosis_rest, s.first_token_mass, s.max_abs);
    const auto at = [](const std::vector<double>& values, std::size_t i) {
      return i < values.size() ? values[i] : unknown;
    };
    for (std::size_t i = 0;
         i < std::max({row.layer_kurtosis_rest.size(), row.layer_max_abs.size(), row.layer_first_token_mass.size()});
         ++i)
      layers_->row(row.task, row.rung, row.seed, i + 1, at(row.layer_kurtosis_rest, i), at(row.layer_max_abs, i),
                   at(row.layer_first_token_mass, i));
    std::size_t place = 0;
    while (place < rows_.size() && (reached_[place] || !same_run(rows_[place], row))) ++place;
    if (place == rows_.size()) {
      rows_.emplace_back();
      reached_.push_back(false);
    }
    rows_[place] = std::move(row);
    reached_[place] = true;
    store();
  }

  /// Prints what was not reached, the legend, and for several seeds the spread; draws the plots; writes the page.
  /// `note` says why the run ended early: "stopped by Ctrl-C", "the deadline of 480 s passed".
  void finish(std::string_view note = {}) {
    std::ostream& out = *config_.out;
    note_ = note;
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (!reached_[i]) print(rows_[i]);
    out << '\n' << terminal_legend;
    for (const std::string& task : tasks_of(rows_))
      if (has_spread(rows_, task))
        out << '\n'
            << title_of(task) << "\n\n"
            << summary_table(rows_, task).text() << '\n'
            << gap_table(rows_, task).text();
    if (any_spread()) out << '\n' << summary_legend << '\n';
    if (!note.empty()) out << '\n' << note << '\n';
    if (!steps_) {
      out << "\nNo rung was trained; nothing was written.\n" << std::flush;
      return;
    }
    store();
    const std::vector<Picture> pictures = config_.draw ? draw_plots() : std::vector<Picture>{};
    meso::io::write_file_atomically(config_.directory / "report.html", page(pictures));
    out << "\nWritten to " << config_.directory.string() << ": ladder.csv, ladder.md, steps.csv, layers.csv, "
        << (any_spread() ? "summary.csv, " : "") << (pictures.empty() ? "" : "plots/, ") << "report.html\n"
        << std::flush;
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  struct Picture {
    std::string task{}, title{}, svg{};
  };

  std::string title_of(const std::string& task) const {
    for (const auto& [name, title] : config_.task_titles)
      if (name == task) return title;
    return "Task " + task;
  }
  bool any_spread() const {
    const std::vector<std::string> tasks = tasks_of(rows_);
    return std::any_of(tasks.begin(), tasks.end(), [&](const std::string& task) { return has_spread(rows_, task); });
  }

  void print(const Row& row) {
    std::ostream& out = *config_.out;
    if (printed_task_ != row.task || table_.rows().empty())
      out << '\n' << title_of(row.task) << "\n\n" << table_.text_head();
    printed_task_ = row.task;
    table_.add(terminal_cells(row));
    out << table_.text_row(table_.rows().size() - 1) << std::flush;
  }

  void store() const {
    meso::io::write_file_atomically(config_.directory / "ladder.csv", full_csv(rows_));
    std::string text = "# " + config_.title + "\n\n";
    if (!config_.command.empty()) text += "`" + config_.command + "`, ";
    text += meso::io::current_date() + "\n";
    if (!note_.empty()) text += "\n" + note_ + "\n";
    for (const std::string& task : tasks_of(rows_)) {
      text += "\n## " + title_of(task) + "\n\n" + full_table(rows_, task).markdown();
      if (has_spread(rows_, task))
        text += "\n" + summary_table(rows_, task).markdown() + "\n" + gap_table(rows_, task).markdown();
    }
    text += "\n" + std::string(wide_legend) + "\n";
    if (any_spread()) {
      text += "\n" + std::string(summary_legend) + "\n";
      meso::io::write_file_atomically(config_.directory / "summary.csv", summary_csv(rows_));
    }
    meso::io::write_file_atomically(config_.directory / "ladder.md", text);
  }

  std::vector<Picture> draw_plots() const {
    std::vector<Picture> pictures;
    bool told = false;  // a missing gnuplot is missing for all plots
    for (const std::string& task : tasks_of(rows_)) {
      std::vector<Row> of_task;
      for (const Row& row : rows_)
        if (row.task == task) of_task.push_back(row);
      for (const NamedPlot& p : plots(of_task, [&](const std::string& name) { return title_of(name); })) {
        const auto result = meso::io::draw(p.plot, config_.directory / "plots" / p.name, config_.plot);
        if (!result.ok) {
          if (!result.gnuplot_missing || !told)
            *config_.out << '\n'
                         << result.message << (result.gnuplot_missing ? "; plots/*.gp draw them later" : "") << '\n';
          told = told || result.gnuplot_missing;
          continue;
        }
        pictures.push_back({task, p.plot.title, meso::io::read_file(result.svg)});
      }
    }
    return pictures;
  }

  std::string page(const std::vector<Picture>& pictures) const {
    meso::io::HtmlReport page(config_.title);
    std::vector<std::pair<std::string, std::string>> facts;
    if (!config_.command.empty()) facts.emplace_back("command", config_.command);
    facts.emplace_back("date", meso::io::current_date());
    facts.insert(facts.end(), config_.facts.begin(), config_.facts.end());
    page.facts(facts);
    if (!note_.empty()) page.paragraph(note_);
    for (const std::string& task : tasks_of(rows_)) {
      page.heading(title_of(task));
      page.table(full_table(rows_, task));
      if (has_spread(rows_, task)) {
        page.subheading("Spread over seeds");
        page.table(summary_table(rows_, task));
        page.table(gap_table(rows_, task));
        page.paragraph(summary_legend);
      }
      for (const Picture& picture : pictures)
        if (picture.task == task) page.svg(picture.svg, picture.title);
    }
    page.heading("How to read the tables");
    page.paragraph(wide_legend);
    return page.html();
  }

  ResultsConfig config_;
  std::vector<Row> rows_;
  std::vector<bool> reached_;
  meso::io::Table table_;
  std::string printed_task_{};
  std::string note_{};
  std::optional<meso::io::CsvWriter> steps_{};
  std::optional<meso::io::CsvWriter> layers_{};
};

}  // namespace ladder
