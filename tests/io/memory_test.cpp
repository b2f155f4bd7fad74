#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <meso/io/memory.hpp>
#include <string>

#include "temporary_folder.hpp"

namespace {

using meso::io::available_memory;
using meso::io::format_bytes;

/// A root with files of the kernel's.
struct Root : TemporaryFolder {
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  void put_meminfo() const {
    put("proc/meminfo", "MemTotal:       4000 kB\nMemFree:         100 kB\nMemAvailable:   3000 kB\n");
  }
};

BOOST_AUTO_TEST_SUITE(io_memory)

BOOST_AUTO_TEST_CASE(this_machine_has_some) {
  BOOST_TEST(available_memory() > 1e6);
  BOOST_TEST(available_memory() < 1e16);
}

BOOST_AUTO_TEST_CASE(what_the_kernel_counts_as_available) {
  const Root root;
  root.put_meminfo();
  BOOST_TEST(available_memory(root.path) == 3000 * 1024);
}

BOOST_AUTO_TEST_CASE(all_of_the_memory_where_there_is_no_proc) {
  const Root root;
  BOOST_TEST(available_memory(root.path) >= available_memory());
  BOOST_TEST(available_memory(root.path) < std::numeric_limits<double>::infinity());
}

// 2,000,000 − 1,500,000 used, of which 300,000 are a file's pages; the group above leaves more.
BOOST_AUTO_TEST_CASE(a_control_group_of_version_2) {
  const Root root;
  root.put_meminfo();
  root.put("proc/self/cgroup", "0::/user.slice/job\n");
  root.put("sys/fs/cgroup/user.slice/job/memory.max", "2000000\n");
  root.put("sys/fs/cgroup/user.slice/job/memory.current", "1500000\n");
  root.put("sys/fs/cgroup/user.slice/job/memory.stat", "anon 1200000\nfile 300001\ninactive_file 300000\n");
  root.put("sys/fs/cgroup/user.slice/memory.max", "max\n");
  root.put("sys/fs/cgroup/user.slice/memory.current", "1600000\n");
  BOOST_TEST(available_memory(root.path) == 800000);
  // The group above leaves less.
  root.put("sys/fs/cgroup/user.slice/memory.max", "1700000\n");
  BOOST_TEST(available_memory(root.path) == 100000);
  // Used beyond the limit.
  root.put("sys/fs/cgroup/user.slice/memory.max", "1500000\n");
  BOOST_TEST(available_memory(root.path) == 0);
}

// In a container the path of the group is the host's, and its files lie at the mount.
BOOST_AUTO_TEST_CASE(a_container_of_version_1) {
  const Root root;
  root.put_meminfo();
  root.put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/1a2b\n0::/\n");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n");
  root.put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
  BOOST_TEST(available_memory(root.path) == 650000);
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  BOOST_TEST(available_memory(root.path) == 3000 * 1024);
}

BOOST_AUTO_TEST_CASE(bytes_as_text) {
  BOOST_TEST(format_bytes(0) == "0 B");
  BOOST_TEST(format_bytes(512) == "512 B");
  BOOST_TEST(format_bytes(999.6) == "1.00 kB");
  BOOST_TEST(format_bytes(24.56e9) == "24.6 GB");
  BOOST_TEST(format_bytes(8.4e12) == "8.40 TB");
  BOOST_TEST(format_bytes(1e30) == "1.00e+12 EB");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
