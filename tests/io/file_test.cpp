#include <signal.h>
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <meso/io/file.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "temporary_folder.hpp"

namespace {

using meso::io::read_file;
using meso::io::write_file_atomically;

auto says(const std::string& text) {
  return [text](const std::runtime_error& error) {
    BOOST_TEST_MESSAGE(error.what());
    return std::string(error.what()).find(text) != std::string::npos;
  };
}

BOOST_AUTO_TEST_SUITE(io_file)

BOOST_AUTO_TEST_CASE(bytes_survive_a_round_trip) {
  const TemporaryFolder folder;
  std::string bytes(200000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  write_file_atomically(folder / "a", bytes);
  BOOST_TEST((read_file(folder / "a") == bytes));
  write_file_atomically(folder / "a", "new");
  BOOST_TEST(read_file(folder / "a") == "new");
  using Iterator = std::filesystem::directory_iterator;
  BOOST_TEST(std::distance(Iterator(folder.path), Iterator()) == 1);  // no temporary file stays
}

BOOST_AUTO_TEST_CASE(reading_errors_name_the_path_and_the_reason) {
  const TemporaryFolder folder;
  const std::string path = (folder / "none.txt").string();
  BOOST_CHECK_EXCEPTION(read_file(path, "text file"), std::runtime_error,
                        says("cannot open text file " + path + ": No such file or directory"));
  std::ofstream{folder / "empty.txt"};
  BOOST_CHECK_EXCEPTION(read_file(folder / "empty.txt", "text file"), std::runtime_error,
                        says("text file " + (folder / "empty.txt").string() + " is empty"));
  BOOST_CHECK_EXCEPTION(read_file(folder.path), std::runtime_error,
                        says("cannot read file " + folder.path.string() + ": Is a directory"));
}

BOOST_AUTO_TEST_CASE(a_device_is_refused) {
  for (const char* path : {"/dev/zero", "/dev/null"})
    BOOST_CHECK_EXCEPTION(read_file(path, "text file"), std::runtime_error,
                          says(std::string("text file ") + path + " is neither a regular file nor a pipe"));
}

BOOST_AUTO_TEST_CASE(a_file_beyond_the_limit_is_refused_before_it_is_read) {
  const TemporaryFolder folder;
  const std::string path = (folder / "huge").string();
  std::ofstream{path};
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // takes no room on the disk
  BOOST_CHECK_EXCEPTION(read_file(path), std::runtime_error, says(path + " has 1.10 TB, expected at most "));
  BOOST_CHECK_EXCEPTION(read_file(path, "text file", 2e6), std::runtime_error, says("expected at most 2.00 MB"));
  std::filesystem::resize_file(path, 1000);
  BOOST_TEST(read_file(path, "file", 1000).size() == 1000U);
  BOOST_CHECK_THROW(read_file(path, "file", 999), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(a_pipe_is_read_up_to_the_limit) {
  const TemporaryFolder folder;
  const std::string path = (folder / "pipe").string();
  BOOST_TEST_REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto read = [&](std::size_t bytes) {
    // The reader may close first: the writer then gets an error and no signal.
    std::thread writer([&] { std::ofstream(path, std::ios::binary) << std::string(bytes, 'x'); });
    const auto wait = [](std::thread* t) { t->join(); };
    const std::unique_ptr<std::thread, decltype(wait)> joined(&writer, wait);
    return read_file(path, "text file", 100000);
  };
  void (*const old)(int) = ::signal(SIGPIPE, SIG_IGN);
  BOOST_TEST(read(100000).size() == 100000U);
  BOOST_CHECK_EXCEPTION(read(5000000), std::runtime_error,
                        says("text file " + path + " has more than 100 kB, expected at most 100 kB"));
  ::signal(SIGPIPE, old);
}

BOOST_AUTO_TEST_CASE(writing_errors_name_the_path_and_the_reason) {
  const TemporaryFolder folder;
  const std::string path = (folder / "no/such/folder").string();
  BOOST_CHECK_EXCEPTION(write_file_atomically(path, "x"), std::runtime_error,
                        says("cannot write " + path + ": No such file or directory"));
  BOOST_CHECK_EXCEPTION(write_file_atomically(folder.path, "x"), std::runtime_error, says("not a regular file"));
  // A rename would turn the device into a file.
  BOOST_CHECK_EXCEPTION(write_file_atomically("/dev/null", "x"), std::runtime_error, says("not a regular file"));
}

BOOST_AUTO_TEST_CASE(a_symbolic_link_stays_one) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  write_file_atomically(folder / "link", "new");
  BOOST_TEST(std::filesystem::is_symlink(folder / "link"));
  BOOST_TEST(read_file(folder / "target") == "new");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
