// For tests alone: GGUF files put together by hand, sound ones and others.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_types.h"

namespace sandglass {

// The bytes of numbers and texts as GGUF has them.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  GgufBytes& Text(std::string_view text) {
    Number(uint64_t{text.size()});
    bytes_ += text;
    return *this;
  }
  GgufBytes& Raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  GgufBytes& PadTo(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBytes& Type(GgufValueType type) { return Number(static_cast<uint32_t>(type)); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A sound file: add keys and tensors, then take the bytes.
class GgufTestFile {
 public:
  GgufTestFile& Text(std::string_view key, std::string_view value) {
    Key(key).Type(GgufValueType::kString).Text(value);
    return *this;
  }
  GgufTestFile& U32(std::string_view key, uint32_t value) {
    Key(key).Type(GgufValueType::kU32).Number(value);
    return *this;
  }
  GgufTestFile& F32(std::string_view key, float value) {
    Key(key).Type(GgufValueType::kF32).Number(value);
    return *this;
  }
  GgufTestFile& Bool(std::string_view key, bool value) {
    Key(key).Type(GgufValueType::kBool).Number(static_cast<uint8_t>(value));
    return *this;
  }
  GgufTestFile& I32s(std::string_view key, const std::vector<int32_t>& values) {
    Key(key).Type(GgufValueType::kArray).Type(GgufValueType::kI32).Number(uint64_t{values.size()});
    for (const int32_t value : values) keys_.Number(value);
    return *this;
  }
  GgufTestFile& Texts(std::string_view key, const std::vector<std::string>& values) {
    Key(key)
        .Type(GgufValueType::kArray)
        .Type(GgufValueType::kString)
        .Number(uint64_t{values.size()});
    for (const std::string& value : values) keys_.Text(value);
    return *this;
  }
  // `shape` outermost first, `bytes` as the type stores them.
  GgufTestFile& Tensor(std::string_view name, const std::vector<int64_t>& shape,
                       GgufTensorType type, std::string_view bytes) {
    ++tensors_;
    infos_.Text(name).Number(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) infos_.Number(shape[i]);
    infos_.Number(static_cast<uint32_t>(type)).Number(uint64_t{data_.bytes().size()});
    data_.Raw(bytes).PadTo(kGgufAlignment);
    return *this;
  }
  GgufTestFile& F32Tensor(std::string_view name, const std::vector<int64_t>& shape,
                          const std::vector<float>& values) {
    return Tensor(name, shape, GgufTensorType::kF32,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string bytes() const {
    GgufBytes file;
    file.Raw(kGgufMagic).Number(kGgufVersion).Number(tensors_).Number(key_count_);
    file.Raw(keys_.bytes()).Raw(infos_.bytes()).PadTo(kGgufAlignment).Raw(data_.bytes());
    return file.bytes();
  }

 private:
  GgufBytes& Key(std::string_view key) {
    ++key_count_;
    return keys_.Text(key);
  }

  uint64_t key_count_ = 0;
  uint64_t tensors_ = 0;
  GgufBytes keys_;
  GgufBytes infos_;
  GgufBytes data_;
};

}  // namespace sandglass
