#include "io/gguf_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace sandglass {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored as in memory");

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw Error({.what = "not a sound GGUF file: " + what,
               .where = path,
               .remedy = "copy or write the file again; it may be truncated or damaged"});
}

// Takes the file apart from its front and never reads past its end.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  std::string_view Take(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      Fail(path_, fmt::format("{} at byte {} needs {} bytes where the file has {} left", what,
                              position_, count, remaining()));
    }
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }

  template <class T>
  T Number(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view Text(std::string_view what) { return Take(Number<uint64_t>(what), what); }

  // A count of things that take at least `least_bytes` each, so that a hostile one cannot ask for
  // more memory than the file is long.
  size_t Count(std::string_view what, uint64_t least_bytes) {
    const auto count = Number<uint64_t>(what);
    if (count > remaining() / least_bytes) {
      Fail(path_, fmt::format("{} is {}, more than the file has room for", what,
                              static_cast<int64_t>(count)));
    }
    return count;
  }

 private:
  std::string_view bytes_;
  const std::string& path_;
  size_t position_ = 0;
};

constexpr bool IsReal(GgufValueType type) {
  return type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

// Bytes of one value, 0 for text and arrays and for what is not a type.
constexpr uint64_t WidthOf(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

double ReadReal(Reader& reader, GgufValueType type, std::string_view what) {
  return type == GgufValueType::kF32 ? reader.Number<float>(what) : reader.Number<double>(what);
}

int64_t ReadWhole(Reader& reader, GgufValueType type, std::string_view what,
                  const std::string& path) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kBool:
      return reader.Number<uint8_t>(what);
    case GgufValueType::kI8:
      return reader.Number<int8_t>(what);
    case GgufValueType::kU16:
      return reader.Number<uint16_t>(what);
    case GgufValueType::kI16:
      return reader.Number<int16_t>(what);
    case GgufValueType::kU32:
      return reader.Number<uint32_t>(what);
    case GgufValueType::kI32:
      return reader.Number<int32_t>(what);
    case GgufValueType::kI64:
      return reader.Number<int64_t>(what);
    default:
      break;
  }
  const auto value = reader.Number<uint64_t>(what);
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Fail(path, fmt::format("{} holds {}, which is out of range", what, value));
  }
  return static_cast<int64_t>(value);
}

GgufValue ReadArray(Reader& reader, std::string_view what, const std::string& path) {
  const auto type = static_cast<GgufValueType>(reader.Number<uint32_t>(what));
  const uint64_t width = WidthOf(type);
  if (type == GgufValueType::kString) {
    std::vector<std::string_view> texts(reader.Count(what, sizeof(uint64_t)));
    for (std::string_view& text : texts) text = reader.Text(what);
    return texts;
  }
  if (width == 0) {
    Fail(path, fmt::format("{} is an array of value type {}, which cannot be read", what,
                           static_cast<uint32_t>(type)));
  }
  const size_t count = reader.Count(what, width);
  if (IsReal(type)) {
    std::vector<double> values(count);
    for (double& value : values) value = ReadReal(reader, type, what);
    return values;
  }
  std::vector<int64_t> values(count);
  for (int64_t& value : values) value = ReadWhole(reader, type, what, path);
  return values;
}

GgufValue ReadValue(Reader& reader, std::string_view what, const std::string& path) {
  const auto type = static_cast<GgufValueType>(reader.Number<uint32_t>(what));
  if (type == GgufValueType::kString) return reader.Text(what);
  if (type == GgufValueType::kArray) return ReadArray(reader, what, path);
  if (type == GgufValueType::kBool) return reader.Number<uint8_t>(what) != 0;
  if (IsReal(type)) return ReadReal(reader, type, what);
  if (WidthOf(type) == 0) {
    Fail(path, fmt::format("{} has value type {}, which does not exist", what,
                           static_cast<uint32_t>(type)));
  }
  return ReadWhole(reader, type, what, path);
}

// Name, dimensions, type and offset; whether the offset is right shows once all are known.
GgufFile::Tensor ReadTensor(Reader& reader, const std::string& path) {
  GgufFile::Tensor tensor;
  tensor.name = reader.Text("a tensor name");
  const auto fail = [&](const std::string& what) {
    Fail(path, fmt::format("tensor \"{}\": {}", tensor.name, what));
  };
  if (tensor.name.size() >= kGgufNameBytes) {
    fail(fmt::format("its name has {} bytes, at most {} are allowed", tensor.name.size(),
                     kGgufNameBytes - 1));
  }
  const auto dimensions = reader.Number<uint32_t>("a number of dimensions");
  if (dimensions == 0 || dimensions > kGgufMaxDimensions) {
    fail(fmt::format("{} dimensions, where 1 to {} are allowed", dimensions, kGgufMaxDimensions));
  }
  tensor.shape.resize(dimensions);
  int64_t elements = 1;
  for (uint32_t i = dimensions; i-- > 0;) {
    const auto size = reader.Number<int64_t>("a dimension");
    if (size <= 0) fail(fmt::format("a dimension of {}", size));
    if (elements > std::numeric_limits<int64_t>::max() / 8 / size) fail("its size overflows");
    elements *= size;
    tensor.shape[i] = size;
  }
  const auto type_id = reader.Number<uint32_t>("a tensor type");
  const GgufTypeInfo* type = FindGgufType(type_id);
  if (type == nullptr) {
    throw Error({.what = fmt::format("tensor \"{}\" is of {} (id {}), which cannot be read",
                                     tensor.name, GgufTypeName(type_id), type_id),
                 .where = path,
                 .expected = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 or Q2_K to Q6_K",
                 .remedy = "use a file that was quantised to one of these types"});
  }
  if (tensor.shape.back() % type->block_elements != 0) {
    fail(fmt::format("rows of {} elements are no whole blocks of {}, as {} needs",
                     tensor.shape.back(), type->block_elements, type->name));
  }
  tensor.type = type->type;
  tensor.size_bytes = static_cast<uint64_t>(elements / type->block_elements * type->block_bytes);
  tensor.begin = reader.Number<uint64_t>("a tensor offset");
  return tensor;
}

