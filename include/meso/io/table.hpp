#pragma once
#include <algorithm>
#include <charconv>
#include <cmath>
#include <meso/core/check.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meso::io {

/// What stands for a value that was not measured.
inline constexpr const char* missing = "–";

/// `digits` significant digits, trailing zeros kept, in plain notation from 0.001 to a million and as 1.23e-05 outside.
/// Digits before the point are never rounded away (12345.6 gives 12346). NaN gives "–". Independent of the locale.
inline std::string format_number(double value, int digits = 4) {
  if (std::isnan(value)) return missing;
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return "0";
  char buffer[400];
  const auto print = [&](std::chars_format form, int precision) {
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, form, precision).ptr);
  };
  std::string scientific = print(std::chars_format::scientific, digits - 1);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));  // after rounding: 9.9996 counts as 10
  if (exponent < -3 || exponent >= 6) return scientific;
  return print(std::chars_format::fixed, (std::max)(0, digits - 1 - exponent));
}

/// A fixed number of decimals; NaN gives "–".
inline std::string format_fixed(double value, int decimals) {
  if (std::isnan(value)) return missing;
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals);
  return std::string(buffer, end.ptr);
}

/// A share in percent: "49%", and below 10 % with one decimal, "0.3%". NaN gives "–".
inline std::string format_percent(double share) {
  if (std::isnan(share)) return missing;
  return format_fixed(100 * share, std::abs(100 * share) < 9.95 ? 1 : 0) + "%";
}

/// Number of characters of UTF-8 text, each taken as one terminal column.
inline std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// The text with line breaks for spaces, so that lines keep within `width` where words allow.
inline std::string wrap(std::string_view text, std::size_t width) {
  std::string out, line;
  while (!text.empty()) {
    const std::size_t end = (std::min)(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix((std::min)(end + 1, text.size()));
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) (out += line + '\n', line.clear());
    (line += line.empty() ? "" : " ") += word;
  }
  return out + line;
}

enum class Align { left, right };

/// Heading (line breaks allowed), alignment, and the least width for rows that are printed one by one.
struct Column {
  std::string heading{};
  Align align = Align::right;
  std::size_t width = 0;
};

/// Small table of ready-made texts that prints aligned on a terminal and as Markdown.
/// Throws: std::invalid_argument when a row has a wrong number of cells.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells) {
    check(cells.size() == columns_.size(), "Table: a row of ", cells.size(), " cells in a table of ", columns_.size(),
          " columns");
    rows_.push_back(std::move(cells));
  }

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }

  /// The whole table, columns as wide as their widest cell.
  std::string text() const {
    const std::vector<std::size_t> widths = this->widths(rows_.size());
    std::string out = head(widths);
    for (const auto& row : rows_) out += line(row, widths);
    return out;
  }

  /// Heading and rule, then rows one by one while the table is still growing: their widths are those of the columns
  /// (Column::width, or the heading's), and a longer cell pushes the rest of its line.
  std::string text_head() const { return head(widths(0)); }
  std::string text_row(std::size_t i) const { return line(rows_.at(i), widths(0)); }

  /// GitHub Markdown, aligned also as plain text; "|" is escaped.
  std::string markdown() const {
    std::vector<std::vector<std::string>> lines(1);
    for (const Column& column : columns_) lines[0].push_back(escaped(column.heading));
    for (const auto& row : rows_) {
      lines.emplace_back();
      for (const std::string& cell : row) lines.back().push_back(escaped(cell));
    }
    std::vector<std::size_t> widths(columns_.size(), 3);
    for (const auto& cells : lines)
      for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = (std::max)(widths[i], display_width(cells[i]));
    std::string out;
    for (std::size_t row = 0; row < lines.size(); ++row) {
      for (std::size_t i = 0; i < widths.size(); ++i)
        out += "| " + aligned(lines[row][i], widths[i], columns_[i].align) + " ";
      out += "|\n";
      if (row != 0) continue;
      for (std::size_t i = 0; i < widths.size(); ++i) {
        const std::string line(widths[i] + 1, '-');
        out += columns_[i].align == Align::right ? "|" + line + ":" : "|:" + line;
      }
      out += "|\n";
    }
    return out;
  }

 private:
  static std::string aligned(const std::string& text, std::size_t width, Align align) {
    const std::size_t used = display_width(text);
    const std::string space(width > used ? width - used : 0, ' ');
    return align == Align::right ? space + text : text + space;
  }
  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  }
  static std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t start = 0, end = 0; end != std::string::npos; start = end + 1)
      lines.push_back(text.substr(start, (end = text.find('\n', start)) - start));
    return lines;
  }

  std::vector<std::size_t> widths(std::size_t rows) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      out.push_back(columns_[i].width);
      for (const std::string& part : split_lines(columns_[i].heading)) out[i] = (std::max)(out[i], display_width(part));
      for (std::size_t row = 0; row < rows; ++row) out[i] = (std::max)(out[i], display_width(rows_[row][i]));
    }
    return out;
  }
  std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i)
      (out += i ? "  " : "") += aligned(cells[i], widths[i], columns_[i].align);
    return out.erase(out.find_last_not_of(' ') + 1) + '\n';
  }
  std::string head(const std::vector<std::size_t>& widths) const {
    std::vector<std::vector<std::string>> parts;
    std::size_t height = 1, rule = 0;
    for (const Column& column : columns_) {
      parts.push_back(split_lines(column.heading));
      height = (std::max)(height, parts.back().size());
    }
    std::string out;
    for (std::size_t k = 0; k < height; ++k) {
      std::vector<std::string> cells;
      for (const auto& part : parts) {
        const std::size_t above = height - part.size();  // short headings sit at the bottom
        cells.push_back(k < above ? "" : part[k - above]);
      }
      out += line(cells, widths);
    }
    for (std::size_t i = 0; i < widths.size(); ++i) rule += widths[i] + (i ? 2 : 0);
    return out + std::string(rule, '-') + '\n';
  }

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace meso::io
