#include <boost/test/unit_test.hpp>
#include <meso/train/data.hpp>
#include <meso/train/tasks/bigram_backcopy.hpp>

using namespace meso;

namespace {
const std::string text =
    "it was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it "
    "was the epoch of belief, it was the epoch of incredulity";
}

BOOST_AUTO_TEST_SUITE(data)

BOOST_AUTO_TEST_CASE(windows_are_followed_by_their_targets) {
  const TokenStream stream = TokenStream::from_bytes(text);
  BOOST_TEST(stream.size() == static_cast<Index>(text.size()));
  BOOST_TEST(stream.train().size() + stream.validation().size() == text.size());
  Batch batch, same, other;
  stream.sample(1, 4, 3, 16, batch);
  stream.sample(1, 4, 3, 16, same);
  stream.sample(1, 5, 3, 16, other);
  BOOST_TEST(batch.tokens == same.tokens);
  BOOST_TEST(batch.tokens != other.tokens);
  for (std::size_t i = 0; i < 3; ++i) {
    std::string window;
    for (std::size_t t = 0; t < 16; ++t) {
      window += static_cast<char>(batch.tokens[i * 16 + t]);
      if (t < 15) BOOST_TEST(batch.targets[i * 16 + t] == batch.tokens[i * 16 + t + 1]);
    }
    window += static_cast<char>(batch.targets[i * 16 + 15]);
    BOOST_TEST(text.substr(0, stream.train().size()).find(window) != std::string::npos);
  }
  stream.validation_batch(0, 1, 15, batch);
  BOOST_TEST(batch.tokens[0] == static_cast<Token>(text[stream.train().size()]));
}

BOOST_AUTO_TEST_CASE(bytes_above_127_are_tokens) {
  const TokenStream stream = TokenStream::from_bytes("\xC3\xA9t\xC3\xA9 d'\xC3\xA9t\xC3\xA9");
  BOOST_TEST(stream.train()[0] == 0xC3);
}

BOOST_AUTO_TEST_CASE(short_texts_are_refused) {
  Batch batch;
  BOOST_CHECK_THROW(TokenStream::from_bytes(""), std::invalid_argument);
  BOOST_CHECK_THROW(TokenStream::from_bytes("abcdefghij").sample(0, 0, 1, 9, batch), std::invalid_argument);
  BOOST_CHECK_THROW(TokenStream::from_bytes("abcdefghij").validation_batch(0, 1, 5, batch), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(bigram_backcopy_follows_its_rules) {
  const BigramBackcopy task(text);
  Batch batch, same;
  task.sample(3, 2, 8, 40, batch);
  task.sample(3, 2, 8, 40, same);
  BOOST_TEST(batch.tokens == same.tokens);
  Index copies = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    BOOST_TEST(batch.tokens[i * 40] == BigramBackcopy::start);
    BOOST_TEST(!task.is_trigger(batch.tokens[i * 40 + 1]));
    for (std::size_t t = 0; t < 40; ++t) {
      const std::size_t at = i * 40 + t;
      BOOST_TEST((batch.tokens[at] >= 0 && batch.tokens[at] < task.vocabulary()));
      BOOST_TEST((t == 0 || batch.tokens[at] != BigramBackcopy::start));
      if (t + 1 < 40) BOOST_TEST(batch.targets[at] == batch.tokens[at + 1]);
      if (task.is_trigger(batch.tokens[at])) {
        BOOST_TEST(batch.targets[at] == batch.tokens[at - 1]);
        BOOST_TEST(!task.is_trigger(batch.tokens[at - 1]));
        ++copies;
      }
    }
  }
  BOOST_TEST(copies > 0);
}

BOOST_AUTO_TEST_CASE(triggers_are_the_most_frequent_symbols) {
  const BigramBackcopy task("aaAaabbBbcccddeef");
  BOOST_TEST(task.vocabulary() == 7);
  BOOST_TEST(task.triggers()[0] == 1);
  BOOST_TEST(task.triggers()[1] == 2);
  BOOST_TEST(task.triggers()[2] == 3);
  // Runs of other bytes are one space: space, a, b, c, d and the start.
  BOOST_TEST(BigramBackcopy("a.., b -- c d\xC3\xA9 a").vocabulary() == 6);
  BOOST_CHECK_THROW(BigramBackcopy("abab, abab"), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
