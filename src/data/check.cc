#include "data/check.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace sandglass {
namespace {

// An odd multiplier with well mixed bits (the fraction of the golden ratio).
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;

uint64_t Mix(uint64_t hash) {
  hash = (hash ^ (hash >> 32)) * kMultiplier;
  return hash ^ (hash >> 29);
}

// A polynomial over the tokens of a stretch.
uint64_t Extend(uint64_t polynomial, TokenId id) {
  return polynomial * kMultiplier + static_cast<uint64_t>(id) + 1;
}

// Calls token(id) for each token that is no separator and end() behind each document.
template <class Token, class End>
void ForEachToken(const SampleSource& source, Progress& progress, uint64_t& done,
                  const Token& token, const End& end) {
  SANDGLASS_CHECK(source.documents.has_value(), "documents without a separator");
  std::vector<TokenId> ids(size_t{1} << 16);
  for (int64_t begin = 0; begin < source.stream->tokens(); begin += std::ssize(ids)) {
    if (InterruptRequested()) throw Interrupted{"nothing was written; start it again"};
    const auto count = std::min<int64_t>(std::ssize(ids), source.stream->tokens() - begin);
    const auto piece = std::span(ids).first(static_cast<size_t>(count));
    source.stream->Read(begin, piece);
    for (const TokenId id : piece) id == source.documents->id ? end() : token(id);
    progress.Update(done += static_cast<uint64_t>(count));
  }
  end();
}

// One document of either split.
struct Entry {
  uint64_t hash;
  uint32_t stream;  // validation streams first, then training
  int64_t document;

  bool operator<(const Entry& other) const {
    return std::tie(hash, stream, document) < std::tie(other.hash, other.stream, other.document);
  }
};

class Checker {
 public:
  Checker(const std::vector<SampleSource>& train, const std::vector<SampleSource>& validation,
          const CheckOptions& options)
      : validation_streams_(static_cast<uint32_t>(validation.size())), options_(options) {
    sources_ = validation;
    sources_.insert(sources_.end(), train.begin(), train.end());
    for (const SampleSource& source : sources_) tokens_ += source.stream->tokens();
  }

  CheckReport Run() {
    // The first pass counts, and keeps what fits.
    for (int64_t pass = 0, passes = 1; pass < passes; ++pass) {
      Progress progress("documents", static_cast<uint64_t>(tokens_), "tokens", options_.progress);
      const int64_t documents = Collect(pass, passes, progress);
      progress.Finish();
      const int64_t needed = documents * static_cast<int64_t>(sizeof(Entry));
      if (pass == 0 && passes == 1 && needed > options_.memory_bytes) {
        passes = (needed + options_.memory_bytes - 1) / options_.memory_bytes;
        report_.passes = static_cast<int>(passes);
        report_.train_documents = report_.validation_documents = 0;
        pass = -1;
        continue;
      }
      CountRepeats();
    }
    FindPassages();
    return report_;
  }

 private:
  bool IsValidation(uint32_t stream) const { return stream < validation_streams_; }

  // Entries of the documents whose hash belongs to this pass; the number of all documents.
  int64_t Collect(int64_t pass, int64_t passes, Progress& progress) {
    entries_.clear();
    const auto most = static_cast<size_t>(options_.memory_bytes) / sizeof(Entry);
    uint64_t done = 0;
    int64_t documents = 0;
    for (uint32_t stream = 0; stream < sources_.size(); ++stream) {
      int64_t document = 0;
      uint64_t polynomial = 0;
      ForEachToken(
          sources_[stream], progress, done,
          [&](TokenId id) { polynomial = Extend(polynomial, id); },
          [&] {
            if (polynomial == 0) return;  // empty
            const uint64_t hash = Mix(std::exchange(polynomial, 0));
            const bool ours = static_cast<int64_t>(hash % static_cast<uint64_t>(passes)) == pass;
            // On the first, counting pass there may be too many.
            if (ours && (passes > 1 || entries_.size() < most)) {
              entries_.push_back({hash, stream, document});
            }
            ++document;
          });
      documents += document;
      if (pass == 0) {
        (IsValidation(stream) ? report_.validation_documents : report_.train_documents) += document;
      }
    }
    return documents;
  }

