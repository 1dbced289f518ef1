#include "data/token_stream.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace sandglass {

JoinedStream::JoinedStream(std::string path, std::vector<std::unique_ptr<TokenStream>> parts)
    : path_(std::move(path)), parts_(std::move(parts)) {
  SANDGLASS_CHECK(!parts_.empty(), "a stream of no parts");
  int64_t tokens = 0;
  for (const auto& part : parts_) ends_.push_back(tokens += part->tokens());
}

void JoinedStream::Read(int64_t begin, std::span<TokenId> out) const {
  SANDGLASS_CHECK(begin >= 0 && begin + std::ssize(out) <= tokens(), "read past the end");
  auto part = static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  for (; !out.empty(); ++part) {
    const int64_t count = std::min(ends_[part] - begin, static_cast<int64_t>(out.size()));
    const int64_t part_begin = ends_[part] - parts_[part]->tokens();
    parts_[part]->Read(begin - part_begin, out.first(static_cast<size_t>(count)));
    out = out.subspan(static_cast<size_t>(count));
    begin += count;
  }
}

std::string JoinedStream::fingerprint() const {
  std::string all;
  for (const auto& part : parts_) all += part->fingerprint();
  return HashHex(HashBytes(all));
}

}  // namespace sandglass
