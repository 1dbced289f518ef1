// How a path becomes a tokenizer. Tokenizer::Load knows the formats of tokenizers; programs that
// know files of whole models too pass a function that reads the tokenizer in them.
#pragma once

#include <functional>
#include <string>

#include "data/tokenizer.h"

namespace sandglass {

using TokenizerLoader = std::function<Tokenizer(const std::string& path)>;

}  // namespace sandglass
