#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "tensor/half.h"

namespace sandglass {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are stored as they lie in memory");

constexpr uint64_t kLengthBytes = 8;
// The format's own limit on the header.
constexpr uint64_t kMaximumHeaderBytes = 100'000'000;

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw Error({.what = "not a sound safetensors file: " + what,
               .where = path,
               .remedy = "copy or write the file again; it may be truncated or damaged"});
}

// Takes the header apart as it is read: nothing of it is kept that is not an entry, so that a
// hostile one costs no more memory than its own size.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(uint64_t data_bytes, const std::string& path)
      : data_bytes_(data_bytes), path_(path) {}

  bool null() override { return Value("null"); }
  bool boolean(bool) override { return Value("true or false"); }
  bool number_integer(number_integer_t) override { return Value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Value("a fraction"); }
  bool binary(binary_t&) override { return Value("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value != 0 && elements_ > std::numeric_limits<int64_t>::max() / 8 / value) {
        FailEntry("its size overflows");
      }
      elements_ *= value;
      if (entry_.shape.size() == kMostDimensions) FailEntry("it has too many dimensions");
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2) FailEntry("data_offsets are not [begin, end]");
      offsets_.push_back(value);
      return true;
    }
    return Value("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      metadata_[key_] = value;
      return true;
    }
    if (place_ != Place::kEntry || key_ != "dtype") return Value("a text");
    for (const DType candidate : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      if (value == NameOf(candidate)) dtype_ = candidate;
    }
    if (!dtype_) {
      FailEntry(fmt::format("type {} is not supported (F32, F16, BF16, F64 are)", value));
    }
    return true;
  }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kNames;
        return true;
      case Place::kNames:
        place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kEntry;
        keys_.clear();
        entry_ = {.name = key_};
        dtype_.reset();
        offsets_.clear();
        elements_ = 1;
        return true;
      default:
        return Value("an object");
    }
  }

  bool key(string_t& name) override {
    auto& seen = place_ == Place::kNames ? names_ : keys_;
    if (!seen.insert(name).second) {
      Fail(path_, fmt::format("\"{}\" appears twice in the header", name));
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry) FinishEntry();
    place_ = place_ == Place::kNames ? Place::kEnd : Place::kNames;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kEntry && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kEntry && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return Value("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    Fail(path_, fmt::format("the header is not JSON (at its byte {})", position));
  }

  std::vector<SafetensorsFile::Entry> TakeEntries() { return std::move(entries_); }
  std::map<std::string, std::string> TakeMetadata() { return std::move(metadata_); }

 private:
  enum class Place { kStart, kNames, kMetadata, kEntry, kShape, kOffsets, kEnd };
  static constexpr size_t kMostDimensions = 8;

  [[noreturn]] void FailEntry(const std::string& what) {
    Fail(path_, fmt::format("tensor \"{}\": {}", entry_.name, what));
  }

  // For a value where none of its kind belongs.
  bool Value(const char* kind) {
    switch (place_) {
      case Place::kStart:
        Fail(path_, "the header is not an object");
      case Place::kMetadata:
        Fail(path_, fmt::format("__metadata__ \"{}\" is not a text", key_));
      case Place::kShape:
        FailEntry("a size in shape is not a whole number");
      case Place::kOffsets:
        FailEntry("data_offsets are not whole numbers");
      case Place::kNames:
        Fail(path_, fmt::format("\"{}\" is {}, not an object", key_, kind));
      default:
        FailEntry(fmt::format("\"{}\" is {}", key_, kind));
    }
  }

  void FinishEntry() {
    if (!dtype_ || !keys_.contains("shape") || offsets_.size() != 2) {
      FailEntry("needs dtype, shape and data_offsets [begin, end]");
    }
    entry_.dtype = *dtype_;
    entry_.begin = offsets_[0];
    const uint64_t end = offsets_[1];
    if (entry_.begin > end || end > data_bytes_) {
      FailEntry(fmt::format("offsets [{}, {}] lie outside the {} bytes of data", entry_.begin, end,
                            data_bytes_));
    }
    entry_.size_bytes = end - entry_.begin;
    const uint64_t needed = elements_ * SizeOf(entry_.dtype);
    if (entry_.size_bytes != needed) {
      FailEntry(fmt::format("has {} bytes where its shape needs {}", entry_.size_bytes, needed));
    }
    entries_.push_back(std::move(entry_));
  }

  uint64_t data_bytes_;
  const std::string& path_;
  Place place_ = Place::kStart;
  std::string key_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> keys_;  // of the entry being read
  SafetensorsFile::Entry entry_;
  std::optional<DType> dtype_;
  std::vector<uint64_t> offsets_;
  uint64_t elements_ = 1;
  std::vector<SafetensorsFile::Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes f32 as a 16-bit type, a piece at a time.
void WriteHalves(AtomicFile& file, const ConstView& view, DType type) {
  constexpr int64_t kPiece = 1 << 16;
  const auto convert = type == DType::kF16 ? ToF16 : ToBf16;
  const float* values = view.Row<float>();
  std::vector<uint16_t> halves;
  for (int64_t begin = 0; begin < view.elements(); begin += kPiece) {
    const int64_t end = std::min(view.elements(), begin + kPiece);
    halves.assign(end - begin, 0);
    std::transform(values + begin, values + end, halves.begin(), convert);
    file.Write(halves.data(), halves.size() * sizeof(uint16_t));
  }
}

}  // namespace

