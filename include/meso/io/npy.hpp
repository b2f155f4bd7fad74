#pragma once
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <meso/core/view.hpp>
#include <meso/io/file.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace meso::io {

/// What read_npy returns: float, double, std::int32_t or std::int64_t.
template <class T>
concept NpyScalar =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

/// An array of any number of dimensions, in C order: the last index runs fastest. No dimension: one value.
template <class T>
struct NpyArray {
  std::vector<Index> shape;
  std::vector<T> values;

  /// The last dimension as columns and all others together as rows; (1, n) of a vector, (1, 1) of a single value.
  View<const T> view() const {
    const Index cols = shape.empty() ? 1 : shape.back();
    Index rows = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return contiguous_view(values.data(), rows, cols);
  }
};

namespace detail {

/// What the header of a .npy file says.
struct NpyHeader {
  std::string type;
  bool fortran_order = false;
  std::vector<Index> shape;
};

/// Text from a file for a message: at most 24 characters, none of them unprintable.
inline std::string printable(std::string_view text) {
  std::string out(text.substr(0, 24));
  for (char& c : out)
    if (c < 32 || c > 126) c = '?';
  return text.size() > 24 ? out + "..." : out;
}

/// "(3, 4)", "(5,)", "()", as Python prints a tuple.
inline std::string tuple(const std::vector<Index>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

/// Reads the one Python literal that NumPy writes: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool have_type = false, have_order = false, have_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      bool& have = key == "descr" ? have_type : key == "fortran_order" ? have_order : have_shape;
      if (key != "descr" && key != "fortran_order" && key != "shape") fail("unknown key '", printable(key), "'");
      if (have) fail("key '", key, "' twice");
      have = true;
      if (key == "descr") {
        if (peek() == '[') fail("a structured type, expected a plain one");
        header.type = quoted();
      } else if (key == "fortran_order") {
        header.fortran_order = truth();
      } else {
        header.shape = dimensions();
      }
      if (!accept(',') && peek() != '}') fail("expected ',' or '}'");
    }
    if (peek() != '\0' || at_ != text_.size()) fail("text after the dictionary");
    if (!have_type || !have_order || !have_shape)
      fail("no key '", !have_type ? "descr" : !have_order ? "fortran_order" : "shape", "'");
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw std::runtime_error(message(name_, ": bad .npy header at its byte ", at_, ": ", parts...));
  }
  /// The next character that is no white space, '\0' at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (at_ >= text_.size() || peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("expected '", std::string(1, c), "'");
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("expected a quoted text");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a quoted text without an end");
    const std::string text(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return text;
  }
  bool truth() {
    peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("expected True or False");
  }
  std::vector<Index> dimensions() {
    std::vector<Index> shape;
    bool comma = false;
    expect('(');
    while (!accept(')')) {
      if (!shape.empty() && !comma) fail("expected ',' or ')'");
      if (const char c = peek(); c < '0' || c > '9') fail("expected a dimension, a number >= 0");
      Index size = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc()) fail("a dimension beyond 64 bits");
      at_ = static_cast<std::size_t>(end - text_.data());
      shape.push_back(size);
      if (shape.size() > 64) fail("more than 64 dimensions");
      comma = accept(',');
    }
    if (shape.size() == 1 && !comma) fail("a number in parentheses, expected a tuple such as (3,)");
    return shape;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

/// Values of type From from unaligned bytes, converted to T.
template <class T, class From>
std::vector<T> npy_values(std::string_view bytes, const std::string& name) {
  std::vector<T> values(bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    bool fits = true;
    if constexpr (sizeof(From) > sizeof(T)) {
      using Limits = std::numeric_limits<T>;
      if constexpr (std::is_integral_v<T>)
        fits = value >= Limits::lowest() && value <= (Limits::max)();
      else
        fits = !(std::abs(value) > (Limits::max)()) || std::isinf(value);
    }
    if (!fits)
      throw std::runtime_error(
          message(name, ": element ", i, " is ", value, ", too large for ", 8 * sizeof(T), " bits"));
    values[i] = static_cast<T>(value);
  }
  return values;
}

}  // namespace detail

