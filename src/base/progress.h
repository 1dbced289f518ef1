// Progress of long work on standard error: one line redrawn in place on a terminal, a plain line
// now and then elsewhere (a log file, CI).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace sandglass {

enum class ProgressMode { kAutomatic, kSilent };

class Progress {
 public:
  // `title` begins every line. `total` is in `unit` ("tokens", "bytes"); 0 if it is not known.
  Progress(std::string title, uint64_t total, std::string unit,
           ProgressMode mode = ProgressMode::kAutomatic);
  ~Progress();

  // Reports that `done` units are finished, with `extra` (a loss, say) at the end of the line.
  // Cheap enough to call every few milliseconds: it draws only when a line is due.
  void Update(uint64_t done, std::string_view extra = "");
  // Work that was finished by an earlier process and must not count in the rate.
  void SkipTo(uint64_t done);
  // Prints `line` on a line of its own without disturbing the progress line.
  void Note(std::string_view line);
  // Draws the last state; later calls do nothing.
  void Finish(std::string_view extra = "");

 private:
  using Clock = std::chrono::steady_clock;
  void Draw(std::string_view extra);

  std::string title_;
  std::string unit_;
  uint64_t total_;
  ProgressMode mode_;
  bool terminal_;
  bool finished_ = false;
  bool drawn_ = false;
  uint64_t done_ = 0;
  uint64_t skipped_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_draw_ = start_;
};

}  // namespace sandglass