uint64_t PaddedTo(uint64_t alignment, uint64_t size) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : path_(path), file_(path) { Parse(file_.bytes()); }

GgufFile::GgufFile(std::string_view bytes, std::string path) : path_(std::move(path)) {
  Parse(bytes);
}

void GgufFile::Parse(std::string_view bytes) {
  if (!bytes.starts_with(kGgufMagic)) {
    throw Error({.what = "this is not a GGUF file: it does not begin with \"GGUF\"",
                 .where = path_,
                 .expected = "a GGUF file"});
  }
  Reader reader(bytes, path_);
  reader.Take(kGgufMagic.size(), "the magic");
  const auto version = reader.Number<uint32_t>("the version");
  if (version != 2 && version != kGgufVersion) {
    throw Error({.what = version > 0xffff
                             ? std::string("the file is big-endian, or its version is damaged")
                             : fmt::format("GGUF version {} cannot be read", version),
                 .where = path_,
                 .expected = "a little-endian file of version 2 or 3"});
  }
  // The least that a tensor and a key take in the file.
  constexpr uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;
  constexpr uint64_t kLeastKeyBytes = 8 + 4 + 1;
  const size_t tensors = reader.Count("the number of tensors", kLeastTensorBytes);
  const size_t keys = reader.Count("the number of keys", kLeastKeyBytes);
  for (size_t i = 0; i < keys; ++i) {
    std::string key(reader.Text("a key"));
    if (!keys_.emplace(key, i).second) Fail(path_, fmt::format("key \"{}\" appears twice", key));
    GgufValue value = ReadValue(reader, key, path_);
    metadata_.push_back({std::move(key), std::move(value)});
  }
  const int64_t alignment =
      Get<int64_t>("general.alignment").value_or(static_cast<int64_t>(kGgufAlignment));
  constexpr int64_t kLargestAlignment = 1 << 20;
  if (alignment < 1 || alignment > kLargestAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    Fail(path_, fmt::format("general.alignment is {}, not a small power of two", alignment));
  }
  for (size_t i = 0; i < tensors; ++i) {
    tensors_.push_back(ReadTensor(reader, path_));
    if (!names_.emplace(tensors_.back().name, i).second) {
      Fail(path_, fmt::format("tensor \"{}\" appears twice", tensors_.back().name));
    }
  }
  const uint64_t data_begin = PaddedTo(alignment, reader.position());
  data_ = data_begin < bytes.size() ? bytes.substr(data_begin) : std::string_view();
  uint64_t end = 0;
  for (const Tensor& tensor : tensors_) {
    if (tensor.begin != end) {
      Fail(path_, fmt::format("tensor \"{}\" begins at {} where the one before ends at {}",
                              tensor.name, tensor.begin, end));
    }
    if (tensor.begin > data_.size() || tensor.size_bytes > data_.size() - tensor.begin) {
      Fail(path_, fmt::format("tensor \"{}\" takes bytes {} to {} of {} bytes of data", tensor.name,
                              tensor.begin, tensor.begin + tensor.size_bytes, data_.size()));
    }
    end = PaddedTo(alignment, tensor.begin + tensor.size_bytes);
  }
}

int64_t GgufFile::Tensor::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

const GgufFile::Tensor* GgufFile::Find(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

std::string_view GgufFile::Bytes(const Tensor& tensor) const {
  return data_.substr(tensor.begin, tensor.size_bytes);
}

const GgufValue* GgufFile::FindValue(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].value;
}

std::string_view GgufFile::KindOf(const GgufValue& value) {
  constexpr std::string_view kKinds[] = {
      "true or false",           "a whole number",    "a number",       "a text",
      "a list of whole numbers", "a list of numbers", "a list of texts"};
  static_assert(std::size(kKinds) == std::variant_size_v<GgufValue>);
  return kKinds[value.index()];
}

void GgufFile::FailKind(const std::string& key, std::string_view expected,
                        std::string_view found) const {
  throw Error({.what = fmt::format("the key {} holds {}", key, found),
               .where = path_,
               .expected = std::string(expected)});
}

void GgufFile::FailMissing(const std::string& key) const {
  throw Error({.what = fmt::format("the file has no key {}", key),
               .where = path_,
               .expected = "a GGUF file of a language model"});
}

}  // namespace sandglass
