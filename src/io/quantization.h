// Tensors of GGUF files as f32, and back for the types that Sandglass writes. A quantised row is
// blocks of 32 or 256 elements that share scales; the layouts are those of github.com/ggml-org/ggml
// (ggml-common.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "io/gguf_types.h"

namespace sandglass {

// Bytes of `elements` values; elements must be whole blocks.
int64_t QuantizedBytes(GgufTensorType type, int64_t elements);

// Every GgufTensorType. `bytes` holds QuantizedBytes(type, out.size()) bytes at any alignment.
void Dequantize(GgufTensorType type, std::string_view bytes, std::span<float> out);

// F32, F16, BF16 and Q8_0. `out` is overwritten with QuantizedBytes(type, values.size()) bytes.
// Rounding is to nearest; Q8_0 takes max|x| / 127 as the scale of a block.
bool CanQuantize(GgufTensorType type);
void Quantize(GgufTensorType type, std::span<const float> values, std::vector<char>& out);

}  // namespace sandglass
