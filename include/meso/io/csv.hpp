#pragma once
#include <charconv>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <meso/io/file.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meso::io {

/// One CSV field. Text is quoted when it holds a comma, a quote or a line break, quotes doubled (RFC 4180).
inline std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted += '"';
}
inline std::string csv_cell(const std::string& text) { return csv_cell(std::string_view(text)); }
inline std::string csv_cell(const char* text) { return csv_cell(std::string_view(text)); }
inline std::string csv_cell(bool value) { return value ? "true" : "false"; }
template <std::integral T>
std::string csv_cell(T value) {
  return std::to_string(value);
}
/// The shortest decimal that reads back as the same number, whatever the locale. NaN means "not measured" and gives
/// an empty field, which spreadsheets, R and pandas read as missing; infinities give inf and -inf.
template <std::floating_point T>
std::string csv_cell(T value) {
  if (std::isnan(value)) return {};
  char buffer[64];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

/// One CSV line of fields that csv_cell made. It ends in "\n" alone, which every reader of RFC 4180 takes.
inline std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) (line += i ? "," : "") += cells[i];
  if (line.empty() && cells.size() == 1) line = "\"\"";  // a bare empty line would read as no row
  return line += '\n';
}

/// CSV file that grows row by row; each row is flushed, so that a killed run keeps those before it.
/// An existing file is overwritten.
/// Throws: std::runtime_error with the path and the reason when the file cannot be opened or written;
/// std::invalid_argument when a row's width differs from the header's.
class CsvWriter {
 public:
  CsvWriter(std::filesystem::path path, const std::vector<std::string>& header)
      : path_(std::move(path)), columns_(header.size()), file_(std::fopen(path_.c_str(), "wb")) {
    if (!file_) throw std::runtime_error(message("cannot open ", path_.string(), ": ", detail::reason(errno)));
    std::vector<std::string> cells;
    for (const std::string& name : header) cells.push_back(csv_cell(name));
    write(cells);
  }

  /// Appends one row of numbers, texts and truth values.
  template <class... Cells>
  void row(const Cells&... cells) {
    write({csv_cell(cells)...});
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  void write(const std::vector<std::string>& cells) {
    check(cells.size() == columns_, "CsvWriter: a row of ", cells.size(), " fields for ", path_.string(),
          ", which has ", columns_, " columns");
    const std::string line = csv_line(cells);
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0)
      throw std::runtime_error(message("cannot write ", path_.string(), ": ", detail::reason(errno)));
  }

  std::filesystem::path path_;
  std::size_t columns_;
  detail::File file_;
};

}  // namespace meso::io
