#include "data/sentencepiece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "data/rank_file.h"
#include "data/unicode.h"
#include "sentencepiece.pb.h"

namespace sandglass {
namespace {

// An expression that matches any of `names`, the longest first.
std::string AnyOf(std::vector<std::string> names) {
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  std::string regex;
  for (const std::string& name : names) {
    if (!regex.empty()) regex += '|';
    for (const char c : name) {
      if (std::ispunct(static_cast<unsigned char>(c))) regex += '\\';
      regex += c;
    }
  }
  return regex;
}

[[noreturn]] void Fail(std::string what, const std::string& where, std::string expected = "") {
  throw Error({.what = std::move(what),
               .where = where,
               .expected = std::move(expected),
               .remedy = "Sandglass reads SentencePiece models of type BPE with byte fallback"});
}

}  // namespace

TokenizerSpec SpecOfScoredPieces(const std::vector<ScoredPiece>& pieces, LeadingSpace leading_space,
                                 UserDefined user_defined, const std::string& where) {
  TokenizerSpec spec;
  spec.symbols = Symbols::kCharacters;
  spec.leading_space = leading_space;
  std::vector<TokenId> order;
  std::vector<bool> may_merge(pieces.size());
  std::vector<std::string> in_place;
  std::vector<TokenId> bytes(256, -1);
  size_t bytes_found = 0;
  for (TokenId id = 0; id < std::ssize(pieces); ++id) {
    const auto& [piece, score, type] = pieces[id];
    if (piece.empty()) Fail(fmt::format("piece {} is empty", id), where);
    if (ValidUtf8Length(piece) != piece.size()) {
      Fail(fmt::format("piece {} is not valid UTF-8", id), where);
    }
    if (std::isnan(score)) Fail(fmt::format("piece {} has a score that is no number", id), where);
    std::string text = SpacesForMarks(piece);
    switch (type) {
      case PieceType::kNormal:
        may_merge[id] = true;
        order.push_back(id);
        break;
      case PieceType::kUnknown:
      case PieceType::kControl:
        text = piece;
        spec.added.push_back({.id = id});
        break;
      case PieceType::kUserDefined:
        if (user_defined == UserDefined::kInPlace) {
          in_place.push_back(text);
        } else {
          text = piece;
          spec.added.push_back({.id = id, .special = false});
        }
        break;
      case PieceType::kByte: {
        unsigned value = 0;
        if (piece.size() != 6 || std::sscanf(piece.c_str(), "<0x%02X>", &value) != 1) {
          Fail(fmt::format("piece {} (\"{}\") is no byte", id, piece), where, "<0x00> to <0xFF>");
        }
        bytes_found += bytes[value] < 0 ? 1 : 0;
        bytes[value] = id;
        text = std::string(1, static_cast<char>(value));
        break;
      }
      case PieceType::kUnused:
        if (user_defined == UserDefined::kApart) {  // fills up the vocabulary of a GGUF
          text.clear();
          break;
        }
        Fail(fmt::format("piece {} (\"{}\") is marked unused, which is not supported", id, piece),
             where);
      default:
        Fail(fmt::format("piece {} has the unknown type {}", id, static_cast<int>(type)), where);
    }
    spec.tokens.push_back(std::move(text));
  }
  if (bytes_found != bytes.size()) {
    Fail(fmt::format("the vocabulary has tokens for {} of 256 bytes", bytes_found), where,
         "<0x00> to <0xFF>, so that any text can be encoded");
  }
  spec.byte_fallback = std::move(bytes);
  std::ranges::stable_sort(order,
                           [&](TokenId a, TokenId b) { return pieces[a].score > pieces[b].score; });
  spec.merges = MergesOfTokens(spec.tokens, order, may_merge);
  if (!in_place.empty()) {
    // A piece that is cut out whole and looked up as such is what SentencePiece makes of it.
    spec.splits = {AnyOf(std::move(in_place))};
    spec.whole_pieces = WholePieces::kLookUp;
  }
  return spec;
}

bool LooksLikeSentencePieceModel(std::string_view contents) {
  // Field 1 (a piece), whose first field is its text.
  return contents.size() > 4 && contents[0] == '\n' && contents[2] == '\n';
}

TokenizerSpec ParseSentencePieceModel(std::string_view contents, const std::string& where) {
  sentencepiece::Model model;
  constexpr size_t kMaxBytes = size_t{1} << 28;
  if (contents.size() > kMaxBytes ||
      !model.ParseFromArray(contents.data(), static_cast<int>(contents.size())) ||
      model.pieces_size() == 0) {
    Fail("not a SentencePiece model, or damaged", where);
  }
  constexpr int kBpe = 2;
  if (model.trainer_spec().model_type() != kBpe) {
    constexpr const char* kTypes[] = {"?", "unigram", "BPE", "word", "char"};
    const int type = model.trainer_spec().model_type();
    Fail(fmt::format("the model is of type {}", type >= 1 && type <= 4 ? kTypes[type] : "?"), where,
         "BPE");
  }
  if (!model.trainer_spec().byte_fallback()) Fail("the model has no byte fallback", where);
  const auto& normalizer = model.normalizer_spec();
  if (!normalizer.precompiled_charsmap().empty()) {
    Fail("the model normalizes text by a table of characters, which is not supported", where,
         "the normalization \"identity\"");
  }
  if (normalizer.remove_extra_whitespaces() || !normalizer.escape_whitespaces() ||
      model.trainer_spec().treat_whitespace_as_suffix()) {
    Fail("the model removes or moves spaces, which is not supported", where,
         "remove_extra_whitespaces false, escape_whitespaces true, treat_whitespace_as_suffix "
         "false");
  }
  std::vector<ScoredPiece> pieces;
  for (const auto& piece : model.pieces()) {
    pieces.push_back({piece.piece(), piece.score(), static_cast<PieceType>(piece.type())});
  }
  return SpecOfScoredPieces(
      pieces, normalizer.add_dummy_prefix() ? LeadingSpace::kAlways : LeadingSpace::kNone,
      UserDefined::kInPlace, where);
}

}  // namespace sandglass
