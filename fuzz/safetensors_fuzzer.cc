// Any bytes are a safetensors file that is read, or an Error.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandglass;
  try {
    const SafetensorsFile file(std::string_view(reinterpret_cast<const char*>(data), size),
                               "fuzzed.safetensors");
    for (const SafetensorsFile::Entry& entry : file.entries()) {
      std::vector<float> values(entry.elements());
      file.ReadF32(entry, values);
    }
  } catch (const Error&) {
  }
  return 0;
}
