// Trains small decoders that climb the ladder of "From Attention to Activation" (Kaul et al., ICLR 2025) and measures
// each rung: perplexity, kurtosis, attention to the first token, and what quantization costs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <iostream>
#include <meso/io/file.hpp>
#include <meso/io/interrupt.hpp>
#include <meso/io/memory.hpp>
#include <meso/model/layout.hpp>
#include <meso/optim/rotation/dense.hpp>
#include <meso/train/data.hpp>
#include <meso/train/tasks/bigram_backcopy.hpp>
#include <mutex>
#include <optional>
#include <thread>

#include "common/output.hpp"
#include "results.hpp"
#include "rung.hpp"

namespace {

struct Options {
  std::string text, out = "results", rotation = "kronecker", only;
  std::vector<std::string> tasks = {"bigram", "text"};
  bool full = false;
  std::optional<meso::Index> seeds, steps;
  meso::Index bigram_steps = 1500, held_out = 512;
  meso::Index width = 128, layers = 4, heads = 4, context = 64, batch = 16;
  double learning_rate = 3e-3, sgd_learning_rate = 0.3;
  std::optional<double> deadline;
  std::optional<int> threads;
  int jobs = 1;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("--text", o.text, "UTF-8 or byte file to learn from")->required();
  app.add_flag("--full", o.full, "all rungs with three seeds, 2,500 steps, and the spread");
  app.add_option("--tasks", o.tasks, "bigram, text or both")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember({"bigram", "text"}));
  app.add_option("--only", o.only, "only rungs whose name contains this");
  app.add_option("--seeds", o.seeds, "seeds a rung (1; --full: 3)");
  app.add_option("--steps", o.steps, "training steps of the text (1,200; --full: 2,500)");
  app.add_option("--bigram-steps", o.bigram_steps, "training steps of Bigram-Backcopy")->capture_default_str();
  app.add_option("--width", o.width, "width of the text's models")->capture_default_str();
  app.add_option("--layers", o.layers, "their layers")->capture_default_str();
  app.add_option("--heads", o.heads, "their heads")->capture_default_str();
  app.add_option("--context", o.context, "tokens of a sequence")->capture_default_str();
  app.add_option("--batch", o.batch, "sequences of a step")->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "of Adam, RMSProp and OrthoAdam")->capture_default_str();
  app.add_option("--sgd-learning-rate", o.sgd_learning_rate, "of SGD")->capture_default_str();
  app.add_option("--rotation", o.rotation, "of OrthoAdam: kronecker, hadamard or dense (small models only)")
      ->check(CLI::IsMember({"kronecker", "hadamard", "dense"}))
      ->capture_default_str();
  app.add_option("--held-out", o.held_out,
                 "sequences to measure a rung on, a multiple of 16; of a short text what there is")
      ->capture_default_str();
  app.add_option("--threads", o.threads, "threads (default: all cores)");
  app.add_option("--jobs", o.jobs,
                 "rungs trained at a time, each with its share of the threads; the numbers are the same")
      ->capture_default_str();
  app.add_option("--deadline", o.deadline, "seconds after which no more is trained (default: none)");
  app.add_option("--out", o.out, "folder of the results")->capture_default_str();
}

constexpr meso::Index measured_batch = 16;  // sequences measured at a time
constexpr std::uint64_t held_out_seed = 0x4E1D;

void check_options(Options& o) {
  using meso::check;
  const auto count = [](const char* name, meso::Index value, meso::Index most) {
    check(value > 0, name, " is ", value, ", expected a positive number");
    check(value <= most, name, " is ", value, ", expected at most ", most);
  };
  const auto positive = [](const char* name, double value, const char* what = "a positive number") {
    check(value > 0 && std::isfinite(value), name, " is ", value, ", expected ", what);
  };
  if (!o.seeds) o.seeds = o.full ? 3 : 1;
  if (!o.steps) o.steps = o.full ? 2500 : 1200;
  if (!o.threads) o.threads = meso::default_threads();
  count("--seeds", *o.seeds, 1000);
  count("--steps", *o.steps, 1000000000);
  count("--bigram-steps", o.bigram_steps, 1000000000);
  for (const auto& [name, size] : {std::pair{"--batch", o.batch},
                                   {"--context", o.context},
                                   {"--layers", o.layers},
                                   {"--heads", o.heads},
                                   {"--width", o.width}})
    count(name, size, meso::largest_size);
  count("--held-out", o.held_out, 1000000);
  check(o.held_out % measured_batch == 0, "--held-out is ", o.held_out, ", expected a multiple of ", measured_batch);
  count("--threads", *o.threads, 1024);
  count("--jobs", o.jobs, 1024);
  positive("--learning-rate", o.learning_rate);
  positive("--sgd-learning-rate", o.sgd_learning_rate);
  if (o.deadline) positive("--deadline", *o.deadline, "a positive number of seconds");
  check(o.width % o.heads == 0, "--heads ", o.heads, " does not divide --width ", o.width);
  check(!o.out.empty(), "--out is empty, expected a folder");
}

