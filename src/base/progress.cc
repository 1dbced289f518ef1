#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/format.h"

namespace sandglass {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval{100};
constexpr std::chrono::seconds kPlainInterval{10};

}  // namespace

Progress::Progress(std::string title, uint64_t total, std::string unit, ProgressMode mode)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      mode_(mode),
      terminal_(::isatty(STDERR_FILENO) != 0) {
  if (!terminal_) next_draw_ = start_ + kPlainInterval;
}

Progress::~Progress() {
  if (!finished_ && drawn_ && terminal_ && mode_ != ProgressMode::kSilent) std::fputc('\n', stderr);
}

void Progress::Update(uint64_t done, std::string_view extra) {
  done_ = done;
  if (mode_ == ProgressMode::kSilent || finished_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  if (terminal_) {
    next_draw_ = now + kTerminalInterval;
  } else {
    next_draw_ = now + kPlainInterval;
  }
  Draw(extra);
}

void Progress::SkipTo(uint64_t done) { done_ = skipped_ = done; }

void Progress::Draw(std::string_view extra) {
  const double elapsed_s = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = elapsed_s > 0 ? static_cast<double>(done_ - skipped_) / elapsed_s : 0;
  const bool bytes = unit_ == "bytes";
  const auto amount = [bytes](double value) {
    return bytes ? HumanBytes(value) : Abbreviated(value);
  };
  std::string line = title_ + "  ";
  if (total_ > 0) {
    line += fmt::format("{:5.1f}%  {}/{}", 100.0 * static_cast<double>(done_) / total_,
                        amount(done_), amount(total_));
  } else {
    line += amount(done_);
  }
  if (!bytes) line += " " + unit_;
  line += fmt::format("  {}/s", amount(rate));
  if (finished_) {
    line += fmt::format("  in {}", HumanDuration(elapsed_s));
  } else if (total_ > done_ && rate > 0) {
    line += fmt::format("  {} left", HumanDuration(static_cast<double>(total_ - done_) / rate));
  }
  if (!extra.empty()) line += fmt::format("  {}", extra);
  if (terminal_) {
    std::fprintf(stderr, "\r\x1b[K%s%s", line.c_str(), finished_ ? "\n" : "");
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Note(std::string_view line) {
  if (mode_ == ProgressMode::kSilent) return;
  std::fprintf(stderr, "%s%.*s\n", terminal_ && drawn_ ? "\r\x1b[K" : "",
               static_cast<int>(line.size()), line.data());
  if (terminal_) next_draw_ = Clock::now();
}

void Progress::Finish(std::string_view extra) {
  if (finished_) return;
  finished_ = true;
  if (mode_ != ProgressMode::kSilent) Draw(extra);
}

}  // namespace sandglass
