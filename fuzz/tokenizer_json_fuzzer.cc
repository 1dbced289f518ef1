// Any bytes as a tokenizer.json: an Error, or a tokenizer that loses nothing and can be written and
// read again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"

namespace {

constexpr std::string_view kText = "In the beginning\r\n  12345 \xE6\xBC\xA2\xFF\xE2\x96\x81 don't";

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandglass;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const Tokenizer tokenizer(ParseTokenizerJson(json, "input"), "input");
    const Tokenizer copy(ParseTokenizerJson(tokenizer.ToJson(), "copy"), "copy");
    Require(copy.hash() == tokenizer.hash());
    Encoder encoder(tokenizer);
    Encoder copied(copy);
    for (const SpecialNames names : {SpecialNames::kText, SpecialNames::kIds}) {
      const std::vector<TokenId> ids = encoder.Encode(kText, names);
      Require(copied.Encode(kText, names) == ids);
      tokenizer.Decode(ids);
    }
  } catch (const Error&) {
  }
  return 0;
}
