#pragma once
#include <signal.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <stdexcept>

namespace meso::io {

/// While it lives, the first SIGINT or SIGTERM only raises a flag, which a long loop asks for between its steps; the
/// second one ends the program, as it would without. A SIGINT that the program was started to ignore (nohup, a shell's
/// background job) stays ignored. The old handlers come back at the end.
/// Throws: std::logic_error if another one lives.
class Interrupt {
 public:
  Interrupt() {
    if (alive().exchange(true)) throw std::logic_error("one meso::io::Interrupt at a time");
    received().store(0);
    install(SIGINT, old_int_);
    install(SIGTERM, old_term_);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
    alive().store(false);
  }

  /// True once a signal has come.
  bool requested() const { return received().load(std::memory_order_relaxed) != 0; }
  /// Number of the signal that came, 0 without one. A program that stops for it returns 128 + signal().
  int signal() const { return received().load(std::memory_order_relaxed); }

 private:
  // The library's only mutable state of static storage: a signal handler takes no argument, so there is no other place
  // that it could write to. A lock-free atomic is what the standard lets it touch, and unlike volatile sig_atomic_t it
  // may be read from other threads. Both are initialized at compile time, so no guard runs inside the handler.
  static std::atomic<int>& received() {
    static_assert(std::atomic<int>::is_always_lock_free);
    static constinit std::atomic<int> flag{0};
    return flag;
  }
  static std::atomic<bool>& alive() {
    static constinit std::atomic<bool> flag{false};
    return flag;
  }
  static void handle(int signal) { received().store(signal, std::memory_order_relaxed); }
  static void install(int signal, struct ::sigaction& old) {
    struct ::sigaction action {};
    action.sa_handler = &Interrupt::handle;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }

  struct ::sigaction old_int_ {};
  struct ::sigaction old_term_ {};
};

/// A point in time after which long work should stop; counted from construction. Default: never.
class Deadline {
 public:
  explicit Deadline(double seconds = std::numeric_limits<double>::infinity()) : seconds_(seconds) {}
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Seconds left: negative when passed, infinite without a limit.
  double left() const { return seconds_ - elapsed(); }
  bool passed() const { return left() <= 0; }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace meso::io
