// For tests alone.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/random.h"

namespace sandglass {

// The parts of the Error that `action` throws; a test failure if it throws none.
ErrorParts FailureOf(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.parts();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

// Text to train small models on: words drawn from a short list, thirty to a paragraph.
inline std::string RandomText(int paragraphs) {
  constexpr const char* kWords[] = {"in",  "the",   "beginning", "was",   "a",    "word",
                                    "and", "light", "shines",    "still", "here", "again"};
  RandomStream random(1, "text");
  std::string text;
  for (int paragraph = 0; paragraph < paragraphs; ++paragraph) {
    for (int word = 0; word < 30; ++word) text += std::string(kWords[random.NextBelow(12)]) + " ";
    text += "\n\n";
  }
  return text;
}

}  // namespace sandglass
