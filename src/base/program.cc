#include "base/program.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "base/hash.h"

namespace sandglass {

std::string ProgramBuild() {
  try {
    return HashHex(HashFile("/proc/self/exe"));
  } catch (const Error&) {
    return "unknown";
  }
}

std::string CompilerName() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                             : "unknown";
}

std::string SystemName() {
  utsname system{};
  if (::uname(&system) != 0) return "unknown";
  return fmt::format("{} {} {}", system.sysname, system.release, system.machine);
}

}  // namespace sandglass
