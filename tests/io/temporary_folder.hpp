#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

/// A fresh folder under the system's temporary one, removed at the end.
struct TemporaryFolder {
  TemporaryFolder() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           ("meso-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path / name; }

  std::filesystem::path path;
};
