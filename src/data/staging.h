// The directory in which `prepare` puts its files together, beside the one where they shall stand.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace sandglass {

// What the work so far is remembered in.
inline constexpr const char* kJournalName = "progress.json";

// For `out` data/books it is data/books.partial. It outlives an interrupt or a kill, so that the
// next call can go on; Publish puts it in the place of `out` in one step.
class StagingDirectory {
 public:
  // `names` are the files that will be published. Throws Error if another process works here.
  StagingDirectory(const std::string& out, std::vector<std::string> names);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  std::string PathOf(const std::string& name) const { return (path_ / name).string(); }
  // Removes what an earlier call left.
  void Clear() const;
  // From now on the directory stays when the object goes.
  void Keep() { kept_ = true; }
  // Everything but the named files goes from here, everything but them that stands in `out` is
  // kept there, and the two change places.
  void Publish();

 private:
  bool IsOurs(const std::filesystem::path& name) const;
  // Puts back what an exchange that was cut off has taken from `out`.
  void ReturnOtherFiles() const;

  std::filesystem::path out_;
  std::filesystem::path path_;
  std::vector<std::string> names_;
  std::optional<DirectoryLock> lock_;
  bool kept_ = false;
};

}  // namespace sandglass