void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // A list, not a Json object: those look every name up among all before it.
  std::string text = "{";
  const auto add = [&](const std::string& name, const Json& value) {
    if (text.size() > 1) text += ',';
    text += Json(name).dump() + ":" + value.dump();
  };
  if (!metadata.empty()) add("__metadata__", metadata);
  std::unordered_set<std::string> names;
  uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    SANDGLASS_CHECK(tensor.view.contiguous(), "only packed tensors can be written");
    SANDGLASS_CHECK(names.insert(tensor.name).second, "two tensors of one name");
    SANDGLASS_CHECK(tensor.file_type() == tensor.view.dtype || tensor.view.dtype == DType::kF32,
                    "only f32 is converted");
    const uint64_t size_bytes = tensor.file_bytes();
    add(tensor.name, {{"dtype", NameOf(tensor.file_type())},
                      {"shape", tensor.shape},
                      {"data_offsets", {offset, offset + size_bytes}}});
    offset += size_bytes;
  }
  text += '}';
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.Write(&length, sizeof(length));
  file.Write(text);
  for (const NamedTensor& tensor : tensors) {
    if (tensor.file_type() == tensor.view.dtype) {
      file.Write(tensor.view.data, tensor.file_bytes());
    } else {
      WriteHalves(file, tensor.view, tensor.file_type());
    }
  }
  file.Commit();
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  Parse(file_.bytes());
}

SafetensorsFile::SafetensorsFile(std::string_view bytes, std::string path)
    : path_(std::move(path)) {
  Parse(bytes);
}

void SafetensorsFile::Parse(std::string_view bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < kLengthBytes) Fail(path_, "it is shorter than its length field");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kMaximumHeaderBytes || header_bytes > bytes.size() - kLengthBytes) {
    Fail(path_, fmt::format("a header of {} bytes does not fit in a file of {}", header_bytes,
                            bytes.size()));
  }
  data_ = bytes.substr(kLengthBytes + header_bytes);
  HeaderReader reader(data_.size(), path_);
  const std::string_view header = bytes.substr(kLengthBytes, header_bytes);
  Json::sax_parse(header.begin(), header.end(), &reader);
  entries_ = reader.TakeEntries();
  metadata_ = reader.TakeMetadata();
  for (size_t i = 0; i < entries_.size(); ++i) names_[entries_[i].name] = i;
  CheckOffsets();
}

void SafetensorsFile::CheckOffsets() const {
  std::vector<const Entry*> by_offset;
  for (const Entry& entry : entries_) by_offset.push_back(&entry);
  std::stable_sort(by_offset.begin(), by_offset.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->size_bytes) < std::pair(b->begin, b->size_bytes);
  });
  uint64_t end = 0;
  for (const Entry* entry : by_offset) {
    if (entry->begin != end) {
      Fail(path_, fmt::format("tensor \"{}\" begins at {} where the one before ends at {}",
                              entry->name, entry->begin, end));
    }
    end = entry->begin + entry->size_bytes;
  }
  if (end != data_.size()) {
    Fail(path_, fmt::format("{} bytes belong to no tensor", data_.size() - end));
  }
}

int64_t SafetensorsFile::Entry::elements() const {
  return static_cast<int64_t>(size_bytes) / SizeOf(dtype);
}

const SafetensorsFile::Entry& SafetensorsFile::Find(const std::string& name) const {
  if (const auto found = names_.find(name); found != names_.end()) return entries_[found->second];
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  throw Error({.what = fmt::format("there is no tensor \"{}\"", name),
               .where = path_,
               .expected = fmt::format("one of the file's {} tensors", entries_.size()),
               .remedy = DidYouMean(name, names)});
}

