#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <meso/io/csv.hpp>
#include <stdexcept>
#include <string>

#include "temporary_folder.hpp"

namespace {

using meso::io::csv_cell;
using meso::io::csv_line;

BOOST_AUTO_TEST_SUITE(io_csv)

BOOST_AUTO_TEST_CASE(text_is_quoted_as_in_rfc_4180) {
  BOOST_TEST(csv_cell("plain text") == "plain text");
  BOOST_TEST(csv_cell("a,b") == "\"a,b\"");
  BOOST_TEST(csv_cell("say \"so\"") == "\"say \"\"so\"\"\"");
  BOOST_TEST(csv_cell(std::string("two\nlines")) == "\"two\nlines\"");
  BOOST_TEST(csv_cell("\r") == "\"\r\"");
  BOOST_TEST(csv_cell("") == "");
}

BOOST_AUTO_TEST_CASE(numbers_read_back_as_they_were) {
  for (const double x : {0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 123456789.125, 2.0 / 3e-7}) {
    BOOST_TEST(std::strtod(csv_cell(x).c_str(), nullptr) == x);
    BOOST_TEST(std::signbit(std::strtod(csv_cell(x).c_str(), nullptr)) == std::signbit(x));
  }
  BOOST_TEST(csv_cell(0.1f) == "0.1");  // the shortest form of the float, not of its double
  BOOST_TEST(csv_cell(-7) == "-7");
  BOOST_TEST(csv_cell(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  BOOST_TEST(csv_cell(true) == "true");
  BOOST_TEST(csv_cell(std::nan("")) == "");
  BOOST_TEST(csv_cell(-std::nan("")) == "");
  BOOST_TEST(csv_cell(-std::numeric_limits<float>::infinity()) == "-inf");
}

BOOST_AUTO_TEST_CASE(one_empty_field_is_not_an_empty_line) {
  BOOST_TEST(csv_line({""}) == "\"\"\n");
  BOOST_TEST(csv_line({"", ""}) == ",\n");
}

BOOST_AUTO_TEST_CASE(rows_are_there_before_the_file_is_closed) {
  const TemporaryFolder folder;
  meso::io::CsvWriter writer(folder / "log.csv", {"step", "loss, nats", "done"});
  BOOST_TEST(meso::io::read_file(folder / "log.csv") == "step,\"loss, nats\",done\n");
  writer.row(1, 2.5, false);
  writer.row(2, std::nan(""), true);
  BOOST_TEST(meso::io::read_file(folder / "log.csv") == "step,\"loss, nats\",done\n1,2.5,false\n2,,true\n");
  BOOST_CHECK_THROW(writer.row(3), std::invalid_argument);
  BOOST_CHECK_THROW(writer.row(3, 1.0, true, 0), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_opened_or_written_is_named) {
  const TemporaryFolder folder;
  const std::string path = (folder / "none/log.csv").string();
  BOOST_CHECK_EXCEPTION((meso::io::CsvWriter{path, {"a"}}), std::runtime_error, [&](const std::runtime_error& error) {
    return error.what() == "cannot open " + path + ": No such file or directory";
  });
  if (std::filesystem::exists("/dev/full"))  // every write to it fails
    BOOST_CHECK_EXCEPTION((meso::io::CsvWriter{"/dev/full", {"a"}}), std::runtime_error,
                          [](const std::runtime_error& error) {
                            return std::string(error.what()) == "cannot write /dev/full: No space left on device";
                          });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
