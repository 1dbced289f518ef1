#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/json.h"
#include "data/bpe_trainer.h"
#include "data/testing.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"

namespace sandglass {
namespace {

const std::map<std::string, SplitPattern> kPatterns = {{"gpt2", SplitPattern::kGpt2},
                                                       {"cl100k", SplitPattern::kCl100k}};

Tokenizer Train(const std::string& input, SplitPattern pattern, int vocabulary, int threads = 2) {
  CorpusReader corpus({.inputs = {input}});
  return TrainBpe(corpus, {.vocabulary = vocabulary, .pattern = pattern, .threads = threads},
                  ProgressMode::kSilent);
}

std::vector<std::string> Pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  PieceReader reader(pre_tokenizer);
  reader.Start(text);
  std::vector<std::string> pieces;
  while (const auto piece = reader.Next()) pieces.emplace_back(*piece);
  return pieces;
}

std::vector<std::string> Pieces(SplitPattern pattern, std::string_view text) {
  return Pieces(PreTokenizer({std::string(SplitRegex(pattern))}), text);
}

// A valid tokenizer.json as a JSON value, to be damaged by tests.
Json SmallJson() { return Json::parse(ReadFile(TestData("cl100k.json"))); }

ErrorParts RefusalOf(const Json& json) {
  return FailureOf([&] { Tokenizer(ParseTokenizerJson(json.dump(), "t.json"), "t.json"); });
}

TEST(PreTokenizer, SplitsAsThePatternsDo) {
  EXPECT_EQ(Pieces(SplitPattern::kGpt2, "I'm 12345  ok!"),
            (std::vector<std::string>{"I", "'m", " 12345", " ", " ok", "!"}));
  EXPECT_EQ(Pieces(SplitPattern::kCl100k, "I'M 12345  ok!\n\nx"),
            (std::vector<std::string>{"I", "'M", " ", "123", "45", " ", " ok", "!\n\n", "x"}));
}

// Characters that patterns tell apart, and some that were assigned late.
std::string RandomCharacters(RandomStream& random) {
  constexpr std::string_view kCharacters[] = {
      "a",          "s",          "S",          "t",      "re",     "LL",         "'",
      "\u017F",     "Z",          "\u00E9",     " ",      " ",      "\n",         "\r",
      "\t",         "\u00A0",     "\u3000",     "\u0085", "\u180E", "\u2028",     "1",
      "2",          "\u00B2",     "\u0663",     "\u2167", ".",      "!",          "/",
      "-",          "\u0301",     "$",          "+",      "\u6F22", "\u3042",     "\u02B0",
      "\u01C5",     "\u0391",     "\u03B1",     "\u200D", "\x01",   "\U0001F600", "\u1C89",
      "\U00011F02", "\U0001CCF0", "\U00011D42", "\u0903"};
  std::string text;
  for (uint64_t count = random.NextBelow(12); count > 0; --count) {
    text += kCharacters[random.NextBelow(std::size(kCharacters))];
  }
  return text;
}

TEST(PreTokenizer, ScannersFindThePiecesOfTheirExpressions) {
  RandomStream random(5, "scanners");
  for (const NamedScanner& named : AllScanners()) {
    const PreTokenizer scanner({std::string(named.regex)});
    const PreTokenizer regex({std::string(named.regex)}, "", Matching::kRegexOnly);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = RandomCharacters(random);
      ASSERT_EQ(Pieces(scanner, text), Pieces(regex, text)) << named.regex << "\n" << text;
    }
  }
}

TEST(PreTokenizer, FollowsUnicodeBeyondTheLibrarysTables) {
  // U+180E is no white space; U+1C89 (Unicode 16) and U+11F02 (15) are letters, U+1CCF0 (16) is a
  // number.
  EXPECT_EQ(Pieces(SplitPattern::kGpt2, ".\u180E.").size(), 1u);
  EXPECT_EQ(Pieces(SplitPattern::kGpt2, "a\u1C89\U00011F02b").size(), 1u);
  EXPECT_EQ(Pieces(SplitPattern::kGpt2, "1\U0001CCF02").size(), 1u);
}

TEST(Unicode, WordCharactersAreThoseOfTheReference) {
  // The characters beside which `tokenizers` 0.23.3 does not find a token of one word: how many,
  // their sum and the sum of their squares (modulo 2^64).
  uint64_t count = 0, sum = 0, squares = 0;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (!IsWordCharacter(c)) continue;
    ++count;
    sum += c;
    squares += uint64_t{c} * c;
  }
  EXPECT_EQ(count, 144667u);
  EXPECT_EQ(sum, 15621645388u);
  EXPECT_EQ(squares, 2452845419041572u);
}

