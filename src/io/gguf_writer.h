// Writing GGUF files (io/gguf_file.h reads them).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_types.h"

namespace sandglass {

// Collects metadata and the list of tensors, then writes everything in one go. Tensors are produced
// one at a time while the file is written, so no more than one of them need be in memory.
class GgufWriter {
 public:
  // Keys are unique; so are tensor names.
  void Add(const std::string& key, uint32_t value);
  void Add(const std::string& key, float value);
  void Add(const std::string& key, std::same_as<bool> auto value) { AddBool(key, value); }
  void Add(const std::string& key, std::string_view value);
  // A literal is text, not the bool that a pointer converts to.
  void Add(const std::string& key, const char* value) { Add(key, std::string_view(value)); }
  void Add(const std::string& key, std::span<const uint32_t> values);
  void Add(const std::string& key, std::span<const int32_t> values);
  void Add(const std::string& key, std::span<const float> values);
  void Add(const std::string& key, std::span<const std::string> values);

  // `shape` lists the outermost dimension first; a row (the last dimension) must be whole blocks of
  // the type. `values` fills the tensor's elements, rows packed, when it is written; the writer
  // turns them into the type.
  void AddTensor(std::string name, GgufTensorType type, std::vector<int64_t> shape,
                 std::function<void(std::span<float>)> values);

  // Bytes of all tensors.
  uint64_t tensor_bytes() const;

  // Writes the file atomically. `progress` (may be empty) gets the tensor bytes written so far and
  // may throw to give up. Throws Error, naming the tensor, for values that the type cannot hold
  // (beyond 65504 in F16).
  void Write(const std::string& path, const std::function<void(uint64_t)>& progress = {}) const;

 private:
  struct Tensor {
    std::string name;
    GgufTensorType type;
    std::vector<int64_t> shape;
    std::function<void(std::span<float>)> values;

    int64_t elements() const;
  };
  void AddBool(const std::string& key, bool value);
  void BeginKey(const std::string& key, GgufValueType type);
  void BeginArray(const std::string& key, GgufValueType type, size_t count);

  std::string keys_;  // as they stand in the file
  uint64_t key_count_ = 0;
  std::vector<std::string> key_names_;
  std::vector<Tensor> tensors_;
};

}  // namespace sandglass
