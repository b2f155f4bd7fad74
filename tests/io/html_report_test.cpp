#include <boost/test/unit_test.hpp>
#include <meso/io/html_report.hpp>
#include <string>

namespace {

using namespace meso::io;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

BOOST_AUTO_TEST_SUITE(io_html_report)

BOOST_AUTO_TEST_CASE(everything_is_escaped) {
  HtmlReport page("a < b & \"c\"");
  page.facts({{"command", "run --x='<script>'"}});
  page.heading("h<");
  page.subheading("s<");
  page.paragraph("p<");
  Table table({{"κ > 1", Align::left}, {"two\nlines"}});
  table.add({"<b>", "1"});
  page.table(table, "c<");
  const std::string html = page.html();
  for (const char* part :
       {"<title>a &lt; b &amp; &quot;c&quot;</title>", "<h1>a &lt; b", "<dd>run --x=&#39;&lt;script&gt;&#39;</dd>",
        "<h2>h&lt;</h2>", "<h3>s&lt;</h3>", "<p>p&lt;</p>", "<caption>c&lt;</caption>",
        "<th class=\"left\">κ &gt; 1</th>", "<th class=\"left\">&lt;b&gt;</th><td>1</td>"})
    BOOST_TEST(holds(html, part), part << " is missing in\n" << html);
  BOOST_TEST(!holds(html, "<script"));
}

BOOST_AUTO_TEST_CASE(a_page_without_anything_is_a_page) {
  const std::string html = HtmlReport("empty").html();
  BOOST_TEST(html.substr(0, 15) == "<!DOCTYPE html>");
  BOOST_TEST(holds(html, "width=device-width"));
  BOOST_TEST(holds(html, "<h1>empty</h1>"));
  BOOST_TEST(!holds(html, "http"));  // needs nothing else
}

BOOST_AUTO_TEST_CASE(pictures_keep_their_ids_apart) {
  const std::string svg =
      "<?xml version=\"1.0\"?>\n<svg><title>Gnuplot</title><g id=\"a\"/><path id='b'/><use href='#b'/>"
      "<use xlink:href=\"#a\" fill=\"url(#b)\"/></svg>";
  HtmlReport page("two");
  page.svg(svg, "loss < 1");
  page.svg(svg, "other", "caption");
  page.svg("not a picture", "none");
  const std::string html = page.html();
  BOOST_TEST(!holds(html, "<?xml"));
  BOOST_TEST(holds(html,
                   "<figure>\n<svg><title>loss &lt; 1</title><g id=\"p1-a\"/><path id='p1-b'/><use href='#p1-b'/>"
                   "<use xlink:href=\"#p1-a\" fill=\"url(#p1-b)\"/></svg></figure>"));
  BOOST_TEST(holds(html, "<title>other</title><g id=\"p2-a\"/>"));
  BOOST_TEST(holds(html, "<figcaption>caption</figcaption>"));
  BOOST_TEST(!holds(html, "not a picture"));
}

BOOST_AUTO_TEST_CASE(the_date_has_its_form) {
  const std::string date = current_date();
  BOOST_TEST(date.size() == 20u);
  BOOST_TEST(date.substr(16) == " UTC");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