TEST(PreTokenizer, InvalidBytesArePiecesAndNothingIsLost) {
  EXPECT_EQ(Pieces(SplitPattern::kGpt2, "ab\xFF\xE6\xBC cd"),
            (std::vector<std::string>{"ab", "\xFF", "\xE6", "\xBC", " cd"}));
}

TEST(PreTokenizer, ValidUtf8LengthFollowsTheStandard) {
  for (const std::string_view valid :
       {"", "plain ascii text", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(ValidUtf8Length(valid), valid.size());
  }
  for (const std::string_view invalid :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x28\xA1", "\xFF"}) {
    EXPECT_EQ(ValidUtf8Length("12345678" + std::string(invalid)), 8u);
  }
}

TEST(PreTokenizer, RefusesWhatTheTwoRegexDialectsReadDifferently) {
  for (const char* regex :
       {"\\h+", "[a[bc]]", "[a&&b]", "^a", "a$", "(?m:a)", "\\w+", "[\\S]", "a{2}+"}) {
    EXPECT_TRUE(Contains(FailureOf([&] { PreTokenizer({regex}); }).what, "not supported")) << regex;
  }
  EXPECT_TRUE(Contains(FailureOf([] { PreTokenizer({"(a"}); }).what, "not a regular expression"));
}

TEST(PreTokenizer, LongRunsAreNoProblem) {
  for (const auto& [name, pattern] : kPatterns) {
    for (const char* unit : {" ", "\n", "a", ".", "\u3000", "7"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      size_t bytes = 0;
      for (const std::string& piece : Pieces(pattern, text)) bytes += piece.size();
      EXPECT_EQ(bytes, text.size());
    }
  }
}

TEST(BpeTrainer, MergesEqualTheReferenceTrainers) {
  for (const auto& [name, pattern] : kPatterns) {
    const Json reference = Json::parse(ReadFile(TestData(name + ".json")));
    const Tokenizer trained = Train(TestData("sample.txt"), pattern, 700);
    const Json ours = Json::parse(trained.ToJson());
    EXPECT_EQ(ours["model"]["merges"], reference["model"]["merges"]) << name;
    EXPECT_EQ(ours["added_tokens"], reference["added_tokens"]) << name;
    for (const auto& [token, id] : reference["model"]["vocab"].items()) {
      EXPECT_EQ(ours["model"]["vocab"].value(token, -1), id) << token;
    }
  }
}

TEST(BpeTrainer, ResultDoesNotDependOnThreads) {
  EXPECT_EQ(Train(TestData("sample.txt"), SplitPattern::kGpt2, 500, 1).hash(),
            Train(TestData("sample.txt"), SplitPattern::kGpt2, 500, 5).hash());
}

TEST(BpeTrainer, OverlappingPairsAreCountedExactly) {
  // "aaaa" twice and "aaaaa" once: aa is merged first, then aa+aa, then (aa aa)+a occurs once only.
  const TestDirectory directory;
  const std::string input = directory.Write("a.txt", "aaaa\naaaa\naaaaa");
  const Tokenizer tokenizer = Train(input, SplitPattern::kGpt2, 259);
  EXPECT_EQ(tokenizer.TokenBytes(257), "aa");
  EXPECT_EQ(tokenizer.TokenBytes(258), "aaaa");
  EXPECT_TRUE(Contains(FailureOf([&] { Train(input, SplitPattern::kGpt2, 300); }).what,
                       "after 259 tokens"));
}

TEST(BpeTrainer, RefusesImpossibleVocabularies) {
  const TestDirectory directory;
  EXPECT_TRUE(
      Contains(FailureOf([&] { Train(TestData("sample.txt"), SplitPattern::kGpt2, 256); }).expected,
               "at least 257"));
  const std::string small = directory.Write("small.txt", "to be or not to be");
  EXPECT_EQ(Train(small, SplitPattern::kGpt2, 257).vocabulary(), 257);
  const ErrorParts parts = FailureOf([&] { Train(small, SplitPattern::kGpt2, 4096); });
  EXPECT_TRUE(Contains(parts.what, "too small for a vocabulary of 4096"));
  EXPECT_TRUE(Contains(parts.remedy, "--vocabulary 26"));
}

TEST(Tokenizer, IdsEqualTheReferenceOnNastyStrings) {
  const Json golden = Json::parse(ReadFile(TestData("ids.json")));
  ASSERT_GE(golden["strings"].size(), 200u);
  for (const auto& [name, pattern] : kPatterns) {
    const Tokenizer tokenizer = Tokenizer::Load(TestData(name + ".json"));
    Encoder encoder(tokenizer);
    for (size_t i = 0; i < golden["strings"].size(); ++i) {
      const auto text = golden["strings"][i].get<std::string>();
      EXPECT_EQ(encoder.Encode(text), golden[name][i].get<std::vector<TokenId>>()) << name << text;
    }
  }
}

TEST(Tokenizer, RoundTripsAnyBytes) {
  for (const auto& [name, pattern] : kPatterns) {
    const Tokenizer tokenizer = Tokenizer::Load(TestData(name + ".json"));
    Encoder encoder(tokenizer);
    RandomStream random(7, "round-trip");
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomBytes(random, 60);
      const std::vector<TokenId> ids = encoder.Encode(text);
      ASSERT_EQ(tokenizer.Decode(ids), text);
      int64_t bytes = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        bytes += tokenizer.byte_counts()(i > 0 ? ids[i - 1] : -1, ids[i]);
      }
      ASSERT_EQ(bytes, std::ssize(text));
    }
  }
}

