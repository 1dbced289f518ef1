#include "model/shape.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace sandglass {
namespace {

// Far beyond any useful model, so that no count of parameters, bytes or FLOPs overflows 64 bits.
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxSubLayers = 4096;

// The numbers of the notation; a fault is reported where its number stands.
enum class Part { kLayers, kDModel, kHeads, kHeadWidth, kKvHeads, kFfn };
constexpr size_t kParts = 6;

struct Fault {
  Part part;
  std::string what;
  std::string expected;
};

// The first thing that makes the shape impossible.
std::optional<Fault> FindFault(const Shape& shape) {
  std::optional<Fault> fault;
  const auto require = [&](bool holds, Part part, std::string what, std::string expected) {
    if (!holds && !fault) fault = {part, std::move(what), std::move(expected)};
  };
  const auto require_size = [&](Part part, const char* name, int64_t value, int limit) {
    require(value >= 1 && value <= limit, part, fmt::format("{} is {}", name, value),
            fmt::format("a number from 1 to {}", limit));
  };
  require_size(Part::kLayers, "the number of layers", shape.layers, kMaxSubLayers);
  require_size(Part::kDModel, "d_model", shape.d_model, kMaxWidth);
  require_size(Part::kHeads, "the number of heads", shape.heads, kMaxWidth);
  require_size(Part::kHeadWidth, "the head width", shape.head_width, kMaxWidth);
  require_size(Part::kKvHeads, "the number of KV heads", shape.kv_heads, kMaxWidth);
  require_size(Part::kHeads, "heads x head width", shape.attention_width(), kMaxWidth);
  require(shape.head_width % 2 == 0, Part::kHeadWidth,
          fmt::format("the head width {} is odd", shape.head_width),
          "an even number, because rotary embeddings turn pairs of channels");
  require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, Part::kKvHeads,
          fmt::format("{} heads cannot share {} KV heads evenly", shape.heads, shape.kv_heads),
          fmt::format("a divisor of {}", shape.heads));
  require(!shape.ffn.empty(), Part::kFfn, "the FFN has no sub-MLP", "at least one sub-MLP width");
  for (const int width : shape.ffn) {
    require_size(Part::kFfn, "a sub-MLP width", width, kMaxWidth);
  }
  const int64_t sub_layers = int64_t{shape.layers} * (1 + shape.sub_mlps());
  require(sub_layers <= kMaxSubLayers, Part::kFfn,
          fmt::format("{} layers of attention and {} sub-MLPs make {} sub-layers", shape.layers,
                      shape.sub_mlps(), sub_layers),
          fmt::format("at most {} sub-layers", kMaxSubLayers));
  return fault;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Shape Parse() {
    Expect('L', "\"L\" and the number of layers, as in L12-d768-a12x64-f8x384");
    shape_.layers = Number(Part::kLayers, "the number of layers");
    while (at_ < text_.size()) {
      Expect('-', "\"-\" before the next part");
      ParsePart();
    }
    RequirePart(shape_.d_model != 0, "\"-d\" and d_model, as in -d768");
    RequirePart(shape_.heads != 0, "\"-a\" and heads x head width, as in -a12x64");
    RequirePart(!shape_.ffn.empty(), "\"-f\" and the FFN, as in -f8x384 or -f384,400,384");
    if (shape_.kv_heads == 0) {
      shape_.kv_heads = shape_.heads;
      positions_[size_t(Part::kKvHeads)] = positions_[size_t(Part::kHeads)];
    }
    if (const auto fault = FindFault(shape_)) {
      at_ = positions_[size_t(fault->part)];
      Fail(fault->what, fault->expected);
    }
    return shape_;
  }

