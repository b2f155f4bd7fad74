#pragma once
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <meso/io/table.hpp>
#include <string>
#include <utility>

namespace meso::io {

/// Seconds of a clock that never jumps.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// 75 gives "1:15", 3700 gives "1:01:40"; NaN and infinity give "–".
inline std::string format_duration(double seconds) {
  if (!(seconds < 1e9)) return missing;
  const auto total = static_cast<std::int64_t>(std::llround((std::max)(0.0, seconds)));
  const auto two = [](std::int64_t n) { return message(n < 10 ? "0" : "", n); };
  if (total < 3600) return std::to_string(total / 60) + ":" + two(total % 60);
  return std::to_string(total / 3600) + ":" + two(total / 60 % 60) + ":" + two(total % 60);
}

struct ProgressConfig {
  std::string label{};
  std::ostream* out = &std::cerr;
  bool terminal = ::isatty(STDERR_FILENO) == 1;  ///< rewrite one line, instead of printing plain ones
  double every = -1;                             ///< least seconds between lines; < 0: 0.2 on a terminal, else 10
  std::size_t columns = 0;                       ///< longest line on a terminal; 0: as wide as it is
  std::function<double()> clock = steady_seconds;
};

/// Progress of a loop of known length: "label  step 120/5000  loss 2.31  41.2k tokens/s  0:12 elapsed, 8:01 left".
/// On a terminal one line is rewritten in place and `finish` clears it; otherwise plain lines come, at most one in ten
/// seconds, and one for the last step. The rate is the mean since construction, and the time left follows from it.
class Progress {
 public:
  explicit Progress(std::int64_t steps, ProgressConfig config = {})
      : steps_(steps), config_(std::move(config)), start_(config_.clock()) {
    if (config_.every < 0) config_.every = config_.terminal ? 0.2 : 10.0;
    if (config_.columns == 0) {
      winsize window{};
      const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
      config_.columns = known ? window.ws_col - 1u : 99u;
    }
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  /// After `step` of the steps and `tokens` in all since construction.
  void update(std::int64_t step, double loss, std::int64_t tokens) {
    const double now = config_.clock();
    if (now - last_ < config_.every && !(step >= steps_ && last_step_ != step)) return;
    last_ = now;
    last_step_ = step;
    show(line(step, loss, tokens, now - start_));
  }

  /// Clears the line on a terminal, so that the next output starts on a clean one. Called by the destructor.
  void finish() {
    if (!config_.terminal || shown_ == 0) return;
    *config_.out << '\r' << std::string(shown_, ' ') << '\r' << std::flush;
    shown_ = 0;
  }

 private:
  std::string line(std::int64_t step, double loss, std::int64_t tokens, double elapsed) const {
    const double left = step > 0 ? elapsed / static_cast<double>(step) * static_cast<double>(steps_ - step)
                                 : std::numeric_limits<double>::quiet_NaN();
    const std::string label = config_.label.empty() ? "" : config_.label + "  ";
    return message(label, "step ", step, "/", steps_, "  loss ", format_number(loss), "  ",
                   rate(elapsed > 0 ? static_cast<double>(tokens) / elapsed : std::nan("")), " tokens/s  ",
                   format_duration(elapsed), " elapsed, ", format_duration(left), " left");
  }
  static std::string rate(double value) {
    if (value >= 1e6) return format_number(value / 1e6, 3) + "M";
    if (value >= 1e3) return format_number(value / 1e3, 3) + "k";
    return format_number(value, 3);
  }
  void show(std::string text) {
    if (!config_.terminal) {
      *config_.out << text << std::endl;
      return;
    }
    std::size_t width = display_width(text);
    while (width > config_.columns) {  // a wrapped line could not be rewritten
      while ((static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
      text.pop_back();
      --width;
    }
    *config_.out << '\r' << text << std::string(shown_ > width ? shown_ - width : 0, ' ') << std::flush;
    shown_ = width;
  }

  std::int64_t steps_;
  ProgressConfig config_;
  double start_;
  double last_ = -std::numeric_limits<double>::infinity();
  std::int64_t last_step_ = -1;
  std::size_t shown_ = 0;
};

}  // namespace meso::io
