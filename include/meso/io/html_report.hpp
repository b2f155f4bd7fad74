#pragma once
#include <ctime>
#include <meso/core/check.hpp>
#include <meso/io/table.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meso::io {

/// Text for HTML, in an element or a quoted attribute.
inline std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// "2025-01-31 17:05 UTC", now.
inline std::string current_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char buffer[64];
  return std::string(buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M UTC", &parts));
}

/// One HTML page that needs no other file: facts, paragraphs, tables and SVG pictures in the order in which they were
/// added. All text is escaped; SVG goes in as it is, so pass only files of your own making.
class HtmlReport {
 public:
  explicit HtmlReport(std::string title) : title_(std::move(title)) {}

  void heading(std::string_view text) { body_ += "<h2>" + html_escaped(text) + "</h2>\n"; }
  void subheading(std::string_view text) { body_ += "<h3>" + html_escaped(text) + "</h3>\n"; }
  void paragraph(std::string_view text) { body_ += "<p>" + html_escaped(text) + "</p>\n"; }

  /// Two-column list: command line, date, compiler, machine.
  void facts(const std::vector<std::pair<std::string, std::string>>& entries) {
    body_ += "<dl>\n";
    for (const auto& [name, value] : entries)
      body_ += "<dt>" + html_escaped(name) + "</dt><dd>" + html_escaped(value) + "</dd>\n";
    body_ += "</dl>\n";
  }

  /// The first column stays in place while a wide table scrolls.
  void table(const Table& table, std::string_view caption = {}) {
    body_ += "<div class=\"scroll\"><table>\n";
    if (!caption.empty()) body_ += "<caption>" + html_escaped(caption) + "</caption>\n";
    body_ += "<thead><tr>";
    const auto cell = [&](const char* element, const std::string& text, Align align) {
      body_ += message("<", element, align == Align::left ? " class=\"left\">" : ">", html_escaped(text), "</", element,
                       ">");
    };
    for (const Column& column : table.columns()) cell("th", column.heading, column.align);
    body_ += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows()) {
      body_ += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i) cell(i ? "td" : "th", row[i], table.columns()[i].align);
      body_ += "</tr>\n";
    }
    body_ += "</tbody></table></div>\n";
  }

  /// An SVG document as text, and what it shows, for its tooltip and for screen readers. Its prologue is dropped and
  /// its ids get a prefix of their own, because all pictures of a page share one name space.
  void svg(std::string_view document, std::string_view title, std::string_view caption = {}) {
    const std::size_t start = document.find("<svg");
    if (start == std::string_view::npos) return;
    std::string picture(document.substr(start));
    const std::string prefix = message("p", ++pictures_, "-");
    for (const std::string_view mark : {" id=\"", " id='", "href=\"#", "href='#", "url(#"})
      for (std::size_t at = 0; (at = picture.find(mark, at)) != std::string::npos; at += prefix.size())
        picture.insert(at += mark.size(), prefix);
    const std::size_t open = picture.find("<title>"), close = picture.find("</title>");
    if (open != std::string::npos && close != std::string::npos && open < close)
      picture.replace(open + 7, close - open - 7, html_escaped(title));
    body_ += "<figure>\n" + picture;
    if (!caption.empty()) body_ += "<figcaption>" + html_escaped(caption) + "</figcaption>\n";
    body_ += "</figure>\n";
  }

  std::string html() const {
    return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
           html_escaped(title_) + "</title>\n<style>\n" + style + "</style>\n</head>\n<body>\n<h1>" +
           html_escaped(title_) + "</h1>\n" + body_ + "</body>\n</html>\n";
  }

 private:
  static constexpr const char* style =
      "body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:75rem;margin:0 auto;padding:1rem}\n"
      "h1{font-size:1.6rem;line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}\n"
      "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.9rem}\n"
      "dt{color:#666}dd{margin:0;overflow-wrap:anywhere}\n"
      ".scroll{overflow-x:auto}\n"
      "table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;margin:.5rem 0}\n"
      "caption{text-align:left;color:#666;padding-bottom:.3rem}\n"
      "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e4e4e4}\n"
      "td{white-space:nowrap}thead th{vertical-align:bottom;border-bottom:2px solid #999}\n"
      ".left{text-align:left}\n"
      "th:first-child{position:sticky;left:0;background:#fff;font-weight:600;min-width:8rem}\n"
      "figure{margin:1rem 0}figure svg{width:100%;max-width:900px;height:auto}\n"
      "figcaption{color:#666;font-size:.9rem}\n";

  std::string title_;
  std::string body_;
  int pictures_ = 0;
};

}  // namespace meso::io
