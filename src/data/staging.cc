#include "data/staging.h"

#include <algorithm>

#include "base/error.h"

namespace sandglass {

namespace fs = std::filesystem;

StagingDirectory::StagingDirectory(const std::string& out, std::vector<std::string> names)
    : out_(fs::weakly_canonical(fs::absolute(out))), names_(std::move(names)) {
  if (!out_.has_filename()) out_ = out_.parent_path();  // a slash at the end
  if (out_ == fs::current_path() || out_ == out_.root_path()) {
    throw Error({.what = "the current directory cannot be replaced by its new contents",
                 .where = out_.string(),
                 .expected = "a directory of its own for the data, such as --out data/books"});
  }
  path_ = out_;
  path_ += ".partial";
  CreateDirectories(path_.string());
  lock_.emplace(path_.string(), "prepares data");
  ReturnOtherFiles();
}

StagingDirectory::~StagingDirectory() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

bool StagingDirectory::IsOurs(const fs::path& name) const {
  return std::ranges::find(names_, name.string()) != names_.end();
}

void StagingDirectory::Clear() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    fs::remove_all(entry.path());
  }
}

void StagingDirectory::ReturnOtherFiles() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const fs::path name = entry.path().filename();
    const bool temporary = name.extension() == ".partial" || name == kJournalName ||
                           name.string().find(".tmp") != std::string::npos;
    if (IsOurs(name) || temporary || !fs::is_directory(out_)) continue;
    if (!fs::exists(fs::symlink_status(out_ / name))) fs::rename(entry.path(), out_ / name);
  }
}

void StagingDirectory::Publish() {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    if (!IsOurs(entry.path().filename())) fs::remove_all(entry.path());
  }
  if (fs::is_directory(out_)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(out_)) {
      const fs::path name = entry.path().filename();
      if (!IsOurs(name) && entry.is_regular_file() && !entry.is_symlink()) {
        fs::create_hard_link(entry.path(), path_ / name);
      }
    }
  }
  ReplaceDirectory(path_.string(), out_.string());
  kept_ = false;
  if (fs::is_directory(path_)) ReturnOtherFiles();
}

}  // namespace sandglass
