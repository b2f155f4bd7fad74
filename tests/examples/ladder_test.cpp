#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/io/temporary_folder.hpp"

// The program examples/ladder as its users meet it: what it writes, how it stops, and what it says to a mistake.
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
Strings split(const std::string& text, char at) {
  Strings parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

/// A folder with a text of 24 kB in it, and runs of the program there.
struct Ladder : TemporaryFolder {
  Ladder() {
    const Strings words{"the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "sees", "it"};
    std::string text;
    for (unsigned state = 1; text.size() < 24000; state = state * 1664525u + 1013904223u)
      text += words[(state >> 16) % words.size()] + ((state >> 8) % 11 == 0 ? ".\n" : " ");
    write("text.txt", text);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
  }

  /// Starts the ladder on one thread with tiny sizes, `arguments` added; they may set a size anew.
  pid_t start(const Strings& arguments) {
    Strings words{"ladder/ladder"};
    Strings sizes{"--text=text.txt",  "--out=results", "--threads=1", "--steps=3",
                  "--bigram-steps=3", "--held-out=32", "--width=16",  "--layers=1",
                  "--heads=2",        "--context=16",  "--batch=2"};
    for (const std::string& size : sizes) {
      const std::string name = size.substr(0, size.find('=') + 1);
      bool anew = false;
      for (const std::string& argument : arguments) anew = anew || argument.starts_with(name);
      if (!anew) words.push_back(size);
    }
    words.insert(words.end(), arguments.begin(), arguments.end());
    return start_example(words);
  }
  /// Starts an example, words[0], with its arguments, its standard output in `stdout_path`, and no file of it above
  /// `largest_file`: what is beyond fails as on a full disk.
  pid_t start_example(Strings words) {
    const char* const examples = std::getenv("MESO_EXAMPLES");
    BOOST_REQUIRE_MESSAGE(examples, "MESO_EXAMPLES must name the folder of the built examples");
    words[0] = std::string(examples) + "/" + words[0];
    BOOST_REQUIRE_MESSAGE(fs::exists(words[0]), words[0] + " does not exist");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = stdout_path.empty() ? (*this / "out").string() : stdout_path, err = *this / "err";
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child > 0) return child;
    ::signal(SIGINT, SIG_DFL);  // a shell may have started the tests with it ignored
    ::signal(SIGXFSZ, SIG_IGN);
    const ::rlimit limit{largest_file, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const int out_file = ::open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    const int err_file = ::open(err.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (::chdir(path.c_str()) == 0 && ::dup2(out_file, 1) == 1 && ::dup2(err_file, 2) == 2)
      ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int wait(pid_t child) const {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(const Strings& arguments) { return wait(start(arguments)); }

  std::string stdout_path;
  ::rlim_t largest_file = RLIM_INFINITY;

  std::string out() const { return contents(*this / "out"); }
  std::string err() const { return contents(*this / "err"); }
  fs::path result(const std::string& name) const { return *this / "results" / name; }

  /// The column `name` of ladder.csv, of the rows of one task.
  Strings column(const std::string& task, const std::string& name) const {
    const Strings lines = split(contents(result("ladder.csv")), '\n');
    BOOST_REQUIRE(!lines.empty());
    const Strings header = split(lines[0], ',');
    const std::size_t at = static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
    BOOST_REQUIRE_MESSAGE(at < header.size(), "no column " + name);
    Strings values;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const Strings cells = split(lines[i], ',');
      if (cells[0] == task) values.push_back(at < cells.size() ? cells[at] : "");
    }
    return values;
  }
};

/// A mistake: exit code 2, and on stderr one sentence that shows each of `parts`. Nothing is written.
void refuses(const Strings& arguments, const Strings& parts, const char* text = nullptr) {
  Ladder ladder;
  if (text) ladder.write("text.txt", text);
  const int code = ladder.run(arguments);
  const std::string err = ladder.err(), shown = "stderr: " + err;
  BOOST_TEST(code == 2, "exit code " << code << ", " << shown);
  for (const std::string& part : parts) BOOST_TEST(contains(err, part), "no \"" << part << "\" in " << shown);
  BOOST_TEST(split(err, '\n').size() == 1, shown);
  BOOST_TEST(!contains(err, "terminate"), shown);
  BOOST_TEST(!fs::exists(ladder.result("ladder.csv")));
}

const Strings endless{"--only=softmax-1", "--steps=100000000"};  // short rungs of the bigrams, then a text without end

/// Of the run `endless`, cut short: the first rung is whole, the text's are marked.
void keeps_what_is_done(const Ladder& ladder, const std::string& note) {
  BOOST_TEST(ladder.column("bigram", "state").at(0) == "finished");
  BOOST_TEST(std::stod(ladder.column("bigram", "perplexity").at(0)) > 1);
  const Strings states = ladder.column("text", "state");
  BOOST_TEST(states.size() >= 2);
  BOOST_TEST((states == Strings(states.size(), "unfinished")));
  BOOST_TEST(ladder.column("text", "perplexity").at(0).empty());
  BOOST_TEST(contains(ladder.out(), "unfinished"), ladder.out());
  for (const char* name : {"ladder.md", "report.html"}) {
    BOOST_TEST(contains(contents(ladder.result(name)), "unfinished"), name);
    BOOST_TEST(contains(contents(ladder.result(name)), note), name);
  }
}

void stops_for(int signal) {
  Ladder ladder;
  const pid_t child = ladder.start(endless);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!fs::exists(ladder.result("ladder.csv")) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(child, signal);
  BOOST_TEST(ladder.wait(child) == 128 + signal);
  keeps_what_is_done(ladder, "signal");
}

/// Waits for the program, whose end must have to do with `signal`, sent as soon as `there` exists.
void ends_for(Ladder& ladder, pid_t child, int signal, const fs::path& there) {
  const auto start = std::chrono::steady_clock::now();
  while (!fs::exists(there) && std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, signal);
  const auto sent = std::chrono::steady_clock::now();
  const int code = ladder.wait(child);
  BOOST_TEST((code == 128 + signal || code == -signal), code << ", stderr: " << ladder.err());
  BOOST_TEST((std::chrono::steady_clock::now() - sent < std::chrono::seconds(20)));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ladder)

BOOST_AUTO_TEST_CASE(all_rungs_with_two_seeds) {
  Ladder ladder;
  BOOST_REQUIRE_MESSAGE(ladder.run({"--full", "--seeds=2"}) == 0, ladder.err());
  // The paper's ladder, in its order; other rungs may stand between.
  const Strings rungs{"softmax Adam LN",         "softmax-1 Adam LN",   "softmax-1 Adam RMS-S",
                      "softmax-1 RMSProp RMS-S", "softmax-1 SGD RMS-S", "softmax-1 OrthoAdam RMS-S"};
  const std::string markdown = contents(ladder.result("ladder.md")), page = contents(ladder.result("report.html"));
  for (const std::string task : {"bigram", "text"}) {
    const Strings names = ladder.column(task, "rung"), seeds = ladder.column(task, "seed");
    std::size_t next = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (task == "text" && next < rungs.size() && names[i] == rungs[next] && seeds[i] == "0") ++next;
      BOOST_TEST(contains(ladder.out(), names[i]), names[i]);
      BOOST_TEST(contains(markdown, "| " + names[i] + " "), names[i]);
      BOOST_TEST(contains(page, names[i]), names[i]);
    }
    BOOST_TEST((task == "bigram" || next == rungs.size()));
    BOOST_TEST(std::count(seeds.begin(), seeds.end(), "0") == std::count(seeds.begin(), seeds.end(), "1"));
    for (const std::string& state : ladder.column(task, "state")) BOOST_TEST(state == "finished");
    // Hardly trained: between the two words and the uniform distribution over the vocabulary.
    for (const char* name : {"perplexity", "ppl_absmax8_coarse", "ppl_absmax8_moderate", "ppl_absmax8_fine"})
      for (const std::string& value : ladder.column(task, name))
        BOOST_TEST((std::stod(value) > 2 && std::stod(value) < 260), name << " " << value);
    for (const char* name : {"kurtosis_first", "kurtosis_rest", "max_abs_first", "max_abs_rest", "first_token_mass",
                             "first_token_proportion", "ppl_zeropoint4", "tokens_per_second", "seconds"})
      for (const std::string& value : ladder.column(task, name))
        BOOST_TEST(std::stod(value) >= 0, name << " " << value);
  }
  BOOST_TEST(ladder.column("bigram", "rung").size() >= 4);
  for (const std::string& mass : ladder.column("text", "null_mass"))
    BOOST_TEST((mass == "0" || std::stod(mass) > 0.01));
  BOOST_TEST(split(contents(ladder.result("steps.csv")), '\n').size() > ladder.column("text", "rung").size());
  BOOST_TEST(split(contents(ladder.result("layers.csv")), '\n').size() > ladder.column("text", "rung").size());
  BOOST_TEST(contains(contents(ladder.result("summary.csv")), rungs[0]));
  BOOST_TEST(contains(page, "<table"));
  BOOST_TEST(page.find("</html>") + 16 > page.size());
  if (fs::exists(ladder.result("plots/text_step_loss.svg"))) BOOST_TEST(contains(page, "<svg"));  // there is a gnuplot
  BOOST_TEST(contains(ladder.err(), "tokens/s"), "no progress: " << ladder.err());
}

BOOST_AUTO_TEST_CASE(a_deadline_keeps_what_is_done) {
  Ladder ladder;
  Strings arguments = endless;
  arguments.push_back("--deadline=4");
  BOOST_TEST(ladder.run(arguments) == 0, ladder.err());
  keeps_what_is_done(ladder, "deadline of 4 s");
}

BOOST_AUTO_TEST_CASE(a_signal_keeps_what_is_done) {
  stops_for(SIGINT);
  stops_for(SIGTERM);
}

// From the first line on, and while a model of 4,000 layers and the rotations of its 48,000 parameters are built: seconds
// to minutes in which nobody asks for a signal. Nothing is written then.
BOOST_AUTO_TEST_CASE(a_signal_ends_the_set_up) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Ladder ladder;
    ends_for(ladder, ladder.start(endless), signal, "/");
    BOOST_TEST(!fs::exists(ladder.result("ladder.csv")));
    const Strings deep{"--layers=4000", "--tasks=text", "--only=OrthoAdam RMS-S"};
    ends_for(ladder, ladder.start(deep), signal, ladder.result("plots"));
    BOOST_TEST(!fs::exists(ladder.result("ladder.csv")));
  }
}

// A rung that is done stays when the next one's set-up is left behind.
BOOST_AUTO_TEST_CASE(a_signal_in_a_later_set_up_keeps_what_is_done) {
  Ladder ladder;
  const pid_t child = ladder.start({"--layers=4000", "--only=softmax-1 "});
  ends_for(ladder, child, SIGTERM, ladder.result("ladder.csv"));
  BOOST_TEST(ladder.column("bigram", "state").at(0) == "finished");
  BOOST_TEST(ladder.column("text", "state").at(0) == "unfinished");
  BOOST_TEST(contains(contents(ladder.result("report.html")), "signal"));
}

BOOST_AUTO_TEST_CASE(output_that_cannot_be_written_is_an_error) {
  for (const Strings& words : {Strings{"softmax1"}, {"readme"}, {"train_text"}, {"ladder/ladder", "--help"}}) {
    Ladder ladder;
    BOOST_TEST(ladder.wait(ladder.start_example(words)) == 0, words[0]);
    ladder.stdout_path = "/dev/full";
    BOOST_TEST(ladder.wait(ladder.start_example(words)) == 1, words[0]);
    BOOST_TEST(ladder.err() == "cannot write to standard output: No space left on device\n", ladder.err());
  }
  Ladder ladder;
  ladder.stdout_path = "/dev/full";
  BOOST_TEST(ladder.run({"--tasks=bigram", "--only=softmax-1"}) == 1);
  BOOST_TEST(contains(ladder.err(), "cannot write to standard output"), ladder.err());
  BOOST_TEST(ladder.column("bigram", "state").at(0) == "finished");  // the files hold it all
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_an_error) {
  for (const ::rlim_t largest : {::rlim_t{1000}, ::rlim_t{3000}}) {
    Ladder ladder;
    ladder.stdout_path = "/dev/null";
    ladder.largest_file = largest;
    BOOST_TEST(ladder.run({"--tasks=bigram", "--only=softmax"}) == 2, ladder.err());
    BOOST_TEST(contains(ladder.err(), "ladder: cannot write results/"), ladder.err());
    BOOST_TEST(contains(ladder.err(), "File too large"), ladder.err());
  }
}

BOOST_AUTO_TEST_CASE(texts_that_will_not_do) {
  refuses({"--text=missing.txt"}, {"missing.txt", "No such file"});
  refuses({}, {"text.txt", "empty"}, "");
  refuses({}, {"text.txt", "10 bytes", "context of 16"}, "ten bytes.");
  refuses({}, {"208 bytes", "too short"},
          "the quick brown fox jumps over the lazy dog and sees it; the quick brown fox jumps over the lazy dog and "
          "sees it; the quick brown fox jumps over the lazy dog and sees it; the quick brown fox jumps over.......");
  refuses({"--text=."}, {"directory"});
  refuses({"--text=/dev/zero"}, {"/dev/zero", "neither a regular file nor a pipe"});
}

BOOST_AUTO_TEST_CASE(sizes_that_will_not_do) {
  refuses({"--heads=3"}, {"--heads 3", "--width 16"});
  refuses({"--heads=0"}, {"--heads is 0"});
  refuses({"--width=-16"}, {"--width is -16"});
  for (const std::string name : {"--steps", "--seeds", "--threads", "--jobs", "--bigram-steps", "--held-out",
                                 "--layers", "--context", "--batch", "--deadline"})
    for (const std::string value : {"0", "-1"})
      refuses({name + "=" + value}, {name + " is " + value, "expected a positive number"});
  refuses({"--held-out=40"}, {"--held-out is 40", "multiple of 16"});
  refuses({"--threads=100000"}, {"--threads is 100000", "at most 1024"});
  refuses({"--jobs=100000"}, {"--jobs is 100000", "at most 1024"});
  refuses({"--seeds=1000000000000"}, {"--seeds is 1000000000000", "at most 1000"});
  refuses({"--steps=99999999999999999999"}, {"--steps"});
  refuses({"--learning-rate=inf"}, {"--learning-rate is inf"});
  refuses({"--deadline=nan"}, {"--deadline is nan"});
  refuses({"--out", ""}, {"--out is empty"});
  refuses({"--learning-rate=0"}, {"--learning-rate is 0", "positive"});
  refuses({"--learning-rate=-0.1"}, {"--learning-rate is -0.1"});
  refuses({"--learning-rate=nan"}, {"--learning-rate is nan"});
  refuses({"--sgd-learning-rate=0"}, {"--sgd-learning-rate is 0"});
  refuses({"--only=perceptron"}, {"perceptron"});
}

// At once, and what is needed beside what is there.
BOOST_AUTO_TEST_CASE(sizes_that_do_not_fit_into_memory) {
  const auto start = std::chrono::steady_clock::now();
  refuses({"--layers=1000000", "--width=1024"}, {"--layers 1000000", "need", "TB", "available"});
  refuses({"--width=100000000", "--heads=1"}, {"--width 100000000", "need", "EB", "available"});
  refuses({"--batch=100000000"}, {"--batch 100000000", "need", "TB", "available"});
  refuses({"--width=10000000000"}, {"--width is 10000000000", "at most 268435456"});
  refuses({"--layers=100000000000000"}, {"--layers is 100000000000000", "at most 268435456"});
  BOOST_TEST((std::chrono::steady_clock::now() - start < std::chrono::seconds(60)));
}

// Before anything is trained, though OrthoAdam's rung is the last one.
BOOST_AUTO_TEST_CASE(a_dense_rotation_that_will_not_fit) {
  refuses({"--rotation=dense", "--width=128"}, {"dense", "too large", "65536", "4096"});
  Ladder ladder;
  BOOST_TEST(ladder.run({"--rotation=dense", "--width=8", "--only=OrthoAdam RMS-S"}) == 0, ladder.err());
  for (const std::string& state : ladder.column("text", "state")) BOOST_TEST(state == "finished");
}

BOOST_AUTO_TEST_CASE(arguments_that_nobody_knows) {
  for (const Strings& arguments : {Strings{"--frobnicate"}, Strings{"--steps=many"}, Strings{"--rotation=spin"}}) {
    Ladder ladder;
    BOOST_TEST(ladder.run(arguments) == 2);
    BOOST_TEST(contains(ladder.err(), arguments[0].substr(0, arguments[0].find('='))), ladder.err());
    BOOST_TEST(split(ladder.err(), '\n').size() == 1, ladder.err());
  }
  Ladder ladder;
  BOOST_TEST(ladder.run({"--help"}) == 0);
  BOOST_TEST(contains(ladder.out(), "--learning-rate"));
}

BOOST_AUTO_TEST_SUITE_END()
