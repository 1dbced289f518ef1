// Any bytes are a GGUF file that is read, or an Error.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/gguf_file.h"
#include "io/quantization.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandglass;
  try {
    const GgufFile file(std::string_view(reinterpret_cast<const char*>(data), size), "fuzzed.gguf");
    for (const GgufFile::Tensor& tensor : file.tensors()) {
      std::vector<float> values(tensor.elements());
      Dequantize(tensor.type, file.Bytes(tensor), values);
    }
  } catch (const Error&) {
  }
  return 0;
}
