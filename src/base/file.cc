#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"

namespace sandglass {
namespace {

std::string RemedyFor(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another directory; earlier results are untouched";
    case ENOENT:
      return "check the path; relative paths start at the current directory";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions of the file and its directory";
    case EISDIR:
      return "name a file, not a directory";
    default:
      return "";
  }
}

[[noreturn]] void ThrowErrno(const char* action, const std::string& path, int error_number) {
  throw Error({.what = fmt::format("cannot {} the file: {}", action, std::strerror(error_number)),
               .where = path,
               .remedy = RemedyFor(error_number)});
}

}  // namespace

std::string ReadFile(const std::string& path) {
  const MappedFile file(path);
  return std::string(file.bytes());
}

void WriteFileAtomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.Write(contents);
  file.Commit();
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_path_(fmt::format("{}.tmp{}", path_, ::getpid())) {
  file_ = std::fopen(temporary_path_.c_str(), "wb");
  if (file_ == nullptr) ThrowErrno("create", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) {
    std::fclose(file_);
    ::unlink(temporary_path_.c_str());
  }
}

void AtomicFile::Fail(const char* action) {
  const int error_number = errno;
  std::fclose(file_);
  file_ = nullptr;
  ::unlink(temporary_path_.c_str());
  ThrowErrno(action, path_, error_number);
}

void AtomicFile::Write(std::string_view bytes) { Write(bytes.data(), bytes.size()); }

void AtomicFile::Write(const void* data, size_t size_bytes) {
  SANDGLASS_CHECK(file_ != nullptr, "write after commit");
  if (std::fwrite(data, 1, size_bytes, file_) != size_bytes) Fail("write");
  size_bytes_ += size_bytes;
}

void AtomicFile::Commit() {
  SANDGLASS_CHECK(file_ != nullptr, "second commit");
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) Fail("write");
  if (std::fclose(std::exchange(file_, nullptr)) != 0) {
    ::unlink(temporary_path_.c_str());
    ThrowErrno("write", path_, errno);
  }
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary_path_.c_str());
    ThrowErrno("rename", path_, error_number);
  }
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  SyncDirectory(parent.empty() ? "." : parent);
}

void RemoveUnfinished(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path parent = fs::path(path).parent_path();
  const std::string prefix = fs::path(path).filename().string() + ".tmp";
  std::vector<fs::path> unfinished;
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(parent.empty() ? fs::path(".") : parent, missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
      unfinished.push_back(entry.path());
    }
  }
  for (const fs::path& file : unfinished) fs::remove(file, missing);
}

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& does)
    : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) ThrowErrno("open", directory, errno);
  // File systems without locks fail in other ways, and are used unlocked.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw Error({.what = "another process " + does + " in this directory",
               .where = directory,
               .remedy = "wait until it has ended, or choose another directory"});
}

DirectoryLock::~DirectoryLock() { ::close(descriptor_); }

GrowingFile::GrowingFile(std::string path, int64_t keep_bytes)
    : path_(std::move(path)), size_bytes_(keep_bytes) {
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) ThrowErrno("create", path_, errno);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size < keep_bytes ||
      ::ftruncate(descriptor, keep_bytes) != 0 || ::lseek(descriptor, keep_bytes, SEEK_SET) < 0 ||
      (file_ = ::fdopen(descriptor, "wb")) == nullptr) {
    const int error_number = status.st_size < keep_bytes ? ENODATA : errno;
    ::close(descriptor);
    ThrowErrno("continue", path_, error_number);
  }
}

GrowingFile::~GrowingFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void GrowingFile::Write(const void* data, size_t size_bytes) {
  if (std::fwrite(data, 1, size_bytes, file_) != size_bytes) ThrowErrno("write", path_, errno);
  size_bytes_ += static_cast<int64_t>(size_bytes);
}

void GrowingFile::Sync() {
  if (std::fflush(file_) != 0 || ::fdatasync(::fileno(file_)) != 0) {
    ThrowErrno("write", path_, errno);
  }
}

RandomAccessFile::RandomAccessFile(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) ThrowErrno("open", path_, errno);
  struct stat status {};
  const int error_number = ::fstat(descriptor_, &status) != 0 ? errno
                           : S_ISDIR(status.st_mode)          ? EISDIR
                                                              : 0;
  if (error_number != 0) {
    ::close(descriptor_);
    ThrowErrno("read", path_, error_number);
  }
  size_bytes_ = status.st_size;
}

RandomAccessFile::~RandomAccessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

void RandomAccessFile::ReadAt(int64_t offset, void* data, size_t size_bytes) const {
  char* to = static_cast<char*>(data);
  while (size_bytes > 0) {
    const ssize_t count = ::pread(descriptor_, to, size_bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowErrno("read", path_, errno);
    if (count == 0) {
      throw Error({.what = "the file ends too early",
                   .where = fmt::format("{}, byte {}", path_, offset),
                   .remedy = "the file was cut off; restore it"});
    }
    to += count;
    offset += count;
    size_bytes -= static_cast<size_t>(count);
  }
}

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) ThrowErrno("open", path, errno);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error_number = errno;
    ::close(descriptor);
    ThrowErrno("read", path, error_number);
  }
  if (S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    ThrowErrno("read", path, EISDIR);
  }
  size_bytes_ = static_cast<size_t>(status.st_size);
  if (size_bytes_ > 0) {
    data_ = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data_ == MAP_FAILED) {
      const int error_number = errno;
      ::close(descriptor);
      data_ = nullptr;
      size_bytes_ = 0;
      ThrowErrno("map", path, error_number);
    }
  }
  ::close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

void CreateDirectories(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) {
    throw Error({.what = "cannot create the directory: " + failure.message(),
                 .where = path,
                 .remedy = "check the path and its permissions"});
  }
}

void ReplaceDirectory(const std::string& fresh, const std::string& path) {
  SyncDirectory(fresh);
  int failed = 0;
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    // Something is there: an empty directory gives way to rename, any other changes places.
    failed = ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0
                 ? errno
                 : 0;
  }
  if (failed != 0) {
    throw Error(
        {.what = fmt::format("cannot put the new directory in place: {}", std::strerror(failed)),
         .where = path,
         .expected = "a directory on a file system that can exchange directories",
         .remedy = "name a directory that does not exist yet"});
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  SyncDirectory(parent.empty() ? "." : parent);
}

void SyncDirectory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // some file systems do not let directories be opened
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace sandglass