 private:
  void ParsePart() {
    const size_t begin = at_;
    if (Accept("kv")) {
      RefuseSecond(shape_.kv_heads != 0, begin, "kv");
      shape_.kv_heads = Number(Part::kKvHeads, "the number of KV heads");
    } else if (Accept("d")) {
      RefuseSecond(shape_.d_model != 0, begin, "d");
      shape_.d_model = Number(Part::kDModel, "d_model");
    } else if (Accept("a")) {
      RefuseSecond(shape_.heads != 0, begin, "a");
      shape_.heads = Number(Part::kHeads, "the number of heads");
      Expect('x', "\"x\" between the number of heads and the head width");
      shape_.head_width = Number(Part::kHeadWidth, "the head width");
    } else if (Accept("f")) {
      RefuseSecond(!shape_.ffn.empty(), begin, "f");
      do {
        ParseFfnItem();
      } while (Accept(","));
    } else {
      FailHere("one of d (d_model), a (heads x head width), f (FFN) or kv (KV heads)");
    }
  }

  // 384, or 8x384 for eight of width 384.
  void ParseFfnItem() {
    const size_t begin = at_;
    const int first = Number(Part::kFfn, "a sub-MLP width or count");
    if (!Accept("x")) {
      shape_.ffn.push_back(first);
    } else if (first > kMaxSubLayers) {
      at_ = begin;
      Fail(fmt::format("{} sub-MLPs are too many", first),
           fmt::format("at most {}", kMaxSubLayers));
    } else {
      shape_.ffn.insert(shape_.ffn.end(), first, Number(Part::kFfn, "the sub-MLP width"));
    }
  }

  // A whole number from 1 on; remembers where it stands.
  int Number(Part part, const char* meaning) {
    constexpr int kMaxNumber = 1'000'000'000;
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= kMaxNumber) {
      value = 10 * value + (text_[at_++] - '0');
    }
    if (at_ == begin) FailHere(fmt::format("{}, a whole number", meaning));
    if (value < 1 || value > kMaxNumber) {
      at_ = begin;
      Fail(fmt::format("{} is {}", meaning, value < 1 ? "zero" : "far too large"),
           fmt::format("a number from 1 to {}", kMaxWidth));
    }
    positions_[size_t(part)] = begin;
    return static_cast<int>(value);
  }

  bool Accept(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void Expect(char token, const char* expected) {
    if (!Accept(std::string_view(&token, 1))) FailHere(expected);
  }

  void RequirePart(bool present, const char* expected) {
    if (!present) FailHere(expected);
  }

  void RefuseSecond(bool present, size_t begin, const char* part) {
    if (!present) return;
    at_ = begin;
    Fail(fmt::format("a second \"{}\"", part), "each part once");
  }

  [[noreturn]] void FailHere(const std::string& expected) {
    const std::string found = at_ < text_.size() ? fmt::format("unexpected \"{}\"", text_[at_])
                                                 : std::string("the text ends too early");
    Fail(found, expected);
  }

  [[noreturn]] void Fail(const std::string& what, const std::string& expected) {
    throw Error(
        {.what = fmt::format("cannot use the shape \"{}\": {}", text_, what),
         .where = fmt::format("character {}\n      {}\n      {:>{}}", at_ + 1, text_, '^', at_ + 1),
         .expected = expected});
  }

  std::string_view text_;
  size_t at_ = 0;
  std::array<size_t, kParts> positions_{};
  Shape shape_;
};

}  // namespace

Shape Shape::Parse(std::string_view text) { return Parser(text).Parse(); }

std::string Shape::ToString() const {
  std::string text = fmt::format("L{}-d{}-a{}x{}", layers, d_model, heads, head_width);
  if (kv_heads != heads) text += fmt::format("-kv{}", kv_heads);
  text += "-f";
  for (size_t begin = 0; begin < ffn.size();) {
    size_t end = begin + 1;
    while (end < ffn.size() && ffn[end] == ffn[begin]) ++end;
    if (begin > 0) text += ",";
    const size_t count = end - begin;
    if (count > 1 || count == ffn.size()) text += fmt::format("{}x", count);
    text += std::to_string(ffn[begin]);
    begin = end;
  }
  return text;
}

void Shape::Validate() const {
  if (const auto fault = FindFault(*this)) {
    throw Error({.what = fmt::format("impossible shape {}: {}", ToString(), fault->what),
                 .expected = fault->expected});
  }
}

int64_t Shape::ffn_width() const { return std::accumulate(ffn.begin(), ffn.end(), int64_t{0}); }

}  // namespace sandglass