std::string_view SafetensorsFile::Bytes(const Entry& entry) const {
  return data_.substr(entry.begin, entry.size_bytes);
}

void SafetensorsFile::CopyTo(const std::string& name, View out) const {
  SANDGLASS_CHECK(out.contiguous(), "tensors are read into packed views");
  const Entry& entry = Find(name);
  if (entry.dtype != out.dtype || entry.elements() != out.elements()) {
    throw Error({.what = fmt::format("tensor \"{}\" holds {} elements of {}", name,
                                     entry.elements(), NameOf(entry.dtype)),
                 .where = path_,
                 .expected = fmt::format("{} elements of {}", out.elements(), NameOf(out.dtype)),
                 .remedy = "use the file with the configuration that it was written with"});
  }
  if (entry.size_bytes > 0) std::memcpy(out.data, Bytes(entry).data(), entry.size_bytes);
}

void SafetensorsFile::ReadF32(const Entry& entry, std::span<float> out) const {
  SANDGLASS_CHECK(std::ssize(out) == entry.elements(), "room for every element");
  const char* bytes = Bytes(entry).data();
  const auto read = [&]<class T>(T, const auto& convert) {
    for (size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
      out[i] = convert(value);
    }
  };
  switch (entry.dtype) {
    case DType::kF32:
      return read(float{}, [](float value) { return value; });
    case DType::kF64:
      return read(double{}, [](double value) { return static_cast<float>(value); });
    case DType::kBF16:
      return read(uint16_t{}, FromBf16);
    case DType::kF16:
      return read(uint16_t{}, FromF16);
  }
}

SafetensorsDirectory::SafetensorsDirectory(const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string single = fmt::format("{}/{}", directory, kSafetensorsFile);
  const std::string index = fmt::format("{}/{}", directory, kSafetensorsIndex);
  if (fs::exists(single)) {
    files_.emplace_back(single);
  } else if (fs::exists(index)) {
    AddShards(directory, index);
  } else {
    throw Error({.what = fmt::format("there are no weights: neither {} nor {}", kSafetensorsFile,
                                     kSafetensorsIndex),
                 .where = directory,
                 .expected = "weights as safetensors",
                 .remedy = "files of other kinds (pytorch_model.bin) can be saved again as "
                           "safetensors by the program that wrote them"});
  }
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsFile::Entry& entry : file.entries()) {
      tensors_[entry.name] = {&file, &entry};
    }
  }
}

void SafetensorsDirectory::AddShards(const std::string& directory, const std::string& index_path) {
  const auto fail = [&](const std::string& what) {
    throw Error({.what = "not a sound index of shards: " + what,
                 .where = index_path,
                 .expected = "{\"weight_map\": {tensor: file}}",
                 .remedy = "copy the model again, with all of its files"});
  };
  nlohmann::json index;  // sorted: quick to look up, however many names there are
  try {
    index = nlohmann::json::parse(ReadFile(index_path));
  } catch (const Json::exception& failure) {
    fail(fmt::format("not valid JSON ({})", failure.what()));
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    fail("it has no weight_map");
  }
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) fail(fmt::format("the file of \"{}\" is not a text", tensor));
    const std::string name = shard.get<std::string>();
    // A name and nothing else: no other directory, not the index itself.
    if (name.find_first_of("/\\") != std::string::npos || !name.ends_with(".safetensors")) {
      fail(fmt::format("\"{}\" lies in \"{}\", which is not the name of a safetensors file", tensor,
                       name));
    }
    shard_of[tensor] = name;
    shards.insert(name);
  }
  std::map<std::string, std::string> found;
  for (const std::string& shard : shards) {
    const std::string path = directory + "/" + shard;
    if (!std::filesystem::exists(path)) fail(fmt::format("the shard {} is missing", shard));
    files_.emplace_back(path);
    for (const SafetensorsFile::Entry& entry : files_.back().entries()) {
      if (const auto [other, added] = found.emplace(entry.name, shard); !added) {
        fail(fmt::format("tensor \"{}\" is in two shards, {} and {}", entry.name, other->second,
                         shard));
      }
      const auto listed = shard_of.find(entry.name);
      if (listed == shard_of.end() || listed->second != shard) {
        fail(fmt::format("it does not name {} for tensor \"{}\"", shard, entry.name));
      }
    }
  }
  for (const auto& [tensor, shard] : shard_of) {
    if (!found.contains(tensor)) fail(fmt::format("{} has no tensor \"{}\"", shard, tensor));
  }
}

}  // namespace sandglass