TEST(Tokenizer, LongPiecesMergeAsShortOnesDo) {
  // The plain definition: apply the merge of lowest rank, leftmost first, until none applies.
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  RandomStream random(3, "letters");
  std::string word;
  while (word.size() < 3000) word += "aehinorst"[random.NextBelow(9)];
  std::vector<TokenId> expected;
  std::map<std::string, TokenId, std::less<>> id_of;
  for (TokenId id = 1; id < tokenizer.vocabulary(); ++id) id_of[tokenizer.spec().tokens[id]] = id;
  for (const char c : word) expected.push_back(id_of.at(std::string(1, c)));
  for (const Merge& merge : tokenizer.spec().merges) {
    // Rank by rank is the same: a merge never makes one of lower rank possible in this vocabulary,
    // where ids grow with rank.
    std::vector<TokenId> next;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (i + 1 < expected.size() && expected[i] == merge.left && expected[i + 1] == merge.right) {
        next.push_back(merge.merged);
        ++i;
      } else {
        next.push_back(expected[i]);
      }
    }
    expected = std::move(next);
  }
  EXPECT_EQ(Encoder(tokenizer).Encode(word), expected);
}

TEST(Tokenizer, SpecialTokensAreNeverMadeFromTextAndHaveNone) {
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  const std::vector<TokenId> ids = Encoder(tokenizer).Encode("a<|endoftext|>b");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.end_of_text()), 0);
  EXPECT_EQ(tokenizer.Decode(ids), "a<|endoftext|>b");
  EXPECT_EQ(tokenizer.TokenBytes(tokenizer.end_of_text()), "");
  EXPECT_EQ(tokenizer.byte_counts()(-1, tokenizer.end_of_text()), 0);
}

TEST(Tokenizer, SavedAndLoadedItIsTheSame) {
  const TestDirectory directory;
  for (const auto& [name, pattern] : kPatterns) {
    const Tokenizer reference = Tokenizer::Load(TestData(name + ".json"));
    reference.Save(directory / "copy.json");
    const Tokenizer copy = Tokenizer::Load(directory / "copy.json");
    EXPECT_EQ(copy.hash(), reference.hash());
    EXPECT_EQ(copy.spec().splits, std::vector{std::string(SplitRegex(pattern))});
    EXPECT_EQ(ReadFile(directory / "copy.json"), reference.ToJson());
  }
}

TEST(Tokenizer, LoadsOlderFilesAndWholePieceLookUp) {
  Json json = SmallJson();
  const std::string hash = Tokenizer::Load(TestData("cl100k.json")).hash();
  json["model"].erase("type");
  json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
  json["pre_tokenizer"]["pretokenizers"][0]["invert"] = true;
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  EXPECT_EQ(Tokenizer(ParseTokenizerJson(json.dump(), "")).hash(), hash);

  json["model"]["vocab"]["xyzzy"] = 700;  // no merge leads to it
  EXPECT_GT(Encoder(Tokenizer(ParseTokenizerJson(json.dump(), ""))).Encode("xyzzy").size(), 1u);
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(Encoder(Tokenizer(ParseTokenizerJson(json.dump(), ""))).Encode("xyzzy"),
            std::vector<TokenId>{700});
}

