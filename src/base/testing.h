// For tests alone.
#pragma once

#include <gtest/gtest.h>

#include "base/error.h"

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

}  // namespace sandglass
