// Hand-written equivalents of the patterns that most tokenizers split text with, several times as
// fast as the regular expressions. The tests hold each against its expression.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace sandglass {

// Finds the end of the first piece of text[begin, end), which is not empty and valid UTF-8; what
// stands before `begin` or behind `end` plays no part. A piece is a match, or what lies before one.
using Scanner = size_t (*)(const char* text, size_t begin, size_t end);

// The scanner for a regular expression written in one of the ways that are in use, or null.
Scanner FindScanner(std::string_view regex);

// Every expression with a scanner: for tests.
struct NamedScanner {
  std::string_view regex;
  Scanner scanner = nullptr;
};
std::span<const NamedScanner> AllScanners();

}  // namespace sandglass
