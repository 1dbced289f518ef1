#include "io/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "io/quantization.h"

namespace sandglass {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutString(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

template <class T>
void PutAll(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

uint64_t PaddingAfter(uint64_t bytes) {
  return (kGgufAlignment - bytes % kGgufAlignment) % kGgufAlignment;
}

// F16 holds up to 65504; what is beyond would become infinite.
void RequireF16(std::span<const float> values, const std::string& name) {
  constexpr float kLargestF16 = 65504.0f;
  for (const float value : values) {
    if (std::abs(value) <= kLargestF16) continue;
    throw Error({.what = fmt::format("tensor {} holds {}, which F16 cannot", name, value),
                 .expected = "values up to 65504",
                 .remedy = "--type bf16 or f32"});
  }
}

}  // namespace

int64_t GgufWriter::Tensor::elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

void GgufWriter::BeginKey(const std::string& key, GgufValueType type) {
  SANDGLASS_CHECK(std::ranges::find(key_names_, key) == key_names_.end(), "a key twice");
  key_names_.push_back(key);
  ++key_count_;
  PutString(keys_, key);
  Put(keys_, static_cast<uint32_t>(type));
}

void GgufWriter::BeginArray(const std::string& key, GgufValueType type, size_t count) {
  BeginKey(key, GgufValueType::kArray);
  Put(keys_, static_cast<uint32_t>(type));
  Put<uint64_t>(keys_, count);
}

void GgufWriter::Add(const std::string& key, uint32_t value) {
  BeginKey(key, GgufValueType::kU32);
  Put(keys_, value);
}

void GgufWriter::Add(const std::string& key, float value) {
  BeginKey(key, GgufValueType::kF32);
  Put(keys_, value);
}

void GgufWriter::AddBool(const std::string& key, bool value) {
  BeginKey(key, GgufValueType::kBool);
  Put<uint8_t>(keys_, value ? 1 : 0);
}

void GgufWriter::Add(const std::string& key, std::string_view value) {
  BeginKey(key, GgufValueType::kString);
  PutString(keys_, value);
}

void GgufWriter::Add(const std::string& key, std::span<const uint32_t> values) {
  BeginArray(key, GgufValueType::kU32, values.size());
  PutAll(keys_, values);
}

void GgufWriter::Add(const std::string& key, std::span<const int32_t> values) {
  BeginArray(key, GgufValueType::kI32, values.size());
  PutAll(keys_, values);
}

void GgufWriter::Add(const std::string& key, std::span<const float> values) {
  BeginArray(key, GgufValueType::kF32, values.size());
  PutAll(keys_, values);
}

void GgufWriter::Add(const std::string& key, std::span<const std::string> values) {
  BeginArray(key, GgufValueType::kString, values.size());
  for (const std::string& value : values) PutString(keys_, value);
}

void GgufWriter::AddTensor(std::string name, GgufTensorType type, std::vector<int64_t> shape,
                           std::function<void(std::span<float>)> values) {
  SANDGLASS_CHECK(name.size() < kGgufNameBytes, "a tensor name of 64 bytes or more");
  SANDGLASS_CHECK(CanQuantize(type), "a type that cannot be written");
  SANDGLASS_CHECK(!shape.empty() && shape.size() <= kGgufMaxDimensions, "a tensor of no dimension");
  SANDGLASS_CHECK(shape.back() % InfoOf(type).block_elements == 0, "rows of broken blocks");
  for (const Tensor& tensor : tensors_) SANDGLASS_CHECK(tensor.name != name, "a tensor twice");
  tensors_.push_back({std::move(name), type, std::move(shape), std::move(values)});
}

uint64_t GgufWriter::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_) bytes += QuantizedBytes(tensor.type, tensor.elements());
  return bytes;
}

void GgufWriter::Write(const std::string& path,
                       const std::function<void(uint64_t)>& progress) const {
  std::string header(kGgufMagic);
  Put<uint32_t>(header, kGgufVersion);
  Put<int64_t>(header, std::ssize(tensors_));
  Put<int64_t>(header, static_cast<int64_t>(key_count_));
  header += keys_;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(header, tensor.name);
    Put<uint32_t>(header, tensor.shape.size());
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      Put<int64_t>(header, *extent);
    }
    Put(header, static_cast<uint32_t>(tensor.type));
    Put(header, offset);
    const uint64_t bytes = QuantizedBytes(tensor.type, tensor.elements());
    offset += bytes + PaddingAfter(bytes);
  }
  AtomicFile file(path);
  file.Write(header);
  const std::string zeros(kGgufAlignment, '\0');
  file.Write(zeros.data(), PaddingAfter(header.size()));
  std::vector<float> values;
  std::vector<char> bytes;
  uint64_t done = 0;
  for (const Tensor& tensor : tensors_) {
    values.resize(tensor.elements());
    tensor.values(values);
    if (tensor.type == GgufTensorType::kF16) RequireF16(values, tensor.name);
    Quantize(tensor.type, values, bytes);
    file.Write(bytes.data(), bytes.size());
    file.Write(zeros.data(), PaddingAfter(bytes.size()));
    done += bytes.size();
    if (progress) progress(done);
  }
  file.Commit();
}

}  // namespace sandglass
