// Shared by the tests of the cpu backend.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>

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

// Every instruction set that this machine runs, on 1, 2 and 3 threads.
inline void ForEachCpu(const std::function<void(Backend&)>& action) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const TargetScope scope(target);
    for (const int threads : {1, 2, 3}) {
      const auto cpu = MakeCpuBackend(threads);
      SCOPED_TRACE(cpu->Description());
      action(*cpu);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace sandglass
