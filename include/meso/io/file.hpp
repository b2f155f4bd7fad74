#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <meso/core/check.hpp>
#include <meso/io/memory.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace meso::io {

namespace detail {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Text of an errno value, without strerror's shared buffer.
inline std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace detail

/// Bytes that read_file takes from a pipe, whose end nobody knows before.
inline constexpr double largest_pipe = 1e9;

/// The bytes of a file that must hold something: a regular file of at most `most` bytes, or a pipe of at most the lesser
/// of `most` and largest_pipe. A device may have no end, and is refused. `what` names its role in the messages: "text
/// file", "checkpoint".
/// Throws: std::runtime_error "cannot open text file X: No such file or directory", "cannot read …", "… X is empty",
/// "… X is neither a regular file nor a pipe", "… X has 5.00 GB, expected at most 1.00 GB".
inline std::string read_file(const std::filesystem::path& path, std::string_view what = "file",
                             double most = available_memory()) {
  const auto fail = [&](const auto&... parts) { throw std::runtime_error(message(parts...)); };
  const detail::File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail("cannot open ", what, " ", path.string(), ": ", detail::reason(errno));
  struct ::stat about {};
  if (::fstat(::fileno(file.get()), &about) != 0)
    fail("cannot read ", what, " ", path.string(), ": ", detail::reason(errno));
  const bool pipe = S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode);
  if (!pipe && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
    fail(what, " ", path.string(), " is neither a regular file nor a pipe");
  if (pipe) most = (std::min)(most, largest_pipe);
  const auto check_size = [&](double size, double shown, const char* has) {
    if (size > most)
      fail(what, " ", path.string(), has, format_bytes(shown), ", expected at most ", format_bytes(most));
  };
  const double size = static_cast<double>(about.st_size);
  if (S_ISREG(about.st_mode)) check_size(size, size, " has ");
  std::string text;
  char block[65536];
  for (std::size_t n; (n = std::fread(block, 1, sizeof block, file.get())) > 0;) {
    text.append(block, n);
    check_size(static_cast<double>(text.size()), most, " has more than ");
  }
  if (std::ferror(file.get())) fail("cannot read ", what, " ", path.string(), ": ", detail::reason(errno));
  if (text.empty()) fail(what, " ", path.string(), " is empty");
  return text;
}

/// Replaces a file as a whole: readers see the old text or the new one, never a part, also after a crash.
/// Writes a temporary file beside it, flushes it to the disk, and renames it. A symbolic link is followed.
/// Throws: std::runtime_error with the path and the reason; the old file is then untouched.
inline void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(message("cannot write ", path.string(), ": ", why));
  };
  std::error_code ignored;
  std::filesystem::path target = path;
  if (std::filesystem::exists(path, ignored)) {
    // A rename would replace /dev/stdout or a FIFO by a plain file.
    if (!std::filesystem::is_regular_file(path, ignored)) fail("not a regular file");
    target = std::filesystem::canonical(path, ignored);
    if (ignored) target = path;
  }
  const std::filesystem::path temporary = target.string() + message(".tmp-", ::getpid());
  detail::File file(std::fopen(temporary.c_str(), "wb"));
  if (!file) fail(detail::reason(errno));
  int error = 0;
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0 ||
      ::fsync(::fileno(file.get())) != 0)
    error = errno;
  if (std::fclose(file.release()) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error != 0) {
    std::filesystem::remove(temporary, ignored);
    fail(detail::reason(error));
  }
}

}  // namespace meso::io
