#pragma once
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <meso/io/csv.hpp>
#include <meso/io/file.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace meso::io {

/// One named line: y over x, of the same length. Points that are not finite, or not positive on a logarithmic axis,
/// leave a gap.
struct Series {
  std::string name{};
  std::vector<double> x{};
  std::vector<double> y{};
};

struct Plot {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  bool log_x = false;
  bool log_y = false;
  bool markers = false;    ///< a marker on every point: for few points
  bool integer_x = false;  ///< ticks at whole numbers only, for layers and such
  std::vector<Series> series{};
};

struct PlotConfig {
  std::string gnuplot = "gnuplot";  ///< program, searched in PATH; it gets its arguments without a shell
  int width = 900;                  ///< pixels
  int height = 520;
};

/// What came of a plot. `message` says why there is none.
struct PlotResult {
  bool ok = false;
  bool gnuplot_missing = false;
  std::string message{};
  std::filesystem::path svg{};
  std::filesystem::path png{};
};

namespace detail {

/// Runs a program without a shell, standard input empty. Returns its exit status (128 + signal), or −1 with the reason
/// in `output` when it could not be started; `output` gets what it printed.
inline int run_program(const std::vector<std::string>& arguments, std::string& output) {
  output.clear();
  int ends[2];
  if (::pipe(ends) != 0) return output = reason(errno), -1;
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  for (const int end : ends)
    if (end > STDERR_FILENO) ::posix_spawn_file_actions_addclose(&actions, end);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) output.append(block, static_cast<std::size_t>(n));
  ::close(ends[0]);
  if (error != 0) return output = reason(error), -1;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// True if the file ends with `end`, up to white space: gnuplot on a full disk leaves half a picture and reports nothing.
inline bool ends_with(const std::filesystem::path& path, std::string_view end) {
  const File file(std::fopen(path.c_str(), "rb"));
  char tail[64];
  if (!file || std::fseek(file.get(), -static_cast<long>(sizeof tail), SEEK_END) != 0) return false;
  const std::string_view text(tail, std::fread(tail, 1, sizeof tail, file.get()));
  const std::size_t last = text.find_last_not_of(" \r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1).ends_with(end);
}

/// Single-quoted gnuplot string: nothing in it is interpreted.
inline std::string gnuplot_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out += '\'';
}

inline bool drawable(double x, double y, const Plot& plot) {
  return std::isfinite(x) && std::isfinite(y) && !(plot.log_x && x <= 0) && !(plot.log_y && y <= 0);
}

/// One block a series, two blank lines between them (gnuplot's "index").
inline std::string gnuplot_data(const Plot& plot, const std::vector<const Series*>& shown) {
  std::string out;
  for (const Series* series : shown) {
    std::string name = series->name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    out += (out.empty() ? "# " : "\n\n# ") + name + "\n";
    for (std::size_t i = 0; i < series->x.size(); ++i)
      out += drawable(series->x[i], series->y[i], plot) ? csv_cell(series->x[i]) + " " + csv_cell(series->y[i]) + "\n"
                                                        : "NaN NaN\n";
  }
  return out;
}

inline std::string gnuplot_script(const Plot& plot, const std::vector<const Series*>& shown, const std::string& stem,
                                  const PlotConfig& config) {
  // Okabe and Ito's palette, told apart with every common color blindness; yellow last, and darker than theirs.
  constexpr std::array<const char*, 8> colors{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                              "#56B4E9", "#E69F00", "#000000", "#A89B00"};
  constexpr std::array<int, 8> markers{7, 5, 9, 11, 13, 6, 4, 8};
  const std::string size = message("size ", config.width, ",", config.height);
  const std::string data = gnuplot_quoted(stem + ".dat");

  double low = INFINITY, high = -INFINITY, bottom = INFINITY, top = -INFINITY;
  for (const Series* series : shown)
    for (std::size_t i = 0; i < series->x.size(); ++i)
      if (drawable(series->x[i], series->y[i], plot)) {
        low = (std::min)(low, series->x[i]);
        high = (std::max)(high, series->x[i]);
        bottom = (std::min)(bottom, series->y[i]);
        top = (std::max)(top, series->y[i]);
      }

  // The legend stands below the axes, where no line can run under it; a long title gets a smaller font.
  std::string out =
      message("# Run in this folder: gnuplot ", stem, ".gp\nset encoding utf8\nset title ", gnuplot_quoted(plot.title),
              " noenhanced font ',", plot.title.size() > 75 ? 12 : 16, "'\nset xlabel ", gnuplot_quoted(plot.x_label),
              " noenhanced offset 0,0.3\nset ylabel ", gnuplot_quoted(plot.y_label),
              " noenhanced\nset key below center horizontal Left reverse noenhanced samplen 2.5\n",
              "set border 3 lc rgb '#444444'\nset tics nomirror out\n",
              "set grid back lc rgb '#dddddd' lt 1 lw 1\nset lmargin 11\nset rmargin 3\n");
  if (plot.log_x) out += "set logscale x\n";
  if (plot.log_y) {
    // gnuplot would extend a logarithmic axis to whole decades, and label nothing between them.
    out += message("set logscale y\nset yrange [", bottom / 1.2, ":", top * 1.2, "]\n");
    if (top < 1000 * bottom) {
      std::string ticks;
      for (int decade = static_cast<int>(std::floor(std::log10(bottom))) - 1; decade <= std::log10(top) + 1; ++decade)
        for (const int digit : {1, 2, 5}) ticks += message(ticks.empty() ? "" : ",", digit, "e", decade);
      out += "set ytics (" + ticks + ")\n";
    }
  }
  if (plot.integer_x && high - low <= 25) out += "set xtics 1\n";
  if (low == high)
    out += plot.log_x ? message("set xrange [", low / 2, ":", low * 2, "]\n")
                      : message("set xrange [", low - 1, ":", low + 1, "]\n");
  std::string lines;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const bool marked = plot.markers || shown[i]->x.size() == 1;
    lines +=
        message(i ? ", \\\n  " : "plot ", data, " index ", i, " using 1:2 with ", marked ? "linespoints" : "lines",
                " lc rgb '", colors[i % 8], "' lw 2 dt ", 1 + i / 8 % 5,
                marked ? message(" pt ", markers[i % 8], " ps 0.9") : "", " title ", gnuplot_quoted(shown[i]->name));
  }
  return out + message("\nset terminal svg ", size, " font 'sans-serif,14' background rgb 'white' noenhanced\n",
                       "set output ", gnuplot_quoted(stem + ".svg"), "\n", lines, "\nunset output\n\n",
                       "if (strstrt(GPVAL_TERMINALS, ' pngcairo ')) {\n  set terminal pngcairo ", size,
                       " font 'sans-serif,12' background rgb 'white' noenhanced\n} else {\n  set terminal png ", size,
                       " noenhanced\n}\nset output ", gnuplot_quoted(stem + ".png"), "\n", lines, "\nunset output\n");
}

}  // namespace detail

