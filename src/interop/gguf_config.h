// The model that a GGUF file describes.
#pragma once

#include <cstdint>
#include <vector>

#include "interop/names.h"
#include "io/gguf_file.h"
#include "model/config.h"

namespace sandglass {

struct GgufConfig {
  Architecture architecture;
  ModelConfig config;
  int64_t context_length = 0;
};

// Understood: the architectures of names.h whose names begin with kGguf; deci blocks that regroup
// into layers that are all alike. Throws Error that names the key or tensor for everything that a
// ModelConfig cannot represent.
GgufConfig ReadGgufConfig(const GgufFile& file);

// rope_freqs.weight [E/2]: what llama.cpp divides the rotary frequencies by, one factor each. Llama
// 3.1's scaling is stored in no other way.
inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";
// The factors that a model's scaling amounts to, and back. FindLlama3Scaling returns nothing if no
// llama3 scaling gives these factors (to within the rounding of f32).
std::vector<float> RopeFactors(const ModelConfig& config);
std::optional<RopeScaling> FindLlama3Scaling(const std::vector<float>& factors, double rope_theta);

}  // namespace sandglass
