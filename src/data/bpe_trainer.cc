#include "data/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <span>
#include <unordered_map>

#include "base/cpu.h"
#include "base/error.h"
#include "base/format.h"
#include "base/interrupt.h"
#include "data/parallel.h"
#include "data/tokenizer_json.h"

namespace sandglass {
namespace {

constexpr int kFirstMerge = 257;  // after end-of-text and the bytes
constexpr int64_t kMinPairCount = 2;

struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view piece) const { return std::hash<std::string_view>{}(piece); }
};
using PieceCounts = std::unordered_map<std::string, int64_t, PieceHash, std::equal_to<>>;

void StopIfInterrupted() {
  if (InterruptRequested()) {
    throw Error({.what = "interrupted while training the tokenizer",
                 .remedy = "run the same command again; nothing has been written"});
  }
}

PieceCounts CountPieces(CorpusReader& corpus, const BpeTrainerOptions& options,
                        ProgressMode progress_mode) {
  const int threads = ResolveThreads(options.threads, "threads");
  const PreTokenizer pre_tokenizer({std::string(SplitRegex(options.pattern))});
  std::vector<PieceReader> readers;
  for (int worker = 0; worker < threads; ++worker) readers.emplace_back(pre_tokenizer);
  std::vector<PieceCounts> counts(threads);
  Progress progress("counting words", corpus.total_bytes(), "bytes", progress_mode);
  ParallelInOrder(
      threads, [&] { return corpus.NextBlock(); },
      [&](int worker, const std::vector<std::string>& documents) {
        for (const std::string& document : documents) {
          readers[worker].Start(document);
          while (const auto piece = readers[worker].Next()) {
            const auto found = counts[worker].find(*piece);
            if (found != counts[worker].end()) {
              ++found->second;
            } else {
              counts[worker].emplace(*piece, 1);
            }
          }
        }
        return documents.size();
      },
      [&](size_t) {
        StopIfInterrupted();
        progress.Update(corpus.report().consumed_bytes);
      });
  progress.Finish();
  for (int worker = 1; worker < threads; ++worker) {
    for (const auto& [piece, count] : counts[worker]) counts[0][piece] += count;
  }
  return std::move(counts[0]);
}

// The distinct pieces of the text as symbols, and every pair of neighbours with its count.
class MergeLearner {
 public:
  MergeLearner(const PieceCounts& pieces, const std::vector<std::string>& byte_tokens);

  struct Pair {
    TokenId left = 0;
    TokenId right = 0;
  };
  // The pair to merge next, nothing if none occurs often enough.
  std::optional<Pair> MostFrequentPair();
  // Replaces the pair by `merged` everywhere.
  void Apply(Pair pair, TokenId merged);