ladder::Setup bigram_setup(const Options& o, const meso::BigramBackcopy& task) {
  constexpr meso::Index time = 64, sequences = 32;
  return {.task = {.name = "bigram",
                   .vocabulary = task.vocabulary(),
                   .sample = [&task](std::uint64_t seed, meso::Index number,
                                     meso::Batch& batch) { task.sample(seed, number, sequences, time, batch); },
                   .held_out =
                       [&task](meso::Index number, meso::Batch& batch) {
                         task.sample(held_out_seed, number, measured_batch, time, batch);
                       },
                   .held_out_batches = o.held_out / measured_batch,
                   .sequences = sequences,
                   .held_out_sequences = measured_batch},
          .layers = 1,
          .heads = 1,
          .width = 64,
          .context = time,
          .steps = o.bigram_steps,
          .warmup = std::min<meso::Index>(100, o.bigram_steps / 10),
          .measure_every = std::max<meso::Index>(1, o.bigram_steps / 30),
          .learning_rate = 3e-3,
          .threads = (std::max)(1, *o.threads / o.jobs)};
}

ladder::Setup text_setup(const Options& o, const meso::TokenStream& text) {
  const meso::Index windows = text.validation_windows(o.context);
  meso::check(windows >= 2 * measured_batch, "the text of ", text.size(), " bytes is too short: its last tenth holds ",
              windows, " windows of ", o.context, " tokens, expected at least ", 2 * measured_batch);
  const meso::Index measured = std::min(o.held_out, windows) / measured_batch;
  return {.task = {.name = "text",
                   .vocabulary = 256,
                   .sample = [&text, o](std::uint64_t seed, meso::Index number,
                                        meso::Batch& batch) { text.sample(seed, number, o.batch, o.context, batch); },
                   // Spread over the whole validation part.
                   .held_out =
                       [&text, o, windows, measured](meso::Index number, meso::Batch& batch) {
                         const meso::Index stride = windows / measured_batch / measured;
                         text.validation_batch(number * stride * measured_batch, measured_batch, o.context, batch);
                       },
                   .held_out_batches = measured,
                   .sequences = o.batch,
                   .held_out_sequences = measured_batch},
          .layers = o.layers,
          .heads = o.heads,
          .width = o.width,
          .context = o.context,
          .steps = *o.steps,
          .warmup = std::min<meso::Index>(100, *o.steps / 10),
          .measure_every = std::max<meso::Index>(1, *o.steps / 30),
          .learning_rate = o.learning_rate,
          .sgd_learning_rate = o.sgd_learning_rate,
          .rotation = o.rotation,
          .threads = (std::max)(1, *o.threads / o.jobs)};
}

/// The rungs of the text in the paper's order, variations of a rung last.
std::vector<ladder::Rung> text_rungs() {
  std::vector<ladder::Rung> rungs = ladder::text_layer_norm_rungs();
  const auto variations = rungs.insert(rungs.begin() + 2, 4, {});
  std::vector<ladder::Rung> single = ladder::text_rms_norm_rungs();
  std::move(single.begin(), single.end(), variations);
  return rungs;
}

/// A rotation that cannot be stored is an error of the command line: say so before anything is trained.
void check_rotation(const ladder::Setup& setup) {
  if (setup.rotation != "dense") return;
  const meso::Index rows = std::max({setup.task.vocabulary, setup.context, 4 * setup.width});
  const meso::Index largest = rows * setup.width, limit = meso::DenseRotation{}.max_elements;
  meso::check(largest <= limit, "--rotation dense is too large to store at --width ", setup.width, ": a parameter of (",
              rows, ", ", setup.width, ") has ", largest, " elements, expected at most ", limit);
}

