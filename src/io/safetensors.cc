#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace sandglass {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are stored as they lie in memory");

constexpr uint64_t kLengthBytes = 8;
// The format's own limit on the header.
constexpr uint64_t kMaximumHeaderBytes = 100'000'000;

const char* NameOf(DType dtype) {
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
  return "?";
}

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw Error({.what = "not a sound safetensors file: " + what,
               .where = path,
               .remedy = "copy or write the file again; it may be truncated or damaged"});
}

// JSON objects with a name twice are legal JSON and a trap here: the parser would keep one.
Json ParseHeader(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > 4) throw Error({.what = "header nested too deeply", .where = path});
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::exception& failure) {
    Fail(path, fmt::format("the header is not JSON ({})", failure.what()));
  }
  if (!repeated.empty()) Fail(path, fmt::format("\"{}\" appears twice in the header", repeated));
  if (!header.is_object()) Fail(path, "the header is not an object");
  return header;
}

SafetensorsFile::Entry ParseEntry(const std::string& name, const Json& value, uint64_t data_bytes,
                                  const std::string& path) {
  const auto fail = [&](const std::string& what) {
    Fail(path, fmt::format("tensor \"{}\": {}", name, what));
  };
  SafetensorsFile::Entry entry{.name = name};
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
      !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
    fail("needs dtype, shape and data_offsets [begin, end]");
  }
  const std::string dtype = value["dtype"].get<std::string>();
  bool known = false;
  for (const DType candidate : {DType::kF32, DType::kF64, DType::kBF16}) {
    if (dtype == NameOf(candidate)) {
      entry.dtype = candidate;
      known = true;
    }
  }
  if (!known) fail(fmt::format("type {} is not supported (F32, F64, BF16 are)", dtype));
  uint64_t bytes = SizeOf(entry.dtype);
  for (const Json& size : value["shape"]) {
    if (!size.is_number_unsigned()) fail("a size in shape is not a whole number");
    const uint64_t extent = size.get<uint64_t>();
    if (extent != 0 && bytes > std::numeric_limits<int64_t>::max() / extent) {
      fail("its size overflows");
    }
    bytes *= extent;
    entry.shape.push_back(static_cast<int64_t>(extent));
  }
  for (const Json& offset : value["data_offsets"]) {
    if (!offset.is_number_unsigned()) fail("data_offsets are not whole numbers");
  }
  entry.begin = value["data_offsets"][0].get<uint64_t>();
  const uint64_t end = value["data_offsets"][1].get<uint64_t>();
  if (entry.begin > end || end > data_bytes) {
    fail(fmt::format("offsets [{}, {}] lie outside the {} bytes of data", entry.begin, end,
                     data_bytes));
  }
  entry.size_bytes = end - entry.begin;
  if (entry.size_bytes != bytes) {
    fail(fmt::format("has {} bytes where its shape needs {}", entry.size_bytes, bytes));
  }
  return entry;
}

}  // namespace

void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    SANDGLASS_CHECK(tensor.view.contiguous(), "only packed tensors can be written");
    SANDGLASS_CHECK(!header.contains(tensor.name), "two tensors of one name");
    const uint64_t size_bytes = tensor.view.elements() * SizeOf(tensor.view.dtype);
    header[tensor.name] = {{"dtype", NameOf(tensor.view.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + size_bytes}}};
    offset += size_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.Write(&length, sizeof(length));
  file.Write(text);
  for (const NamedTensor& tensor : tensors) {
    file.Write(tensor.view.data, tensor.view.elements() * SizeOf(tensor.view.dtype));
  }
  file.Commit();
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  const std::string_view bytes = file_.bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() < kLengthBytes) Fail(path, "it is shorter than its length field");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kMaximumHeaderBytes || header_bytes > bytes.size() - kLengthBytes) {
    Fail(path, fmt::format("a header of {} bytes does not fit in a file of {}", header_bytes,
                           bytes.size()));
  }
  data_ = bytes.substr(kLengthBytes + header_bytes);
  const Json header = ParseHeader(bytes.substr(kLengthBytes, header_bytes), path);
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries_.push_back(ParseEntry(name, value, data_.size(), path));
      continue;
    }
    if (!value.is_object()) Fail(path, "__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) Fail(path, fmt::format("__metadata__ \"{}\" is not a string", key));
      metadata_[key] = text.get<std::string>();
    }
  }
  std::vector<const Entry*> by_offset;
  for (const Entry& entry : entries_) by_offset.push_back(&entry);
  std::stable_sort(by_offset.begin(), by_offset.end(),
                   [](const Entry* a, const Entry* b) { return a->begin < b->begin; });
  uint64_t end = 0;
  for (const Entry* entry : by_offset) {
    if (entry->begin != end) {
      Fail(path, fmt::format("tensor \"{}\" begins at {} where the one before ends at {}",
                             entry->name, entry->begin, end));
    }
    end = entry->begin + entry->size_bytes;
  }
  if (end != data_.size())
    Fail(path, fmt::format("{} bytes belong to no tensor", data_.size() - end));
}

int64_t SafetensorsFile::Entry::elements() const {
  return static_cast<int64_t>(size_bytes) / SizeOf(dtype);
}

const SafetensorsFile::Entry& SafetensorsFile::Find(const std::string& name) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
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
  std::memcpy(out.data, Bytes(entry).data(), entry.size_bytes);
}

}  // namespace sandglass
