// The safetensors container (github.com/huggingface/safetensors, "Format"): u64 little-endian
// header length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes. A
// large model lies in several such files ("shards") beside an index that names the file of each
// tensor.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "tensor/view.h"

namespace sandglass {

// Views must be contiguous.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  ConstView view;
  // The type in the file: that of the view, or for a view of f32 also BF16 or F16 (rounded to
  // nearest).
  std::optional<DType> stored;

  DType file_type() const { return stored.value_or(view.dtype); }
  uint64_t file_bytes() const { return view.elements() * SizeOf(file_type()); }
};
// Writes `tensors` atomically: the file appears whole or not at all.
void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// Names of a model's files in a directory.
inline constexpr std::string_view kSafetensorsFile = "model.safetensors";
inline constexpr std::string_view kSafetensorsIndex = "model.safetensors.index.json";

// A mapped file. Opening checks everything a hostile or damaged header could get wrong: lengths,
// overlaps, overflow, names that appear twice, unknown types; what is wrong is named in an Error.
// Memory stays within a small multiple of the header's size.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  // For bytes that lie in memory and outlive the object; `path` goes into messages.
  SafetensorsFile(std::string_view bytes, std::string path);

  struct Entry {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    uint64_t begin;  // byte offset in the data section
    uint64_t size_bytes;

    int64_t elements() const;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  // The entry of this name; Error with a suggestion if there is none.
  const Entry& Find(const std::string& name) const;
  // Its elements as one row. The data lies at any byte alignment the file chose, so copy with
  // CopyTo unless the writer is known.
  std::string_view Bytes(const Entry& entry) const;
  // Copies into a contiguous view of the same type and number of elements; Error if they differ.
  void CopyTo(const std::string& name, View out) const;
  // As f32, whatever the type; `out` has entry.elements() elements.
  void ReadF32(const Entry& entry, std::span<float> out) const;

 private:
  void Parse(std::string_view bytes);
  void CheckOffsets() const;

  std::string path_;
  MappedFile file_;
  std::string_view data_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> names_;
  std::map<std::string, std::string> metadata_;
};

// The tensors of a model in a directory: one file, or the shards that an index names. Every tensor
// of every shard must be in the index, under the shard that holds it, and the other way round.
class SafetensorsDirectory {
 public:
  // Throws Error if the directory has neither kSafetensorsFile nor kSafetensorsIndex, if a shard is
  // missing, damaged or not a plain file name, or if names collide.
  explicit SafetensorsDirectory(const std::string& directory);

  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsFile::Entry* entry;
  };
  // By name.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  void AddShards(const std::string& directory, const std::string& index_path);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace sandglass
