#include <signal.h>

#include <boost/test/unit_test.hpp>
#include <limits>
#include <meso/io/interrupt.hpp>
#include <stdexcept>

namespace {

int received_by_own_handler = 0;
void own_handler(int signal) { received_by_own_handler = signal; }

// The tests may run in a background job, where SIGINT is ignored from the start.
struct OwnHandlers {
  OwnHandlers() {
    received_by_own_handler = 0;
    old_int = ::signal(SIGINT, own_handler);
    old_term = ::signal(SIGTERM, own_handler);
  }
  ~OwnHandlers() {
    ::signal(SIGINT, old_int);
    ::signal(SIGTERM, old_term);
  }
  void (*old_int)(int);
  void (*old_term)(int);
};

void (*current_handler(int signal))(int) {
  struct ::sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

BOOST_FIXTURE_TEST_SUITE(io_interrupt, OwnHandlers)

BOOST_AUTO_TEST_CASE(a_signal_raises_the_flag_and_the_old_handlers_come_back) {
  for (const int signal : {SIGINT, SIGTERM}) {
    {
      const meso::io::Interrupt interrupt;
      BOOST_TEST(!interrupt.requested());  // also after an object that was interrupted
      BOOST_TEST(interrupt.signal() == 0);
      ::raise(signal);
      BOOST_TEST(interrupt.requested());
      BOOST_TEST(interrupt.signal() == signal);
      BOOST_TEST(received_by_own_handler == 0);
    }
    ::raise(signal);
    BOOST_TEST(received_by_own_handler == signal);
    received_by_own_handler = 0;
  }
}

BOOST_AUTO_TEST_CASE(the_second_signal_has_its_usual_effect) {
  const meso::io::Interrupt interrupt;
  ::raise(SIGINT);
  BOOST_TEST((current_handler(SIGINT) == SIG_DFL));
  BOOST_TEST((current_handler(SIGTERM) != SIG_DFL));
}

BOOST_AUTO_TEST_CASE(an_ignored_signal_stays_ignored) {
  ::signal(SIGINT, SIG_IGN);
  const meso::io::Interrupt interrupt;
  ::raise(SIGINT);
  BOOST_TEST(!interrupt.requested());
  ::raise(SIGTERM);
  BOOST_TEST(interrupt.requested());
}

BOOST_AUTO_TEST_CASE(one_at_a_time) {
  {
    const meso::io::Interrupt interrupt;
    BOOST_CHECK_THROW(meso::io::Interrupt{}, std::logic_error);
    BOOST_CHECK_THROW(meso::io::Interrupt{}, std::logic_error);
    ::raise(SIGINT);
    BOOST_TEST(interrupt.requested());
  }
  const meso::io::Interrupt next;
  BOOST_TEST(!next.requested());
}

BOOST_AUTO_TEST_CASE(deadlines) {
  const meso::io::Deadline never, passed(0), later(1000);
  BOOST_TEST(!never.passed());
  BOOST_TEST(never.left() == std::numeric_limits<double>::infinity());
  BOOST_TEST(passed.passed());
  BOOST_TEST(!later.passed());
  BOOST_TEST(later.left() <= 1000);
  BOOST_TEST(later.left() > 900);
  BOOST_TEST(later.elapsed() >= 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
