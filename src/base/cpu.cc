#include "base/cpu.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sandglass {
namespace {

int AffinityCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// The quota of one cgroup directory in CPUs, or infinity. Version 2 writes "QUOTA PERIOD" or
// "max PERIOD" to cpu.max; version 1 uses two files and -1.
double QuotaOf(const std::string& directory) {
  std::string quota;
  double period = 0;
  if (std::ifstream file(directory + "/cpu.max"); file >> quota >> period && quota != "max") {
    return period > 0 ? std::atof(quota.c_str()) / period : HUGE_VAL;
  }
  double quota_us = -1;
  std::ifstream(directory + "/cpu.cfs_quota_us") >> quota_us;
  std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  return quota_us > 0 && period > 0 ? quota_us / period : HUGE_VAL;
}

// Calls visit(directory) for this process's cgroups that `controller` belongs to, and for their
// ancestors, below the file system `root`.
void ForEachCgroup(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string&)>& visit) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::vector<std::string> mounts = {""};
    if (!controllers.empty()) {
      if (("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
      // Mounted under the names of all its controllers, with a link for each.
      mounts = {"/" + controllers, "/" + controller};
    }
    std::string path = line.substr(second + 1);
    while (true) {
      for (const std::string& mount : mounts) visit(root + "/sys/fs/cgroup" + mount + path);
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
}

// The tightest quota of this process's cgroup and of its ancestors.
double CgroupQuotaCpus(const std::string& root) {
  double quota = HUGE_VAL;
  ForEachCgroup(root, "cpu",
                [&](const std::string& directory) { quota = std::min(quota, QuotaOf(directory)); });
  return quota;
}

// Bytes left below the limit of one cgroup directory, or nothing if it has none. Version 2 writes
// memory.max ("max" without a limit), version 1 memory.limit_in_bytes.
std::optional<int64_t> MemoryLeftOf(const std::string& directory) {
  int64_t limit = 0, used = 0;
  if (std::ifstream(directory + "/memory.max") >> limit) {
    if (std::ifstream(directory + "/memory.current") >> used)
      return std::max<int64_t>(0, limit - used);
  } else if (std::ifstream(directory + "/memory.limit_in_bytes") >> limit) {
    if (std::ifstream(directory + "/memory.usage_in_bytes") >> used)
      return std::max<int64_t>(0, limit - used);
  }
  return std::nullopt;
}

// A "Name:   123 kB" line of a file in /proc.
std::optional<int64_t> Kilobytes(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace

int AvailableThreads(const std::string& root) {
  const double quota = CgroupQuotaCpus(root);
  const int cpus = AffinityCpus();
  return quota < cpus ? std::max(1, static_cast<int>(std::ceil(quota))) : cpus;
}

int ResolveThreads(int asked, const std::string& where) {
  constexpr int kMostThreads = 1024;
  if (asked < 0 || asked > kMostThreads) {
    throw Error(
        {.what = std::to_string(asked) + " threads make no sense",
         .where = where,
         .expected = "0 (all that this process may use) to " + std::to_string(kMostThreads)});
  }
  return asked > 0 ? asked : AvailableThreads();
}

std::string CpuModelName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::optional<int64_t> PeakMemoryBytes() {
  const std::optional<int64_t> kilobytes = Kilobytes("/proc/self/status", "VmHWM");
  if (!kilobytes) return std::nullopt;
  return *kilobytes * 1024;
}

std::optional<int64_t> AvailableMemoryBytes() {
  const std::optional<int64_t> system = Kilobytes("/proc/meminfo", "MemAvailable");
  if (!system) return std::nullopt;
  int64_t available = *system * 1024;
  ForEachCgroup("", "memory", [&](const std::string& directory) {
    available = std::min(available, MemoryLeftOf(directory).value_or(available));
  });
  return available;
}

bool ResetPeakMemory() {
  ::malloc_trim(0);
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace sandglass
