// The shape of a Transformer, and its notation: L12-d768-a12x64-f8x384[-kv4].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sandglass {

// Sizes only; everything else about a model is in ModelConfig.
struct Shape {
  int layers = 0;        // L
  int d_model = 0;       // D, width of the residual stream
  int heads = 0;         // H, query heads
  int head_width = 0;    // E; H*E may differ from D
  int kv_heads = 0;      // KV, divides H
  std::vector<int> ffn;  // widths d_h of a layer's sub-MLPs, in order; K = ffn.size()

  // Reads the notation. The parts after L may come in any order; "-kv" may be left out (KV = H).
  // FFN forms: f8x384 (eight of width 384), f384,400,384 (a list), f3x384,400 (mixed).
  // Throws Error with a caret under the character at fault.
  static Shape Parse(std::string_view text);
  // The canonical notation; Parse reads it back to an equal shape.
  std::string ToString() const;

  // Throws Error if no such model can exist (zero or negative sizes, KV not dividing H, odd E).
  void Validate() const;

  int64_t attention_width() const { return int64_t{heads} * head_width; }
  int64_t kv_width() const { return int64_t{kv_heads} * head_width; }
  // Sum of the sub-MLP widths of a layer.
  int64_t ffn_width() const;
  int sub_mlps() const { return static_cast<int>(ffn.size()); }

  friend bool operator==(const Shape&, const Shape&) = default;
};

}  // namespace sandglass
