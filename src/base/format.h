// Numbers the way people read them.
#pragma once

#include <cstdint>
#include <string>

namespace sandglass {

// 113246208 -> "113,246,208".
std::string WithThousands(int64_t value);

// 113246208 -> "113.2M"; below 10,000 the number itself.
std::string Abbreviated(double value);

// 1536 -> "1.5 KiB".
std::string HumanBytes(double bytes);

// 3725 -> "1h02m"; 65 -> "1m05s"; 3.2 -> "3.2s".
std::string HumanDuration(double seconds);

}  // namespace sandglass
