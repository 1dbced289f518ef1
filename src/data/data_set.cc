#include "data/data_set.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/fields.h"
#include "base/hash.h"
#include "data/prepare.h"
#include "data/token_shard.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

bool IsPrepared(const SourceOptions& source) {
  return fs::is_directory(source.path) && fs::exists(fs::path(source.path) / kTokenizerName);
}

// `key` is the table of the source, for messages.
void CheckSource(const SourceOptions& source, const std::string& key) {
  const auto fail = [&](const char* field, std::string what, std::string expected,
                        std::string remedy = "") {
    throw Error({.what = std::move(what),
                 .where = fmt::format("{}.{}", key, field),
                 .expected = std::move(expected),
                 .remedy = std::move(remedy)});
  };
  const char* const kExpected =
      "a directory that `sandglass prepare` wrote, or token files of another program";
  if (source.path.empty()) fail("path", "no data is given", kExpected);
  if (fs::is_directory(source.path) && !IsPrepared(source)) {
    throw Error({.what = "the directory holds no prepared data",
                 .where = source.path,
                 .expected = kExpected,
                 .remedy = "sandglass prepare makes it; name token files by a pattern, such as \"" +
                           source.path + "/*.bin\""});
  }
  if (IsPrepared(source)) {
    if (!source.validation.empty()) {
      fail("validation", "prepared data has its own validation", "no validation files");
    }
    return;
  }
  if (source.validation.empty() && !fs::exists(source.path) &&
      source.path.find_first_of("*?[") == std::string::npos) {
    throw Error({.what = "there is no such data directory",
                 .where = source.path,
                 .expected = kExpected,
                 .remedy = "sandglass prepare --tokenizer tokenizer.json --out " + source.path +
                           " TEXT..."});
  }
  if (source.validation.empty()) {
    fail("validation", "token files say nothing about validation",
         "files for validation: validation = \"val_*.bin\"");
  }
}

// Shares from weights, from token counts, or from the sizes of the streams.
std::vector<uint64_t> SharesOf(const std::vector<SourceOptions>& sources,
                               const std::vector<SampleSource>& streams) {
  constexpr double kOne = 0x1p40;
  double largest = 0;
  size_t weights = 0, counts = 0;
  for (const SourceOptions& source : sources) {
    const bool bad = !std::isfinite(source.weight) || source.weight < 0 || source.tokens < 0;
    if (bad || source.tokens > int64_t{1} << 50) {
      throw Error({.what = fmt::format("the share of {} makes no sense", source.path),
                   .where = "[[data.sources]]",
                   .expected = "weight or tokens above 0"});
    }
    weights += source.weight > 0 ? 1 : 0;
    counts += source.tokens > 0 ? 1 : 0;
    largest = std::max(largest, source.weight);
  }
  const bool whole = (weights == 0 || weights == sources.size()) &&
                     (counts == 0 || counts == sources.size()) && !(weights > 0 && counts > 0);
  if (!whole) {
    throw Error({.what = "the shares of the sources are mixed",
                 .where = "[[data.sources]]",
                 .expected = "weight for every source, or tokens for every source, or neither "
                             "(then by size)"});
  }
  std::vector<uint64_t> shares;
  for (size_t i = 0; i < sources.size(); ++i) {
    const double weight = std::max(1.0, std::round(sources[i].weight / largest * kOne));
    shares.push_back(counts > 0    ? static_cast<uint64_t>(sources[i].tokens)
                     : weights > 0 ? static_cast<uint64_t>(weight)
                                   : static_cast<uint64_t>(streams[i].stream->tokens()));
  }
  return shares;
}

class Opener {
 public:
  Opener(const DataOptions& options, DataSet& data) : options_(options), data_(data) {}

  // What the whole set shares: tokenizer and vocabulary.
  void FindVocabulary(const std::vector<SourceOptions>& sources, const TokenizerLoader& load) {
    std::string path = options_.tokenizer;
    for (const SourceOptions& source : sources) {
      if (path.empty() && IsPrepared(source)) {
        path = (fs::path(source.path) / kTokenizerName).string();
      }
    }
    if (!path.empty()) {
      data_.tokenizer = load(path);
      data_.vocabulary = data_.tokenizer->vocabulary();
    } else if (options_.vocabulary > 0) {
      data_.vocabulary = options_.vocabulary;
    } else {
      throw Error({.what = "nothing says how many token ids there are",
                   .where = "data.vocabulary",
                   .expected = "data.tokenizer = \"tokenizer.json\", or data.vocabulary = 50257 "
                               "for ids only"});
    }
    if (data_.vocabulary > int64_t{1} << 31) {
      throw Error({.what = fmt::format("a vocabulary of {} is too large", data_.vocabulary),
                   .where = "data.vocabulary",
                   .expected = "at most 2147483648"});
    }
  }

