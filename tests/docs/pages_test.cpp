#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

// What README.md and docs/features.md name must be there.
namespace {

namespace fs = std::filesystem;

const fs::path root = MESO_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  BOOST_TEST_REQUIRE(in.good(), path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The part in parentheses of every match.
std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) found.push_back((*at)[1]);
  return found;
}

BOOST_AUTO_TEST_SUITE(docs_pages)

BOOST_AUTO_TEST_CASE(the_readme_is_short) {
  const std::string readme = text_of(root / "README.md");
  BOOST_TEST(std::count(readme.begin(), readme.end(), '\n') <= 150);
}

// A figure of the README is one of the tables that a command has printed.
BOOST_AUTO_TEST_CASE(the_figures_of_the_readme_are_those_of_the_results) {
  const std::string results = text_of(root / "docs/results.md");
  const std::vector<std::string> figures = matches(text_of(root / "README.md"), "([0-9.]+ ± [0-9.]+)");
  BOOST_TEST(figures.size() >= 4U);
  for (const std::string& figure : figures) BOOST_TEST((results.find(" " + figure + " ") != std::string::npos), figure);
}

BOOST_AUTO_TEST_CASE(links_lead_somewhere) {
  std::vector<fs::path> pages{root / "README.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  for (const fs::path& page : pages)
    for (const std::string& link : matches(text_of(page), R"(\]\(([^)#\s]+\.[a-z]+|LICENSE)(#[^)]*)?\))"))
      if (link.find("://") == std::string::npos)
        BOOST_TEST(fs::exists(page.parent_path() / link), page << " links to " << link);
}

BOOST_AUTO_TEST_CASE(features_have_their_header_and_their_test) {
  const std::vector<std::string> rows = matches(text_of(root / "docs/features.md"), R"(\n(\| [^\n]*\|))");
  BOOST_TEST(rows.size() >= 30U);
  for (const std::string& row : rows) {
    for (const std::string& header : matches(row, R"(`([a-z0-9_/]+(\.hpp|/))`)"))
      BOOST_TEST((fs::exists(root / "include/meso" / header) || fs::exists(root / "tests" / header)), header);
    for (const std::string& test : matches(row, R"(`([a-z0-9_/]+_test\.cpp)`)"))
      BOOST_TEST(fs::exists(root / "tests" / test), test);
  }
}

BOOST_AUTO_TEST_CASE(examples_of_the_readme_are_there) {
  for (const std::string& example : matches(text_of(root / "README.md"), R"(`(examples/[a-z0-9_.]+)`)"))
    BOOST_TEST(fs::exists(root / example), example);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
