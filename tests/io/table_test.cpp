#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <meso/io/table.hpp>
#include <stdexcept>

namespace {

using namespace meso::io;

BOOST_AUTO_TEST_SUITE(io_table)

BOOST_AUTO_TEST_CASE(numbers_have_significant_digits) {
  BOOST_TEST(format_number(5.0) == "5.000");
  BOOST_TEST(format_number(5.21) == "5.210");
  BOOST_TEST(format_number(-43.219, 3) == "-43.2");
  BOOST_TEST(format_number(12345.6) == "12346");
  BOOST_TEST(format_number(999999.7, 7) == "999999.7");
  BOOST_TEST(format_number(1234567) == "1.235e+06");
  BOOST_TEST(format_number(0.0012345) == "0.001234");  // the double lies below the tie
  BOOST_TEST(format_number(0.0001234, 3) == "1.23e-04");
  BOOST_TEST(format_number(0) == "0");
  BOOST_TEST(format_number(9.9996) == "10.00");  // rounding makes a digit more
  BOOST_TEST(format_number(999999.9) == "1.000e+06");
  BOOST_TEST(format_number(0.00099999999) == "0.001000");
  BOOST_TEST(format_number(std::nan("")) == missing);
  BOOST_TEST(format_number(-std::numeric_limits<double>::infinity()) == "-inf");
}

BOOST_AUTO_TEST_CASE(shares_and_decimals) {
  BOOST_TEST(format_percent(0.49) == "49%");
  BOOST_TEST(format_percent(0.0034) == "0.3%");
  BOOST_TEST(format_percent(0.0996) == "10%");
  BOOST_TEST(format_percent(1) == "100%");
  BOOST_TEST(format_percent(std::nan("")) == missing);
  BOOST_TEST(format_fixed(0.6071, 3) == "0.607");
  BOOST_TEST(format_fixed(61.7, 0) == "62");
  BOOST_TEST(format_fixed(std::nan(""), 3) == missing);
}

BOOST_AUTO_TEST_CASE(words_wrap) {
  BOOST_TEST(wrap("softmax-1 Adam RMSNorm-S", 14) == "softmax-1 Adam\nRMSNorm-S");
  BOOST_TEST(wrap("incomprehensibilities of it", 5) == "incomprehensibilities\nof it");
  BOOST_TEST(wrap("", 5) == "");
}

BOOST_AUTO_TEST_CASE(text_is_aligned_by_characters_and_not_by_bytes) {
  Table table({{"rung", Align::left}, {"κ>1"}, {"two\nlines"}});
  table.add({"a", "3.00", "–"});
  table.add({"longer", "12.25", "1"});
  BOOST_TEST(table.text() ==
             "                 two\n"
             "rung      κ>1  lines\n"
             "--------------------\n"
             "a        3.00      –\n"
             "longer  12.25      1\n");
}

BOOST_AUTO_TEST_CASE(rows_one_by_one_have_fixed_widths) {
  Table table({{"rung", Align::left, 8}, {"ppl", Align::right, 5}});
  const std::string head = table.text_head();
  table.add({"a", "5.1"});
  table.add({"longer than that", "5.1"});
  BOOST_TEST(table.text_head() == head);
  BOOST_TEST(head == "rung        ppl\n---------------\n");
  BOOST_TEST(table.text_row(0) == "a           5.1\n");
  BOOST_TEST(table.text_row(1) == "longer than that    5.1\n");
}

BOOST_AUTO_TEST_CASE(markdown) {
  Table table({{"a|b", Align::left}, {"two\nlines"}});
  table.add({"x", "–"});
  BOOST_TEST(table.markdown() ==
             "| a\\|b | two lines |\n"
             "|:-----|----------:|\n"
             "| x    |         – |\n");
}

BOOST_AUTO_TEST_CASE(a_row_of_a_wrong_width_is_refused) {
  Table table({{"a"}, {"b"}});
  BOOST_CHECK_THROW(table.add({"1"}), std::invalid_argument);
  BOOST_TEST(table.text() == "a  b\n----\n");  // a table without rows prints
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