/// The array in the bytes of a .npy file; `name` is what messages call it. See read_npy.
template <NpyScalar T>
NpyArray<T> parse_npy(std::string_view bytes, const std::string& name) {
  static_assert(std::endian::native == std::endian::little, "read_npy works on little-endian machines");
  const auto fail = [&](const auto&... parts) { throw std::runtime_error(message(name, parts...)); };
  constexpr std::string_view magic("\x93NUMPY", 6);
  if (bytes.substr(0, magic.size()) != magic) fail(" is not a .npy file: it does not begin with \\x93NUMPY");
  const auto byte = [&](std::size_t i) -> std::size_t {
    if (i >= bytes.size()) fail(": the file ends within the .npy header");
    return static_cast<unsigned char>(bytes[i]);
  };
  const std::size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    fail(": .npy version ", major, ".", minor, " is unknown, expected 1.0, 2.0 or 3.0");
  std::size_t length = byte(8) | byte(9) << 8, begin = 10;
  if (major > 1) {
    length |= byte(10) << 16 | byte(11) << 24;
    begin = 12;
  }
  if (length > bytes.size() - begin)
    fail(": the .npy header has ", length, " bytes, but only ", bytes.size() - begin, " follow");
  const detail::NpyHeader header = detail::NpyHeaderParser(bytes.substr(begin, length), name).parse();
  const std::string_view data = bytes.substr(begin + length);

  const bool real = header.type == "<f4" || header.type == "<f8", whole = header.type == "<i4" || header.type == "<i8";
  if (!real && !whole)
    fail(" holds elements of type '", detail::printable(header.type), "', expected one of <f4, <f8, <i4, <i8");
  if (std::is_floating_point_v<T> != real)
    fail(" holds elements of type ", header.type, ", expected ",
         std::is_floating_point_v<T> ? "<f4 or <f8" : "<i4 or <i8");
  if (header.fortran_order) fail(" is in Fortran order, expected C order (numpy.ascontiguousarray)");

  // A dimension of 0 makes an empty array whatever the others are.
  const bool empty = std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  const std::size_t width = header.type[2] == '4' ? 4 : 8;
  std::size_t needed = empty ? 0 : width;
  for (const Index size : header.shape) {
    if (needed > 0 &&
        static_cast<std::size_t>(size) > static_cast<std::size_t>((std::numeric_limits<Index>::max)()) / needed)
      fail(": the shape ", detail::tuple(header.shape), " is too large for any memory");
    needed *= static_cast<std::size_t>(size);
  }
  if (data.size() != needed)
    fail(": the shape ", detail::tuple(header.shape), " of ", header.type, " needs ", needed, " bytes, but ",
         data.size(), " follow the header");

  NpyArray<T> array;
  array.shape = header.shape;
  if constexpr (std::is_floating_point_v<T>)
    array.values = width == 4 ? detail::npy_values<T, float>(data, name) : detail::npy_values<T, double>(data, name);
  else
    array.values =
        width == 4 ? detail::npy_values<T, std::int32_t>(data, name) : detail::npy_values<T, std::int64_t>(data, name);
  return array;
}

/// The array of a NumPy .npy file: version 1.0, 2.0 or 3.0, little-endian, C order.
/// float and double read <f4 and <f8 (narrowing rounds to nearest), std::int32_t and std::int64_t read <i4 and <i8.
/// Source: numpy.lib.format. The header is parsed as text and never evaluated; sizes are checked against the file
/// before anything is allocated for them.
/// Throws: std::runtime_error that names the file and the offence: no such file, another type, order or version, a
/// malformed header, a shape that is not what the file holds (truncated or too long), a value that T cannot hold.
template <NpyScalar T>
NpyArray<T> read_npy(const std::filesystem::path& path) {
  return parse_npy<T>(read_file(path, "npy file"), path.string());
}

}  // namespace meso::io
