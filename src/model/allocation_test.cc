// After the first step nothing is allocated by our code. This file replaces the test program's
// operator new by one that counts. What oneDNN allocates inside a matrix product (2.6 takes a small
// object a call) is its own affair and is left out.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace {

std::atomic<int64_t> allocations{0};

bool CalledFromOneDnn(const void* return_address) {
  Dl_info info{};
  return dladdr(return_address, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libdnnl") != std::string_view::npos;
}

void* Allocate(size_t size, size_t alignment, const void* return_address) {
  if (!CalledFromOneDnn(return_address)) ++allocations;
  void* const data =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
          : std::malloc(size);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 0, __builtin_return_address(0)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment), __builtin_return_address(0));
}
// std::stable_sort asks in this way.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return Allocate(size, 0, __builtin_return_address(0));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace sandglass {
namespace {

TEST(Allocation, NothingIsAllocatedAfterTheFirstStep) {
  for (const Family family : {Family::kHourglass, Family::kOlmo2}) {
    const auto ops = MakeCpuBackend(2);
    ModelConfig config = FamilyConfig(family, Shape::Parse("L2-d32-a4x8-f3x24-kv2"), 300);
    Model model(config, {.batch = 3, .length = 40});
    model.Allocate(*ops);
    model.params().Initialize(1);
    const std::vector<int32_t> ids(120, 7), targets(120, 8);
    const auto step = [&] {
      const int64_t before = allocations;
      model.LossAndGradients({3, 40, ids, targets}, 1.0 / 120);
      return allocations - before;
    };
    step();
    EXPECT_EQ(step(), 0) << EnumName(family);
    const int64_t before = allocations;
    const std::vector<int> counted(1);
    EXPECT_EQ(allocations - before, 1) << "the counter does not count";
  }
}

}  // namespace
}  // namespace sandglass
