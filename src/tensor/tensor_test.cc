#include <gtest/gtest.h>

#include "tensor/memory_plan.h"
#include "tensor/param_table.h"
#include "tensor/view.h"

namespace sandglass {
namespace {

TEST(View, SlicesKeepTheStride) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const View view = ViewOf(data, 3, 4);
  const View block = view.Rows(1, 2).Columns(2, 2);
  EXPECT_EQ(block.Row<float>(0)[0], 6.0f);
  EXPECT_EQ(block.Row<float>(1)[1], 11.0f);
  EXPECT_FALSE(block.contiguous());
  EXPECT_DEATH(view.Rows(2, 2), "rows out of range");
  EXPECT_DEATH(view.Row<double>(), "another element type");
}

TEST(MemoryPlan, ScratchIsSharedAndSavedIsNot) {
  MemoryPlan plan;
  View saved1, saved2, scratch1, scratch2, scratch3;
  plan.Book(saved1, 2, 8, DType::kF32, Lifetime::kSaved);
  plan.Book(scratch1, 1, 16, DType::kF32, Lifetime::kScratch);
  plan.Book(scratch2, 1, 16, DType::kF32, Lifetime::kScratch);
  plan.BeginScratchScope();
  plan.Book(saved2, 2, 8, DType::kF32, Lifetime::kSaved);
  plan.Book(scratch3, 1, 16, DType::kF32, Lifetime::kScratch);
  EXPECT_EQ(plan.saved_bytes(), 128);
  EXPECT_EQ(plan.scratch_bytes(), 128);
  Arena arena(plan);
  EXPECT_EQ(arena.size_bytes(), 256);
  EXPECT_EQ(scratch1.data, scratch3.data);
  EXPECT_NE(scratch1.data, scratch2.data);
  EXPECT_NE(saved1.data, saved2.data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(saved2.data) % kAlignmentBytes, 0u);
}

TEST(ParamTable, OffsetsServeEverySlabAndInitIsNamed) {
  ParamTable table;
  Param weight, gain;
  table.Declare(weight, "layers.0.w", ParamRole::kFfn, 3, 5, {.std = 0.02});
  table.Declare(gain, "layers.0.gain", ParamRole::kNorm, 1, 5, {ParamInit::Kind::kOnes});
  EXPECT_EQ(table.elements(), 20);
  EXPECT_EQ(table.elements(ParamRole::kFfn), 15);
  table.Grant(DType::kF32, true);
  table.Initialize(1);
  EXPECT_EQ(gain.value.Row<float>()[4], 1.0f);
  EXPECT_EQ(table.Slice(table.grads(), table.specs()[1]).data, gain.grad.data);

  // Another model that has more parameters starts this one alike.
  ParamTable other;
  Param first, second;
  other.Declare(first, "layers.9.w", ParamRole::kFfn, 7, 5, {.std = 0.02});
  other.Declare(second, "layers.0.w", ParamRole::kFfn, 3, 5, {.std = 0.02});
  other.Grant(DType::kF64, false);
  other.Initialize(1);
  EXPECT_EQ(static_cast<float>(second.value.Row<double>(2)[4]), weight.value.Row<float>(2)[4]);
}

}  // namespace
}  // namespace sandglass
