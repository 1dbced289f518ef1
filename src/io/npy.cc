#include "io/npy.h"

#include <fmt/format.h>

#include <string_view>

#include "base/file.h"

namespace sandglass {

void WriteNpy(const std::string& path, ConstView matrix) {
  SANDGLASS_CHECK(matrix.contiguous() && matrix.dtype == DType::kF32, "a packed matrix of f32");
  // Magic, version 1.0, u16 length of the rest of the header; the data begin at a multiple of 64.
  constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
  constexpr size_t kAlignment = 64;
  std::string header = fmt::format(
      "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", matrix.rows, matrix.cols);
  const size_t before = kMagic.size() + sizeof(uint16_t);
  const size_t whole = (before + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(whole - before - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  AtomicFile file(path);
  file.Write(kMagic);
  file.Write(&length, sizeof(length));
  file.Write(header);
  file.Write(matrix.data, matrix.elements() * sizeof(float));
  file.Commit();
}

}  // namespace sandglass
