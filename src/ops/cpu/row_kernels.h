// Vector kernels of the ops that work row by row. Each does a range of rows on the calling thread
// and has the contract of the Backend method of its name; the backend divides the rows. Everything
// is computed in f32.
#pragma once

#include <cstdint>
#include <span>

#include "ops/backend.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// The instruction set that kernels run on: "AVX2".
const char* TargetName();

// y += x, f32.
void Add(View y, ConstView x);
// y = x, rounded where y is bf16.
void Copy(View y, ConstView x);

void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain, const RmsNormSpec& spec);
void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                     ConstView gain, const RmsNormSpec& spec);

void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
          const RopeSpec& spec);

void SwiGlu(View h, ConstView gate_up);
void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up);

LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                      std::span<const int32_t> targets, const CrossEntropySpec& spec);
LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                              const CrossEntropySpec& spec);

void Blend(View y, ConstView x, const BlendSpec& spec);
double SquaredNorm(ConstView x);
void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec);

}  // namespace sandglass::cpu
