#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <meso/io/npy.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temporary_folder.hpp"

namespace {

using meso::Index;
using meso::io::parse_npy;
using meso::io::read_npy;
using Shape = std::vector<Index>;

const std::string two_by_three = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";

/// The bytes of a file with this header, padded as NumPy pads it.
std::string npy(std::string header, const std::string& data, int version = 1) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (std::size_t i = 0; i < prefix - 8; ++i) bytes += static_cast<char>(header.size() >> 8 * i & 0xFF);
  return bytes + header + data;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string of(const std::string& type, const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

const std::vector<double> six = {1, -2, 0.5, 1e300, -0.0, 6};

auto says(const std::string& text) {
  return [text](const std::runtime_error& error) {
    BOOST_TEST_MESSAGE(error.what());
    return std::string(error.what()).find(text) != std::string::npos;
  };
}

template <class T = double>
void rejects(const std::string& bytes, const std::string& text) {
  BOOST_CHECK_EXCEPTION(parse_npy<T>(bytes, "weights.npy"), std::runtime_error, says("weights.npy" + text));
}

BOOST_AUTO_TEST_SUITE(io_npy)

BOOST_AUTO_TEST_CASE(a_file_comes_back) {
  const TemporaryFolder folder;
  meso::io::write_file_atomically(folder / "a.npy", npy(two_by_three, raw(six)));
  const auto x = read_npy<double>(folder / "a.npy");
  BOOST_TEST((x.shape == Shape{2, 3}));
  BOOST_TEST((x.values == six));
  BOOST_TEST(x.view().rows == 2);
  BOOST_TEST(x.view().cols == 3);
  BOOST_TEST(x.view()(1, 0) == 1e300);
}

BOOST_AUTO_TEST_CASE(all_versions_spellings_and_shapes) {
  for (const int version : {1, 2, 3})
    BOOST_TEST((parse_npy<double>(npy(two_by_three, raw(six), version), "x").values == six));
  const std::string other = "{\"shape\":(3,2),\"fortran_order\":False,\"descr\":\"<f8\"}";
  BOOST_TEST((parse_npy<double>(npy(other, raw(six)), "x").shape == Shape{3, 2}));

  const auto cube = parse_npy<double>(npy(of("<f8", "(3, 1, 2)"), raw(six)), "x");
  BOOST_TEST((cube.shape == Shape{3, 1, 2}));
  BOOST_TEST(cube.view().rows == 3);
  BOOST_TEST(cube.view().cols == 2);
  const auto vector = parse_npy<double>(npy(of("<f8", "(6,)"), raw(six)), "x");
  BOOST_TEST(vector.view().rows == 1);
  BOOST_TEST(vector.view().cols == 6);
  const auto single = parse_npy<double>(npy(of("<f8", "()"), raw<double>({7})), "x");
  BOOST_TEST(single.shape.empty());
  BOOST_TEST(single.view()(0, 0) == 7.0);
  const auto empty = parse_npy<double>(npy(of("<f8", "(4, 0)"), ""), "x");
  BOOST_TEST((empty.shape == Shape{4, 0}));
  BOOST_TEST(empty.values.empty());
  BOOST_TEST(parse_npy<double>(npy(of("<f8", "(9223372036854775807, 9, 0)"), ""), "x").values.empty());
}

BOOST_AUTO_TEST_CASE(types_convert_within_their_kind) {
  const auto widened = parse_npy<double>(npy(of("<f4", "(2,)"), raw<float>({0.1f, -3})), "x");
  BOOST_TEST(widened.values[0] == static_cast<double>(0.1f));
  const double infinity = std::numeric_limits<double>::infinity();
  const auto rounded =
      parse_npy<float>(npy(of("<f8", "(4,)"), raw<double>({0.1, -infinity, std::nan(""), 1e-60})), "x");
  BOOST_TEST(rounded.values[0] == 0.1f);
  BOOST_TEST(rounded.values[1] == -std::numeric_limits<float>::infinity());
  BOOST_TEST(std::isnan(rounded.values[2]));
  BOOST_TEST(rounded.values[3] == 0.0f);
  BOOST_TEST(parse_npy<std::int64_t>(npy(of("<i4", "(1,)"), raw<std::int32_t>({-5})), "x").values[0] == -5);
  BOOST_TEST(parse_npy<std::int32_t>(npy(of("<i8", "(1,)"), raw<std::int64_t>({-5})), "x").values[0] == -5);

  rejects<float>(npy(of("<f8", "(2,)"), raw<double>({1, 1e39})), ": element 1 is 1e+39, too large for 32 bits");
  rejects<std::int32_t>(npy(of("<i8", "(2,)"), raw<std::int64_t>({1, 3000000000})),
                        ": element 1 is 3000000000, too large for 32 bits");
  rejects<double>(npy(of("<i8", "(1,)"), raw<std::int64_t>({1})), " holds elements of type <i8, expected <f4 or <f8");
  rejects<std::int32_t>(npy(two_by_three, raw(six)), " holds elements of type <f8, expected <i4 or <i8");
}

BOOST_AUTO_TEST_CASE(what_is_not_supported_says_so) {
  for (const std::string type : {">f8", "=f8", "|b1", "<f2", "<c16", "<U5", "|O", "", "<f88", "f8"})
    rejects(npy(of(type, "(2, 3)"), raw(six)),
            " holds elements of type '" + type + "', expected one of <f4, <f8, <i4, <i8");
  rejects(npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }", raw(six)),
          ": bad .npy header at its byte 10: a structured type");
  rejects(npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", raw(six)), " is in Fortran order");
  std::string bytes = npy(two_by_three, raw(six));
  bytes[6] = 4;
  rejects(bytes, ": .npy version 4.0 is unknown");
  bytes[6] = 1;
  bytes[7] = 1;
  rejects(bytes, ": .npy version 1.1 is unknown");
}

BOOST_AUTO_TEST_CASE(malformed_headers_say_where) {
  const auto bad = [](const std::string& text, const std::string& why) {
    rejects(npy(text, raw(six)), ": bad .npy header at its byte " + why);
  };
  bad("", "");
  bad("{", "");
  bad("[]", "0: expected '{'");
  bad("{}", "");
  bad("{'descr': '<f8', 'fortran_order': False, }", "");
  bad("{'descr': '<f8', 'shape': (2, 3), }", "");
  bad(two_by_three + two_by_three, "59: text after the dictionary");
  bad(two_by_three + std::string(1, '\0'), "59: text after the dictionary");
  bad("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", "25: key 'descr' twice");
  bad("{'descr': '<f8', 'extra': 1, 'fortran_order': False, 'shape': (2, 3), }", "25: unknown key 'extra'");
  bad("{'descr': '<f8' 'fortran_order': False, 'shape': (2, 3), }", "16: expected ',' or '}'");
  bad("{'descr' '<f8', 'fortran_order': False, 'shape': (2, 3), }", "9: expected ':'");
  bad("{'descr': '<f8", "10: a quoted text without an end");
  bad("{'descr': 8, 'fortran_order': False, 'shape': (2, 3), }", "10: expected a quoted text");
  bad("{'descr': '<f8', 'fortran_order': 0, 'shape': (2, 3), }", "34: expected True or False");
  for (const auto& [shape, why] :
       std::vector<std::pair<std::string, std::string>>{{"6", "expected '('"},
                                                        {"(6)", "a number in parentheses"},
                                                        {"(2, -3)", "expected a dimension, a number >= 0"},
                                                        {"(2 3)", "expected ',' or ')'"},
                                                        {"(2,, 3)", "expected a dimension"},
                                                        {"(2, 3", "expected"},
                                                        {"(,)", "expected a dimension"},
                                                        {"(2.0, 3)", "expected ',' or ')'"},
                                                        {"(99999999999999999999,)", "a dimension beyond 64 bits"},
                                                        {"(__import__('os'),)", "expected a dimension"}})
    BOOST_CHECK_EXCEPTION(parse_npy<double>(npy(of("<f8", shape), raw(six)), "x"), std::runtime_error, says(why));
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  BOOST_CHECK_EXCEPTION(parse_npy<double>(npy(of("<f8", many + ")"), raw(six)), "x"), std::runtime_error,
                        says("more than 64 dimensions"));
  // Nothing unprintable and nothing endless gets into a message.
  rejects(npy("{'" + std::string(500, '\a') + "': 1}", ""),
          ": bad .npy header at its byte 504: unknown key '????????????????????????...'");
}

BOOST_AUTO_TEST_CASE(the_size_must_be_what_the_shape_says) {
  rejects(npy(of("<f8", "(2, 4)"), raw(six)), ": the shape (2, 4) of <f8 needs 64 bytes, but 48 follow the header");
  rejects(npy(of("<f8", "(5,)"), raw(six)), ": the shape (5,) of <f8 needs 40 bytes, but 48 follow the header");
  rejects(npy(two_by_three, raw(six) + "x"), ": the shape (2, 3) of <f8 needs 48 bytes, but 49 follow the header");
  rejects(npy(of("<f8", "(0,)"), "x"), ": the shape (0,) of <f8 needs 0 bytes, but 1 follow the header");
  for (const std::string huge : {"(9223372036854775807,)", "(4294967296, 4294967296)", "(1152921504606846976, 2, 4)"})
    rejects(npy(of("<f8", huge), raw(six)), ": the shape " + huge + " is too large for any memory");
  // Promised but not there: refused before anything is allocated.
  rejects(npy(of("<f8", "(1000000000000,)"), raw(six)),
          ": the shape (1000000000000,) of <f8 needs 8000000000000 bytes");
  std::string bytes = npy(two_by_three, raw(six), 2);
  bytes[11] = '\x7F';
  rejects(bytes, ": the .npy header has 2130706");
}

BOOST_AUTO_TEST_CASE(files_that_are_none) {
  const TemporaryFolder folder;
  const std::string path = (folder / "none.npy").string();
  BOOST_CHECK_EXCEPTION(read_npy<float>(path), std::runtime_error,
                        says("cannot open npy file " + path + ": No such file or directory"));
  meso::io::write_file_atomically(path, "PK\x03\x04");
  BOOST_CHECK_EXCEPTION(read_npy<float>(path), std::runtime_error, says(path + " is not a .npy file"));
}

// Whatever happens to a file, it is refused, or read to an array whose shape fits its values.
BOOST_AUTO_TEST_CASE(every_truncation_and_every_changed_byte) {
  for (const int version : {1, 2}) {
    const std::string good = npy(two_by_three, raw(six), version);
    for (std::size_t size = 0; size < good.size(); ++size)
      BOOST_CHECK_THROW(parse_npy<double>(std::string_view(good).substr(0, size), "x"), std::runtime_error);
    int read = 0;
    for (std::size_t i = 0; i < good.size() - 48; ++i) {
      for (int value = 0; value < 256; ++value) {
        std::string bytes = good;
        bytes[i] = static_cast<char>(value);
        try {
          const auto x = parse_npy<double>(bytes, "x");
          if (x.view().size() != static_cast<Index>(x.values.size())) BOOST_TEST_ERROR("byte " << i << " = " << value);
          ++read;
        } catch (const std::runtime_error&) {
        }
      }
    }
    BOOST_TEST(read > 100);  // the unchanged file, once a byte
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
