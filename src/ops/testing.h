// Shared by the tests of the cpu backend.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

#include "hwy/highway.h"
#include "ops/backend.h"

namespace sandglass {

// Runs kernels on one instruction set for as long as it lives.
class TargetScope {
 public:
  explicit TargetScope(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~TargetScope() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Every instruction set that this machine runs, or the only one that SANDGLASS_TEST_TARGET names
// (AVX3 is AVX-512), on 1, 2 and 3 threads, with products of our own.
inline void ForEachCpu(const std::function<void(Backend&)>& action) {
  const char* const only = std::getenv("SANDGLASS_TEST_TARGET");
  bool ran = false;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (only != nullptr && std::string_view(only) != hwy::TargetName(target)) continue;
    ran = true;
    const TargetScope scope(target);
    for (const int threads : {1, 2, 3}) {
      const auto cpu = MakeCpuBackend(threads, Products::kOwn);
      SCOPED_TRACE(cpu->Description());
      action(*cpu);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  ASSERT_TRUE(ran) << "this machine does not run " << only;
}

// Calls action with every combination of transposes and results of a product.
inline void ForEachSpec(const std::function<void(const MatmulSpec&)>& action) {
  for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
      for (const Into into : {Into::kOverwrite, Into::kAccumulate}) action({a, b, into});
    }
  }
}

}  // namespace sandglass
