#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <meso/io/file.hpp>
#include <stdexcept>
#include <string>

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
