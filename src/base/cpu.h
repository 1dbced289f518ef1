// What this process may use of the machine, and how much memory it has used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sandglass {

// CPUs allowed by the affinity mask and the cgroup quota (rounded up), at least 1. `root` stands
// before /proc/self/cgroup and /sys/fs/cgroup.
int AvailableThreads(const std::string& root = "");

// The number of threads to use when a user asked for `asked`: 0 means AvailableThreads(). Throws
// Error, naming `where` it was asked, for negative and absurd numbers.
int ResolveThreads(int asked, const std::string& where);

// Processor model name as the system gives it, "unknown" if it does not.
std::string CpuModelName();

// Peak resident set of this process since it started, or since ResetPeakMemory().
std::optional<int64_t> PeakMemoryBytes();

// Memory that this process may still take without making others swap: what the system has
// available, or what is left of the limit of its cgroup, if that is less.
std::optional<int64_t> AvailableMemoryBytes();

// Gives free memory back to the system and starts a new peak at the present resident set. False if
// the kernel does not allow it; the peak then still counts from the start of the process.
bool ResetPeakMemory();

}  // namespace sandglass
