// Ctrl-C as a request: long work asks between steps and stops in a state that can be resumed.
#pragma once

#include <string>

namespace sandglass {

// Thrown by work that has nothing to save when it notices an interrupt, and by verbs that stopped
// in a state that can be resumed.
struct Interrupted {
  std::string how_to_continue;
};

// From now on the first SIGINT or SIGTERM sets a flag; another one, half a second later or more,
// ends the process at once.
void CatchInterrupts();

// True once an interrupt has been caught.
bool InterruptRequested();

// For tests and for a caller that has dealt with the request.
void SetInterruptRequested(bool requested);

}  // namespace sandglass
