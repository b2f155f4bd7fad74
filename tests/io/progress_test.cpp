#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/io/progress.hpp>
#include <sstream>
#include <string>

namespace {

using meso::io::format_duration;
using meso::io::Progress;

struct Fixture {
  double now = 100;
  std::ostringstream out;
  meso::io::ProgressConfig config(bool terminal) {
    return {.label = "run", .out = &out, .terminal = terminal, .columns = 99, .clock = [this] { return now; }};
  }
  std::string taken() {
    const std::string text = out.str();
    out.str("");
    return text;
  }
};

BOOST_FIXTURE_TEST_SUITE(io_progress, Fixture)

BOOST_AUTO_TEST_CASE(durations) {
  BOOST_TEST(format_duration(0.4) == "0:00");
  BOOST_TEST(format_duration(75) == "1:15");
  BOOST_TEST(format_duration(59.6) == "1:00");
  BOOST_TEST(format_duration(3700) == "1:01:40");
  BOOST_TEST(format_duration(-1) == "0:00");
  BOOST_TEST(format_duration(std::nan("")) == "–");
  BOOST_TEST(format_duration(std::numeric_limits<double>::infinity()) == "–");
}

BOOST_AUTO_TEST_CASE(plain_lines_come_at_most_every_ten_seconds_and_at_the_end) {
  Progress progress(100, config(false));
  now += 2;
  progress.update(1, 5.5, 4000);
  BOOST_TEST(taken() == "run  step 1/100  loss 5.500  2.00k tokens/s  0:02 elapsed, 3:18 left\n");
  now += 9;
  progress.update(5, 5, 20000);
  BOOST_TEST(taken() == "");
  now += 9;
  progress.update(10, 4.25, 40000);
  BOOST_TEST(taken() == "run  step 10/100  loss 4.250  2.00k tokens/s  0:20 elapsed, 3:00 left\n");
  now += 1;
  progress.update(100, 4, 400000);
  BOOST_TEST(taken() == "run  step 100/100  loss 4.000  19.0k tokens/s  0:21 elapsed, 0:00 left\n");
  progress.update(100, 4, 400000);  // the last step once
  progress.finish();
  BOOST_TEST(taken() == "");
}

BOOST_AUTO_TEST_CASE(a_terminal_line_is_rewritten_and_cleared) {
  Progress progress(1000, config(true));
  now += 1;
  progress.update(1, std::nan(""), 10);
  const std::string first = taken();
  BOOST_TEST(first == "\rrun  step 1/1000  loss –  10.0 tokens/s  0:01 elapsed, 16:39 left");
  now += 1;
  progress.update(500, 1.0, 20);
  const std::string second = taken();
  BOOST_TEST(second.substr(0, 5) == "\rrun ");
  BOOST_TEST(std::count(second.begin(), second.end(), '\n') == 0);
  BOOST_TEST(meso::io::display_width(second) >= meso::io::display_width(first));  // no rest of the longer line stays
  progress.finish();
  const std::string clear = taken();
  BOOST_TEST(clear.front() == '\r');
  BOOST_TEST(clear.back() == '\r');
  BOOST_TEST(clear.find_first_not_of("\r ") == std::string::npos);
  progress.finish();
  BOOST_TEST(taken() == "");
}

BOOST_AUTO_TEST_CASE(a_terminal_line_keeps_within_the_columns) {
  auto narrow = config(true);
  narrow.label = "κκκκκκκκκκκκκκκκκκκκκκκκκ";
  narrow.columns = 10;
  Progress progress(10, narrow);
  progress.update(1, 1.0, 10);
  BOOST_TEST(taken() == "\rκκκκκκκκκκ");
}

BOOST_AUTO_TEST_CASE(no_time_and_no_step_give_no_rate) {
  Progress progress(10, config(false));
  progress.update(0, 5.5, 0);
  BOOST_TEST(taken() == "run  step 0/10  loss 5.500  – tokens/s  0:00 elapsed, – left\n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
