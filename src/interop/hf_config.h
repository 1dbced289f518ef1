// config.json of a Hugging Face directory, in the spellings of transformers 4 (rope_theta,
// rope_scaling) and 5 (rope_parameters).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "interop/names.h"
#include "model/config.h"

namespace sandglass {

struct HfConfig {
  Architecture architecture;
  ModelConfig config;
  int64_t context_length = 0;         // max_position_embeddings
  std::vector<std::string> not_used;  // keys that are not known and were left alone
};

// Understood: the architectures of names.h whose names begin with kHf. Throws Error that names the
// setting for everything that a ModelConfig cannot represent (biases, sliding windows, experts,
// other activations or RoPE scalings, ...). `where` (the file) goes into messages.
HfConfig ParseHfConfig(std::string_view json, const std::string& where);

}  // namespace sandglass
