#pragma once
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <meso/core/context.hpp>
#include <meso/train/data.hpp>
#include <string>
#include <vector>

#include "row.hpp"

namespace ladder {

/// Where a task's batches come from: one for training, by number, one to measure on, window by window.
struct Task {
  std::string name{};
  meso::Index vocabulary = 0;
  std::function<void(std::uint64_t seed, meso::Index number, meso::Batch&)> sample{};
  std::function<void(meso::Index number, meso::Batch&)> held_out{};
  meso::Index held_out_batches = 0;                   ///< to measure a finished rung on
  meso::Index sequences = 0, held_out_sequences = 0;  ///< of a batch of either kind
};

/// Sizes and lengths that all rungs of a task share.
struct Setup {
  Task task{};
  meso::Index layers = 0, heads = 0, width = 0, context = 0;
  meso::Index steps = 0;
  meso::Index warmup = 0;
  meso::Index measure_every = 0;  ///< steps between the points of the per-step plots
  double learning_rate = 0;       ///< of Adam, RMSProp and OrthoAdam
  double sgd_learning_rate = 0;
  std::string rotation = "kronecker";  ///< of OrthoAdam
  int threads = 1;
  bool shared_terminal = false;  ///< other rungs report progress too: plain lines
  std::function<bool()> stop = [] { return false; };
  /// Told true when a rung comes to ask `stop` after each step, and false when it no longer does.
  std::function<void(bool)> asks_stop = [](bool) {};
};

/// A rung: what is trained, and how.
struct Rung {
  std::string name{}, normalizer{}, norm{}, optimizer{};
  bool quick = true;  ///< part of the run without --full
  double (*learning_rate)(const Setup&) = nullptr;
  Row (*run)(const Setup&, const Row& planned) = nullptr;
  double (*memory)(const Setup&) = nullptr;  ///< bytes that `run` needs
};

std::vector<Rung> bigram_rungs();
std::vector<Rung> text_layer_norm_rungs();
std::vector<Rung> text_rms_norm_rungs();

}  // namespace ladder