struct Planned {
  const ladder::Setup* setup;
  ladder::Rung rung;
  ladder::Row row;
};

/// What the largest `jobs` rungs of the plan need at a time must be there before anything is built.
void check_memory(const std::vector<Planned>& plan, const Options& o) {
  std::vector<double> bytes;
  for (const Planned& p : plan) bytes.push_back(p.rung.memory(*p.setup));
  std::sort(bytes.rbegin(), bytes.rend());
  double needed = 0;
  for (std::size_t i = 0; i < bytes.size() && i < static_cast<std::size_t>(o.jobs); ++i) needed += bytes[i];
  const double available = meso::io::available_memory();
  using meso::io::format_bytes;
  meso::check(needed <= available, "--layers ", o.layers, ", --width ", o.width, ", --context ", o.context,
              ", --batch ", o.batch, ", --jobs ", o.jobs, " need ", format_bytes(needed), " of memory, ",
              format_bytes(available), " are available");
}

/// Trains the plan, `jobs` rungs at a time, and hands each row over when it is done. An error ends the run after the
/// rungs that are under way; the rows that are done are kept. So does `stop`, which a rung asks after each step. While it
/// builds its model and its first step, or measures what it has trained, it does not ask, for minutes if it is large:
/// when all that are under way are at that, `leave` is called, which must end the program.
void train_all(const std::vector<Planned>& plan, int jobs, const std::function<bool()>& stop,
               const std::function<void()>& leave, ladder::Results& results) {
  struct Worker {
    bool running = true, asks = false;  // asks: after each step whether it must stop
  };
  std::mutex mutex;  // of all that follows
  std::condition_variable ended;
  std::size_t next = 0;
  std::exception_ptr error;
  std::string failed;
  std::vector<Worker> workers((std::min)(static_cast<std::size_t>(jobs), plan.size()));
  const auto work = [&](Worker& self) {
    std::unique_lock lock(mutex);
    while (next < plan.size() && !stop()) {
      const Planned& p = plan[next++];
      self.asks = false;
      ladder::Setup setup = *p.setup;
      setup.asks_stop = [&](bool asks) {
        const std::lock_guard inner(mutex);
        self.asks = asks;
      };
      std::optional<ladder::Row> row;
      std::exception_ptr thrown;
      lock.unlock();
      try {
        row = p.rung.run(setup, p.row);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      try {
        if (thrown) std::rethrow_exception(thrown);
        results.add(std::move(*row));
      } catch (const std::exception& e) {
        if (!error) failed = p.row.rung + ": " + e.what();
        if (!error) error = std::current_exception();
        next = plan.size();
      }
    }
    self.running = false;
    ended.notify_all();
  };
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back(work, std::ref(worker));
  {
    std::unique_lock lock(mutex);  // held while it leaves: a worker that comes back waits for the end
    const auto some = [&](const auto& is) { return std::any_of(workers.begin(), workers.end(), is); };
    while (some([](const Worker& w) { return w.running; })) {
      if (stop() && !some([](const Worker& w) { return w.running && w.asks; })) leave();
      ended.wait_for(lock, std::chrono::milliseconds(50));
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (!error) return;
  if (std::any_of(results.rows().begin(), results.rows().end(), [](const ladder::Row& r) { return r.finished; }))
    results.finish(failed);
  std::rethrow_exception(error);
}

int run(const Options& o, const std::string& command) {
  // It is held as bytes, as tokens and as the pairs of Bigram-Backcopy.
  const std::string bytes = meso::io::read_file(o.text, "text file", meso::io::available_memory() / 8);
  meso::check(static_cast<meso::Index>(bytes.size()) > o.context, "text file ", o.text, " has ", bytes.size(),
              " bytes, fewer than a context of ", o.context, " and the byte that follows");
  const meso::BigramBackcopy bigram(bytes);
  const meso::TokenStream text = meso::TokenStream::from_bytes(bytes);

  std::vector<ladder::Setup> setups;
  const auto wanted = [&](const char* name) {
    return std::find(o.tasks.begin(), o.tasks.end(), name) != o.tasks.end();
  };
  if (wanted("bigram")) setups.push_back(bigram_setup(o, bigram));
  if (wanted("text")) setups.push_back(text_setup(o, text));
  std::vector<Planned> plan;
  std::vector<std::pair<std::string, std::string>> titles;
  for (ladder::Setup& setup : setups) {
    setup.shared_terminal = o.jobs > 1;
    const bool is_text = setup.task.name == "text";
    titles.emplace_back(setup.task.name,
                        meso::message(is_text ? "English bytes" : "Bigram-Backcopy", ": ", setup.layers, " layer",
                                      setup.layers > 1 ? "s" : "", ", ", setup.heads, " head",
                                      setup.heads > 1 ? "s" : "", ", width ", setup.width, ", ", setup.context,
                                      " tokens, ", setup.steps, " steps of ", is_text ? o.batch : 32, " sequences"));
    for (meso::Index seed = 0; seed < *o.seeds; ++seed)
      for (const ladder::Rung& rung : is_text ? text_rungs() : ladder::bigram_rungs()) {
        if (rung.name.find(o.only) == std::string::npos || (o.only.empty() && !o.full && !rung.quick)) continue;
        if (rung.optimizer == "OrthoAdam") check_rotation(setup);
        ladder::Row row;
        row.task = setup.task.name;
        row.rung = rung.name;
        row.normalizer = rung.normalizer;
        row.norm = rung.norm;
        row.optimizer = rung.optimizer;
        row.seed = static_cast<std::uint64_t>(seed);
        row.learning_rate = rung.learning_rate(setup);
        plan.push_back({&setup, rung, row});
      }
  }
  meso::check(!plan.empty(), "--only ", o.only, " is part of no rung's name");
  check_memory(plan, o);

  std::vector<ladder::Row> rows;
  for (const Planned& p : plan) rows.push_back(p.row);
  auto facts = ladder::machine_facts();
  facts.emplace_back("threads", std::to_string(*o.threads));
  facts.emplace_back("text",
                     meso::message(std::filesystem::path(o.text).filename().string(), ", ", bytes.size(), " bytes"));
  facts.emplace_back("rotation of OrthoAdam", o.rotation);
  ladder::Results results({.directory = o.out,
                           .title = "The ladder from attention sinks and outliers to neither",
                           .command = command,
                           .facts = facts,
                           .task_titles = titles},
                          rows);

  // Until here a signal ends the program as it ends any other; from here on what is done is kept.
  const meso::io::Interrupt interrupt;
  const meso::io::Deadline deadline = o.deadline ? meso::io::Deadline(*o.deadline) : meso::io::Deadline();
  const auto stop = [&] { return interrupt.requested() || deadline.passed(); };
  for (ladder::Setup& setup : setups) setup.stop = stop;
  const auto finish = [&] {
    std::string note;
    if (interrupt.requested())
      note = "Stopped by a signal; rows that were not finished are marked.";
    else if (deadline.passed())
      note = meso::message("The deadline of ", *o.deadline, " s passed; rows that were not finished are marked.");
    results.finish(note);
    return interrupt.requested() ? 128 + interrupt.signal() : 0;
  };
  const auto leave = [&] {
    int code = 2;
    try {
      code = finish();
    } catch (const std::exception& e) {
      std::cerr << "ladder: " << e.what() << '\n';
    }
    std::_Exit(checked_output(code));  // without destructors: the workers still use what they would free
  };
  train_all(plan, o.jobs, stop, leave, results);
  return finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains the ladder of small decoders and measures each rung; writes tables, plots and report.html.");
  Options options;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    std::cerr << "ladder: " << e.what() << '\n';
    return 2;
  }
  std::string command = "bash examples/quickstart.sh";
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string("--text") && i + 1 < argc && std::filesystem::path(argv[i + 1]).filename() == "kjv.txt")
      ++i;  // quickstart.sh's own addition
    else
      command += std::string(" ") + argv[i];
  }
  try {
    check_options(options);
    return run(options, command);
  } catch (const std::bad_alloc&) {
    std::cerr << "ladder: there is not enough memory for these sizes\n";
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "ladder: " << e.what() << '\n';
    return 2;
  }
}