  void CountRepeats() {
    std::sort(entries_.begin(), entries_.end());
    for (size_t begin = 0, end = 0; begin < entries_.size(); begin = end) {
      while (end < entries_.size() && entries_[end].hash == entries_[begin].hash) ++end;
      const Entry& first = entries_[begin];
      for (size_t i = begin; i < end; ++i) {
        const bool in_validation = IsValidation(entries_[i].stream);
        if (!in_validation && IsValidation(first.stream)) ++report_.shared_documents;
        const bool repeats = i > begin && IsValidation(entries_[i - 1].stream) == in_validation;
        if (repeats) ++(in_validation ? report_.validation_repeats : report_.train_repeats);
        if (i > begin && std::ssize(report_.examples) < options_.examples) {
          report_.examples.push_back({sources_[entries_[i].stream].stream->path(),
                                      entries_[i].document, sources_[first.stream].stream->path(),
                                      first.document});
        }
      }
    }
    entries_ = {};
  }

  void FindPassages() {
    std::vector<uint64_t> passages;
    Progress progress("passages", static_cast<uint64_t>(tokens_), "tokens", options_.progress);
    uint64_t done = 0;
    for (uint32_t stream = 0; stream < validation_streams_; ++stream) {
      uint64_t polynomial = 0;
      int count = 0;
      ForEachToken(
          sources_[stream], progress, done,
          [&](TokenId id) {
            polynomial = Extend(polynomial, id);
            if (++count < options_.passage) return;
            passages.push_back(std::exchange(polynomial, 0));
            count = 0;
          },
          [&] { polynomial = static_cast<uint64_t>(count = 0); });
    }
    report_.validation_passages = std::ssize(passages);
    std::sort(passages.begin(), passages.end());
    std::vector<bool> found(passages.size());
    // The polynomial of the last `passage` tokens, which slides along; `window` is a ring of them.
    uint64_t leaving = 1;
    for (int i = 0; i < options_.passage; ++i) leaving *= kMultiplier;
    std::vector<TokenId> window(static_cast<size_t>(options_.passage));
    for (size_t stream = validation_streams_; stream < sources_.size(); ++stream) {
      uint64_t polynomial = 0;
      int64_t count = 0;
      ForEachToken(
          sources_[stream], progress, done,
          [&](TokenId id) {
            TokenId& place = window[static_cast<size_t>(count % options_.passage)];
            polynomial = Extend(polynomial, id);
            if (count >= options_.passage) {
              polynomial -= leaving * (static_cast<uint64_t>(place) + 1);
            }
            place = id;
            if (++count < options_.passage) return;
            const auto at = std::lower_bound(passages.begin(), passages.end(), polynomial);
            if (at != passages.end() && *at == polynomial) {
              found[static_cast<size_t>(at - passages.begin())] = true;
            }
          },
          [&] { polynomial = static_cast<uint64_t>(count = 0); });
    }
    progress.Finish();
    for (size_t i = 0, first = 0; i < passages.size(); ++i) {
      if (passages[i] != passages[first]) first = i;
      report_.shared_passages += found[first] ? 1 : 0;
    }
  }

  std::vector<SampleSource> sources_;
  uint32_t validation_streams_;
  const CheckOptions& options_;
  int64_t tokens_ = 0;
  CheckReport report_;
  std::vector<Entry> entries_;
};

}  // namespace

CheckReport CheckData(const std::vector<SampleSource>& train,
                      const std::vector<SampleSource>& validation, const CheckOptions& options) {
  if (options.passage < 1) {
    throw Error({.what = "a passage needs at least one token", .where = "--passage"});
  }
  return Checker(train, validation, options).Run();
}

}  // namespace sandglass
