// Regular expressions by which tokenizers in use cut text into the pieces that merges never cross,
// each with where it comes from. Those here have scanners (scanners.h) or several users.
#pragma once

#include <string_view>

namespace sandglass {

// GPT-2 (its encoder.py), and tiktoken's r50k and p50k: contractions, words, numbers and
// punctuation, each with one leading space.
inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// tiktoken's cl100k_base as it was published, Llama 3 (llama-models, llama3/tokenizer.py) and DBRX:
// also any case of the contractions, numbers in groups of three, line ends apart.
//
// Since 0.9 tiktoken has `\s++$|` before the line ends, which leaves a text's trailing white space
// in one piece. Ids are the same: no token of cl100k has anything behind its last line end, so no
// merge crosses the end of a piece that is cut there.
inline constexpr std::string_view kCl100kRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen (its tokenization_qwen.py) to Qwen3: as cl100k, each number apart.
inline constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// tiktoken's o200k_base, and Llama 4: words end where small letters end.
inline constexpr std::string_view kO200kRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Mistral's Tekken (the pattern in mistral-common's tekken_*.json): as o200k without contractions,
// each number apart.
inline constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Hugging Face's pre-tokenizer Digits with individual_digits (SmolLM, StarCoder), and DeepSeek V3's
// first cut.
inline constexpr std::string_view kNumberRegex = R"(\p{N})";
inline constexpr std::string_view kThreeNumbersRegex = R"(\p{N}{1,3})";

// Hugging Face's pre-tokenizer Metaspace with split: before every space.
inline constexpr std::string_view kEachSpaceRegex = " [^ ]*|[^ ]+";

}  // namespace sandglass
