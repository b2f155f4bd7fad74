#pragma once
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <meso/io/table.hpp>
#include <sstream>
#include <string>

namespace meso::io {

namespace detail {

/// The number in a file that begins with one; infinity where there is none ("max").
inline double number_in(const std::filesystem::path& path) {
  double value = 0;
  return std::ifstream(path) >> value ? value : std::numeric_limits<double>::infinity();
}

/// The number behind `key` in a file of lines "key number"; 0 where there is none.
inline double number_of(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

/// What the control groups of this process leave: the least over its group and all those above.
inline double left_by_groups(const std::filesystem::path& root) {
  double left = std::numeric_limits<double>::infinity();
  const auto climb = [&](const std::filesystem::path& mount, std::string group, const char* limit, const char* usage,
                         const char* reclaimable) {
    for (;; group.resize(group.rfind('/'))) {
      const std::filesystem::path folder = mount / group.substr((std::min<std::size_t>)(1, group.size()));
      const double most = number_in(folder / limit), used = number_in(folder / usage);
      if (std::isfinite(most) && std::isfinite(used))
        left = (std::min)(left, most - used + number_of(folder / "memory.stat", reclaimable));
      if (group.rfind('/') == std::string::npos) return;
    }
  };
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // 0::/user.slice, or of version 1: 4:memory:/docker/…
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty())
      climb(root / "sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file");
    else if (("," + controllers + ",").find(",memory,") != std::string::npos)
      climb(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_inactive_file");
  }
  return left;
}

}  // namespace detail

/// Bytes that this process can still take without swapping: on Linux what the kernel counts as available (MemAvailable),
/// or less where a control group of the process leaves less; elsewhere all that is built in. Infinity where nobody says.
/// `root`: of the file system to ask.
inline double available_memory(const std::filesystem::path& root = "/") {
  const double infinity = std::numeric_limits<double>::infinity();
  double left = 1024 * detail::number_of(root / "proc/meminfo", "MemAvailable:");
  if (left == 0) {
    const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
    left = pages > 0 && size > 0 ? static_cast<double>(pages) * static_cast<double>(size) : infinity;
  }
  return (std::max)(0.0, (std::min)(left, detail::left_by_groups(root)));
}

/// "512 B", "24.6 GB", in powers of 1,000, three digits.
inline std::string format_bytes(double bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit < 6; ++unit) bytes /= 1000;
  return format_number(bytes, unit == 0 ? 1 : 3) + " " + units[unit];
}

}  // namespace meso::io