 private:
  struct Word {
    size_t begin = 0;  // in symbols_
    uint32_t length = 0;
    int64_t count = 0;
  };
  struct PairState {
    int64_t count = 0;
    std::vector<uint32_t> words;  // those that may hold the pair, repeats and leftovers included
  };
  // A pair with the count it had when it was queued. The queue is not updated when counts change;
  // an outdated entry is put right when it comes up.
  struct Queued {
    int64_t count = 0;
    uint64_t key = 0;
    bool operator<(const Queued& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  void AddToPair(TokenId left, TokenId right, int64_t count, uint32_t word);

  std::vector<TokenId> symbols_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, PairState> pairs_;
  std::vector<uint64_t> grown_;  // pairs whose count rose in the present merge
  std::priority_queue<Queued> queue_;
};

MergeLearner::MergeLearner(const PieceCounts& pieces, const std::vector<std::string>& tokens) {
  std::array<TokenId, 256> byte_token{};
  for (TokenId id = 1; id < kFirstMerge; ++id) {
    byte_token[static_cast<unsigned char>(tokens[id][0])] = id;
  }
  for (const auto& [piece, count] : pieces) {
    const auto index = static_cast<uint32_t>(words_.size());
    words_.push_back({symbols_.size(), static_cast<uint32_t>(piece.size()), count});
    for (size_t i = 0; i < piece.size(); ++i) {
      symbols_.push_back(byte_token[static_cast<unsigned char>(piece[i])]);
      if (i > 0) AddToPair(symbols_[symbols_.size() - 2], symbols_.back(), count, index);
    }
  }
  for (const auto& [key, state] : pairs_) queue_.push({state.count, key});
  grown_.clear();
}

void MergeLearner::AddToPair(TokenId left, TokenId right, int64_t count, uint32_t word) {
  const uint64_t key = PairKey(left, right);
  PairState& state = pairs_[key];
  state.count += count;
  if (count > 0) {
    if (state.words.empty() || state.words.back() != word) state.words.push_back(word);
    grown_.push_back(key);
  }
}

std::optional<MergeLearner::Pair> MergeLearner::MostFrequentPair() {
  while (!queue_.empty()) {
    const Queued top = queue_.top();
    queue_.pop();
    const int64_t count = pairs_[top.key].count;
    if (count < kMinPairCount) continue;
    if (count == top.count) {
      return Pair{static_cast<TokenId>(top.key >> 32), static_cast<TokenId>(top.key & 0xFFFFFFFF)};
    }
    queue_.push({count, top.key});
  }
  return std::nullopt;
}

void MergeLearner::Apply(Pair pair, TokenId merged) {
  const auto [a, b] = pair;
  const std::vector<uint32_t> affected = std::exchange(pairs_[PairKey(a, b)].words, {});
  grown_.clear();
  for (const uint32_t index : affected) {
    Word& word = words_[index];
    const std::span<TokenId> symbols(symbols_.data() + word.begin, word.length);
    size_t kept = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (i + 1 == symbols.size() || symbols[i] != a || symbols[i + 1] != b) {
        symbols[kept++] = symbols[i];
        continue;
      }
      AddToPair(a, b, -word.count, index);
      if (kept > 0) {
        AddToPair(symbols[kept - 1], a, -word.count, index);
        AddToPair(symbols[kept - 1], merged, word.count, index);
      }
      if (i + 2 < symbols.size()) {
        AddToPair(b, symbols[i + 2], -word.count, index);
        AddToPair(merged, symbols[i + 2], word.count, index);
      }
      symbols[kept++] = merged;
      ++i;
    }
    word.length = static_cast<uint32_t>(kept);
  }
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const uint64_t key : grown_) queue_.push({pairs_[key].count, key});
}

// The text of a pair, for messages: only printable ASCII as itself.
std::string Printable(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += c > ' ' && c <= '~' ? std::string(1, c) : c == ' ' ? "_" : ".";
  return out;
}

}  // namespace

Tokenizer TrainBpe(CorpusReader& corpus, const BpeTrainerOptions& options,
                   ProgressMode progress_mode) {
  if (options.vocabulary < kFirstMerge) {
    throw Error({.what = fmt::format("a vocabulary of {} is too small", options.vocabulary),
                 .where = "--vocabulary",
                 .expected = fmt::format("at least {}: 256 bytes and {}", kFirstMerge, kEndOfText),
                 .remedy = "2048 to 8192 suits a few megabytes of text, 32768 and more gigabytes"});
  }
  TokenizerSpec spec;
  spec.splits = {std::string(SplitRegex(options.pattern))};
  spec.tokens = BaseTokens();
  spec.added = {{.id = 0}};

  MergeLearner learner(CountPieces(corpus, options, progress_mode), spec.tokens);
  // Two different merges can give the same text, which then is one token.
  std::unordered_map<std::string, TokenId> id_of;
  Progress progress("merging", options.vocabulary, "tokens", progress_mode);
  while (spec.tokens.size() < static_cast<size_t>(options.vocabulary)) {
    StopIfInterrupted();
    const auto pair = learner.MostFrequentPair();
    if (!pair) {
      throw Error(
          {.what = fmt::format("the text is too small for a vocabulary of {}: no pair of "
                               "tokens occurs twice any more after {} tokens",
                               options.vocabulary, spec.tokens.size()),
           .where = fmt::format("{} bytes of text", WithThousands(corpus.report().text_bytes)),
           .remedy = fmt::format("use more text, or --vocabulary {}", spec.tokens.size())});
    }
    std::string text = spec.tokens[pair->left] + spec.tokens[pair->right];
    const auto next_id = static_cast<TokenId>(spec.tokens.size());
    const auto [found, is_new] = id_of.emplace(text, next_id);
    if (is_new) spec.tokens.push_back(std::move(text));
    spec.merges.push_back({pair->left, pair->right, found->second});
    learner.Apply(*pair, found->second);
    progress.Update(spec.tokens.size(), Printable(found->first));
  }
  progress.Finish();
  return Tokenizer(std::move(spec));
}

}  // namespace sandglass