  void Add(const SourceOptions& source) {
    if (IsPrepared(source)) {
      const auto side = [&](const char* name) {
        auto shard = std::make_unique<TokenShard>((fs::path(source.path) / name).string());
        shard->RequireTokenizer(*data_.tokenizer);
        return shard;
      };
      std::optional<DocumentSeparator> documents;
      if (options_.document_masking) {
        documents = {data_.tokenizer->end_of_text(), SeparatorSide::kBefore};
      }
      data_.train.push_back({Keep(side(kTrainShardName)), 1, documents});
      data_.validation.push_back({Keep(side(kValidationShardName)), 1, documents});
      return;
    }
    const TokenFileOptions file = {source.format, source.dtype, data_.vocabulary};
    const auto documents = SeparatorOf(source);
    data_.train.push_back({Keep(OpenTokenFiles(source.path, file)), 1, documents});
    data_.validation.push_back({Keep(OpenTokenFiles(source.validation, file)), 1, documents});
  }

 private:
  const TokenStream* Keep(std::unique_ptr<TokenStream> stream) {
    return data_.streams.emplace_back(std::move(stream)).get();
  }

  std::optional<DocumentSeparator> SeparatorOf(const SourceOptions& source) const {
    if (!options_.document_masking) return std::nullopt;
    if (!source.separator && !data_.tokenizer) {
      throw Error({.what = "document masking needs the id that separates documents",
                   .where = source.path,
                   .expected = "separator = 50256, or a tokenizer"});
    }
    const int64_t id =
        source.separator.value_or(data_.tokenizer ? data_.tokenizer->end_of_text() : -1);
    if (id < 0 || id >= data_.vocabulary) {
      throw Error({.what = fmt::format("the separator {} is no token id", id),
                   .where = source.path,
                   .expected = fmt::format("an id below {}", data_.vocabulary)});
    }
    const TokenFormat format = source.format == TokenFormat::kAuto
                                   ? DetectTokenFormat(FindTokenFiles(source.path).front())
                                   : source.format;
    const bool leads = format == TokenFormat::kLlmC || format == TokenFormat::kSandglass;
    return DocumentSeparator{
        static_cast<TokenId>(id),
        source.separator_side.value_or(leads ? SeparatorSide::kBefore : SeparatorSide::kAfter)};
  }

  const DataOptions& options_;
  DataSet& data_;
};

std::string HashOf(const std::vector<SampleSource>& sources) {
  if (sources.size() == 1) return sources.front().stream->fingerprint();
  std::string all;
  for (const SampleSource& source : sources) {
    all += fmt::format("{} {}\n", source.stream->fingerprint(), source.share);
  }
  return HashHex(HashBytes(all));
}

}  // namespace

DataSet DataSet::Open(const DataOptions& options, const TokenizerLoader& load_tokenizer) {
  if (!options.sources.empty() && !options.path.empty()) {
    throw Error({.what = "one source and a mixture are given",
                 .where = "[data]",
                 .expected = "either path or [[data.sources]] tables"});
  }
  const bool one = options.sources.empty();
  const std::vector<SourceOptions> sources =
      one ? std::vector<SourceOptions>{options} : options.sources;
  for (size_t i = 0; i < sources.size(); ++i) {
    CheckSource(sources[i], one ? "data" : fmt::format("data.sources[{}]", i));
  }
  DataSet data;
  Opener opener(options, data);
  opener.FindVocabulary(sources, load_tokenizer);
  for (const SourceOptions& source : sources) opener.Add(source);
  const std::vector<uint64_t> shares = SharesOf(sources, data.train);
  for (size_t i = 0; i < shares.size(); ++i) data.train[i].share = shares[i];
  return data;
}

std::string DataSet::train_hash() const { return HashOf(train); }
std::string DataSet::validation_hash() const { return HashOf(validation); }

TokenByteCounts DataSet::byte_counts() const {
  return tokenizer ? tokenizer->byte_counts() : TokenByteCounts();
}

const Tokenizer& DataSet::RequireTokenizer(const char* purpose) const {
  if (!tokenizer) {
    throw Error({.what = fmt::format("{} needs a tokenizer; the data are ids only", purpose),
                 .where = "data.tokenizer",
                 .expected = "the tokenizer.json that the ids were made with"});
  }
  return *tokenizer;
}

}  // namespace sandglass
