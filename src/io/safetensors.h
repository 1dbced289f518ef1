// The safetensors container (github.com/huggingface/safetensors, "Format"): u64 little-endian
// header length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/view.h"

namespace sandglass {

// Writes `tensors` atomically: the file appears whole or not at all. Views must be contiguous.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  ConstView view;
};
void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// A mapped file. Opening checks everything a hostile or damaged header could get wrong: lengths,
// overlaps, overflow, unknown types; what is wrong is named in an Error.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

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

 private:
  std::string path_;
  MappedFile file_;
  std::string_view data_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace sandglass
