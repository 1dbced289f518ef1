// Views: non-owning matrices of one element type. Everything the model computes on is a matrix
// whose rows are tokens (or weight rows); a view may be a block of columns of a wider one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "tensor/bf16.h"

namespace sandglass {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16 };

constexpr int64_t SizeOf(DType dtype) {
  return dtype == DType::kF64 ? 8 : dtype == DType::kF32 ? 4 : 2;
}

// As safetensors and other programs spell it.
constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF64:
      return "F64";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  SANDGLASS_CHECK(false, "unknown element type");
}

template <class T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<BF16>() {
  return DType::kBF16;
}

// `Byte` is std::byte or const std::byte.
template <class Byte>
struct BasicView {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, >= cols

  // Typed pointer to row `row`; T must be the element type.
  template <class T>
  auto* Row(int64_t row = 0) const {
    using Pointer = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    SANDGLASS_CHECK(DTypeOf<T>() == dtype, "view read as another element type");
    return reinterpret_cast<Pointer*>(data) + row * stride;
  }

  // Rows [begin, begin + count).
  BasicView Rows(int64_t begin, int64_t count) const {
    SANDGLASS_CHECK(begin >= 0 && count >= 0 && begin + count <= rows, "rows out of range");
    return {data + begin * stride * SizeOf(dtype), dtype, count, cols, stride};
  }
  // The first `count` rows: how a buffer for a full batch serves a smaller one.
  BasicView Top(int64_t count) const { return Rows(0, count); }
  // Columns [begin, begin + count).
  BasicView Columns(int64_t begin, int64_t count) const {
    SANDGLASS_CHECK(begin >= 0 && count >= 0 && begin + count <= cols, "columns out of range");
    return {data + begin * SizeOf(dtype), dtype, rows, count, stride};
  }

  bool contiguous() const { return stride == cols || rows <= 1; }
  int64_t elements() const { return rows * cols; }
  explicit operator bool() const { return data != nullptr; }

  // A view that may be written converts to one that may only be read.
  operator BasicView<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {data, dtype, rows, cols, stride};
  }
};

using View = BasicView<std::byte>;
using ConstView = BasicView<const std::byte>;

// A view of memory owned elsewhere, rows packed.
template <class T>
View ViewOf(T* data, int64_t rows, int64_t cols) {
  return {reinterpret_cast<std::byte*>(data), DTypeOf<T>(), rows, cols, cols};
}
template <class T>
ConstView ViewOf(const T* data, int64_t rows, int64_t cols) {
  return {reinterpret_cast<const std::byte*>(data), DTypeOf<T>(), rows, cols, cols};
}

}  // namespace sandglass
