// Which program this is and where it runs: what is recorded beside results so that they can be
// traced back.
#pragma once

#include <string>

namespace sandglass {

// A hash of the running program's file, 16 hexadecimal digits: it tells builds apart without
// knowing anything of version control. "unknown" if the file cannot be read.
std::string ProgramBuild();

// "gcc 12.2.0"
std::string CompilerName();

// "unknown" if the system does not tell.
std::string HostName();

// "Linux 6.1.0-18-amd64 x86_64"
std::string SystemName();

}  // namespace sandglass