TEST(Tokenizer, RefusesByNameWhatItCannotRepresent) {
  const auto refused = [](const char* pointer, const Json& value, const char* message) {
    Json json = SmallJson();
    json[Json::json_pointer(pointer)] = value;
    const ErrorParts parts = RefusalOf(json);
    EXPECT_TRUE(Contains(parts.what, message)) << parts.what;
    EXPECT_EQ(parts.where, "t.json");
  };
  refused("/normalizer", {{"type", "Lowercase"}}, "Lowercase");
  refused("/truncation", {{"max_length", 5}}, "truncation");
  refused("/model/type", "Unigram", "\"Unigram\"");
  refused("/model/dropout", 0.1, "dropout");
  refused("/model/byte_fallback", true, "byte_fallback");
  refused("/model/continuing_subword_prefix", "##", "continuing_subword_prefix");
  refused("/decoder", {{"type", "WordPiece"}}, "\"WordPiece\"");
  refused("/decoder", nullptr, "decoder");
  refused("/post_processor", {{"type", "BertProcessing"}}, "\"BertProcessing\"");
  refused("/pre_tokenizer", {{"type", "Whitespace"}}, "\"Whitespace\"");
  refused("/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "add_prefix_space");
  refused("/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext", "MergedWithNext");
  refused("/added_tokens/0/content", "<eos>", "two tokens have the id 0");
  refused("/model/vocab/漢", 700, "byte-level alphabet");
  refused("/model/vocab/xyzzy", 1 << 20, "out of range");
  refused("/model/vocab/xyzzy", 300, "two tokens have the id 300");
  refused("/model/vocab/xyzzy", -1, "out of range");
  refused("/model/merges/0", {"q", "zz"}, "not in the vocabulary");
  refused("/model/merges/0", 5, "not a pair");
}

TEST(Tokenizer, RefusesAVocabularyThatCannotEncodeEveryText) {
  TokenizerSpec spec;
  spec.splits = {std::string(SplitRegex(SplitPattern::kGpt2))};
  spec.tokens = BaseTokens();
  spec.added = {{.id = 0}};
  EXPECT_EQ(Tokenizer(spec).vocabulary(), 257);
  TokenizerSpec without_end = spec;
  without_end.tokens[0] = "<mask>";
  EXPECT_TRUE(
      Contains(FailureOf([&] { Tokenizer(without_end).end_of_text(); }).expected, "<|endoftext|>"));
  TokenizerSpec without_a = spec;
  std::replace(without_a.tokens.begin(), without_a.tokens.end(), std::string("a"),
               std::string("aa"));
  EXPECT_TRUE(Contains(FailureOf([&] { Tokenizer{without_a}; }).what, "0x61"));
}

TEST(Tokenizer, BytesThatNoTextHasMayLackTokens) {
  TokenizerSpec spec;
  spec.splits = {std::string(SplitRegex(SplitPattern::kGpt2))};
  spec.tokens = BaseTokens();
  spec.added = {{.id = 0}};
  std::erase(spec.tokens, "\xC0");
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.Decode(Encoder(tokenizer).Encode("\u6F22\xC1")), "\u6F22\xC1");
  EXPECT_TRUE(Contains(FailureOf([&] { Encoder(tokenizer).Encode("a\xC0"); }).what, "0xC0"));
}

TEST(Tokenizer, BadFilesAndIdsGiveOneClearError) {
  const TestDirectory directory;
  const auto what = [&](const std::string& contents) {
    const std::string path = directory.Write("t.json", contents);
    const ErrorParts parts = FailureOf([&] { Tokenizer::Load(path); });
    EXPECT_EQ(parts.where, path);
    return parts.what;
  };
  EXPECT_TRUE(Contains(what("{\"model\": "), "not a JSON file"));
  EXPECT_TRUE(Contains(what(""), "not a JSON file"));
  EXPECT_TRUE(Contains(what("[1]"), "no JSON object"));
  EXPECT_TRUE(Contains(what("{}"), "no \"model\""));
  EXPECT_TRUE(Contains(what("{\"model\": {\"type\": \"BPE\"}}"), "neither byte-level"));
  EXPECT_TRUE(
      Contains(FailureOf([&] { Tokenizer::Load(directory / "none"); }).what, "cannot open"));

  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  for (const TokenId id : {-1, 700}) {
    EXPECT_TRUE(Contains(FailureOf([&] { tokenizer.Decode(std::vector{id}); }).what,
                         "outside the vocabulary"));
  }
}

TEST(Tokenizer, EncodersOfSeveralThreadsAgree) {
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  const std::string text = ReadFile(TestData("sample.txt"));
  std::vector<std::vector<TokenId>> ids(4);
  {
    std::vector<std::jthread> threads;
    for (auto& out : ids) {
      threads.emplace_back([&] { out = Encoder(tokenizer).Encode(text); });
    }
  }
  for (const auto& out : ids) EXPECT_EQ(out, ids[0]);
  EXPECT_EQ(tokenizer.Decode(ids[0]), text);
}

}  // namespace
}  // namespace sandglass
