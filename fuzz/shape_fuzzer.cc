// Any text is a shape that its canonical notation gives back, or an Error.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "model/shape.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandglass;
  try {
    const Shape shape = Shape::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
    SANDGLASS_CHECK(Shape::Parse(shape.ToString()) == shape, "the notation is read back");
  } catch (const Error&) {
  }
  return 0;
}
