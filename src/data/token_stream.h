// A stream of token ids, whatever files it lies in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace sandglass {

class TokenStream {
 public:
  virtual ~TokenStream() = default;

  // The file or files, for people.
  virtual const std::string& path() const = 0;
  virtual int64_t tokens() const = 0;
  // Copies the ids from `begin` on; begin + out.size() <= tokens(). Threads may read at once.
  // Throws Error, naming file and offset, for an id outside the vocabulary: no such id leaves a
  // stream.
  virtual void Read(int64_t begin, std::span<TokenId> out) const = 0;
  // Tells whether two streams hold the same ids, as 16 hexadecimal digits.
  virtual std::string fingerprint() const = 0;
};

// Streams one after another as one.
class JoinedStream final : public TokenStream {
 public:
  // At least one part.
  JoinedStream(std::string path, std::vector<std::unique_ptr<TokenStream>> parts);

  const std::string& path() const override { return path_; }
  int64_t tokens() const override { return ends_.back(); }
  void Read(int64_t begin, std::span<TokenId> out) const override;
  std::string fingerprint() const override;

 private:
  std::string path_;
  std::vector<std::unique_ptr<TokenStream>> parts_;
  std::vector<int64_t> ends_;  // of each part, in tokens from the beginning
};

}  // namespace sandglass
