// The GGUF container (github.com/ggml-org/ggml, docs/gguf.md): typed metadata, then tensors, in one
// little-endian file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/file.h"
#include "io/gguf_types.h"

namespace sandglass {

// Integers of every width are int64_t, floating-point numbers double, in arrays too (bools there
// are 0 and 1). Text is a view into the file. An empty array is an empty vector of its kind.
using GgufValue = std::variant<bool, int64_t, double, std::string_view, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string_view>>;

// A mapped file. Opening checks everything that a hostile or damaged file could get wrong: magic,
// version, counts, lengths, names that appear twice, types, overflow, offsets; what is wrong is
// named in an Error. Versions 2 and 3 are read; tensors of other types than GgufTensorType are
// refused by name.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  // For bytes that lie in memory and outlive the object; `path` goes into messages.
  GgufFile(std::string_view bytes, std::string path);

  struct Tensor {
    std::string name;
    GgufTensorType type;
    // Outermost dimension first, as everywhere in Sandglass: a matrix is [rows, cols]. (The file
    // itself lists the contiguous dimension first.)
    std::vector<int64_t> shape;
    uint64_t begin;  // byte offset in the data section
    uint64_t size_bytes;

    int64_t elements() const;
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }

  // The tensor of this name, or nullptr.
  const Tensor* Find(const std::string& name) const;
  // Its bytes: rows of whole blocks.
  std::string_view Bytes(const Tensor& tensor) const;

  struct Entry {
    std::string key;
    GgufValue value;
  };
  // In the order of the file.
  const std::vector<Entry>& metadata() const { return metadata_; }

  // The value of a key as a T (an alternative of GgufValue), or nothing if the file has no such
  // key. Throws Error if the key holds another kind of value. A whole number is also read as a
  // double.
  template <class T>
  std::optional<T> Get(const std::string& key) const {
    const GgufValue* value = FindValue(key);
    if (value == nullptr) return std::nullopt;
    if constexpr (std::is_same_v<T, double>) {
      if (const int64_t* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
    }
    if (const T* found = std::get_if<T>(value)) return *found;
    FailKind(key, KindOf(GgufValue(T{})), KindOf(*value));
  }
  // As Get; Error if there is no such key.
  template <class T>
  T Require(const std::string& key) const {
    if (auto value = Get<T>(key)) return *std::move(value);
    FailMissing(key);
  }

 private:
  void Parse(std::string_view bytes);
  const GgufValue* FindValue(const std::string& key) const;
  static std::string_view KindOf(const GgufValue& value);
  [[noreturn]] void FailKind(const std::string& key, std::string_view expected,
                             std::string_view found) const;
  [[noreturn]] void FailMissing(const std::string& key) const;

  std::string path_;
  MappedFile file_;
  std::string_view data_;
  std::vector<Entry> metadata_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, size_t> keys_;
  std::unordered_map<std::string, size_t> names_;
};

}  // namespace sandglass
