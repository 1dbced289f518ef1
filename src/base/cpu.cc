#include "base/cpu.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

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

// The tightest quota of this process's cgroup and of its ancestors.
double CgroupQuotaCpus() {
  double quota = HUGE_VAL;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers.find("cpu") == std::string::npos) continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    std::string path = line.substr(second + 1);
    while (true) {
      quota = std::min(quota, QuotaOf(root + path));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return quota;
}

// A "Name:   123 kB" line of /proc/self/status.
std::optional<int64_t> StatusKilobytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace

int AvailableThreads() {
  const double quota = CgroupQuotaCpus();
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
  const std::optional<int64_t> kilobytes = StatusKilobytes("VmHWM");
  if (!kilobytes) return std::nullopt;
  return *kilobytes * 1024;
}

bool ResetPeakMemory() {
  ::malloc_trim(0);
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace sandglass
