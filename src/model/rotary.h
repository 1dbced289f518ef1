// Rotary position embedding: how fast each pair of channels turns.
#pragma once

#include <vector>

#include "model/config.h"
#include "tensor/view.h"

namespace sandglass {

// Radians per position of the pairs (i, i + E/2) of a head, i < E/2: theta^(-2i/E), scaled as
// config.rope_scaling says. Linear scaling divides by the factor. Llama 3.1's leaves waves (2 pi
// over the frequency) shorter than original_max_position / high_freq_factor alone, divides the
// frequency of those longer than original_max_position / low_freq_factor, and between the two goes
// over from one to the other linearly in 1 / wavelength.
std::vector<double> RotaryFrequencies(const ModelConfig& config);

// cosines, sines [positions, E/2] of position * frequency.
void FillRotaryTables(View cosines, View sines, const ModelConfig& config);

}  // namespace sandglass