/// Draws lines to `stem`.svg and `stem`.png with gnuplot; `stem`.dat and the script `stem`.gp stay beside them, to be
/// edited and run again. The folder must exist. A missing or failing gnuplot, and a plot without a finite point, is
/// reported in the result and not thrown.
/// Throws: std::runtime_error when the data or the script cannot be written; std::invalid_argument when a series'
/// x and y differ in length.
inline PlotResult draw(const Plot& plot, const std::filesystem::path& stem, const PlotConfig& config = {}) {
  std::vector<const Series*> shown;
  for (const Series& series : plot.series) {
    check(series.x.size() == series.y.size(), "plot ", plot.title, ": series ", series.name, " has ", series.x.size(),
          " x but ", series.y.size(), " y");
    for (std::size_t i = 0; i < series.x.size(); ++i)
      if (detail::drawable(series.x[i], series.y[i], plot)) {
        shown.push_back(&series);
        break;
      }
  }
  PlotResult result{false, false, {}, stem.string() + ".svg", stem.string() + ".png"};
  if (shown.empty()) {
    result.message = message("nothing to draw in ", stem.string());
    return result;
  }
  const std::string name = stem.filename().string();
  write_file_atomically(stem.string() + ".dat", detail::gnuplot_data(plot, shown));
  write_file_atomically(stem.string() + ".gp", detail::gnuplot_script(plot, shown, name, config));
  // A stale picture must not pass for a new one.
  std::error_code ignored;
  std::filesystem::remove(result.svg, ignored);
  std::filesystem::remove(result.png, ignored);
  const std::string folder = stem.has_parent_path() ? stem.parent_path().string() : ".";
  std::string output;
  const int status =
      detail::run_program({config.gnuplot, "-d", "-e", "cd " + detail::gnuplot_quoted(folder), name + ".gp"}, output);
  result.gnuplot_missing = status < 0;
  if (status < 0)
    result.message = message("no plots: cannot run ", config.gnuplot, ": ", output);
  else if (status != 0 || !detail::ends_with(result.svg, "</svg>") ||
           !detail::ends_with(result.png, {"IEND\xae\x42\x60\x82", 8}))
    result.message = message(config.gnuplot, " failed on ", stem.string(), ".gp with status ", status, ": ", output);
  else
    result.ok = true;
  return result;
}

}  // namespace meso::io
