// Files: reading, mapping, and writing so that a crash or a full disk leaves the old file or the
// new one, never a mixture.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sandglass {

// Whole contents. Throws Error if the file is missing or cannot be read.
std::string ReadFile(const std::string& path);

// Writes to a temporary file beside `path`, syncs it, and renames it over `path`. On failure the
// temporary file is removed, `path` is untouched, and Error says why (a full disk, say).
void WriteFileAtomically(const std::string& path, std::string_view contents);

// As WriteFileAtomically for contents that are produced piece by piece. The file appears under its
// name at Commit(); without it the destructor removes what was written.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(std::string_view bytes);
  void Write(const void* data, size_t size_bytes);
  void Commit();
  uint64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void Fail(const char* action);

  std::string path_;
  std::string temporary_path_;
  std::FILE* file_ = nullptr;
  uint64_t size_bytes_ = 0;
};

// Removes what processes that were killed while they wrote `path` atomically have left beside it.
// Nobody may be writing it.
void RemoveUnfinished(const std::string& path);

// The right to write in a directory, held until the object is destroyed or the process ends.
class DirectoryLock {
 public:
  // Throws Error if another process holds it, saying that it `does` something there.
  DirectoryLock(const std::string& directory, const std::string& does);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

// A file that grows at its end and can be continued there after a crash.
class GrowingFile {
 public:
  // Cuts the file to its first `keep_bytes` and goes on behind them; 0 starts it. Throws Error if
  // it is shorter.
  explicit GrowingFile(std::string path, int64_t keep_bytes = 0);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  void Write(const void* data, size_t size_bytes);
  // What was written is on the disk after this.
  void Sync();
  int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  int64_t size_bytes_ = 0;
};

// A file that is read at any offset without being held in memory. Movable, not copyable; threads
// may read at once.
class RandomAccessFile {
 public:
  // Throws Error if the file is missing or cannot be read.
  explicit RandomAccessFile(std::string path);
  ~RandomAccessFile();
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  // Throws Error if the file ends before offset + size_bytes, or cannot be read.
  void ReadAt(int64_t offset, void* data, size_t size_bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

// A file mapped read-only into memory. Movable, not copyable.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error if the file is missing or cannot be mapped. An empty file maps to no bytes.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_bytes_}; }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Puts the directory `fresh` in the place of `path` in one step: whoever looks sees the old one or
// the new one. What was at `path`, if anything, is at `fresh` then. Throws Error if that cannot be
// done, and nothing has changed.
void ReplaceDirectory(const std::string& fresh, const std::string& path);

// Creates `path` and its parents. Throws Error if that is not possible.
void CreateDirectories(const std::string& path);

// Flushes a directory's entries to disk, so that a rename inside it survives a crash.
void SyncDirectory(const std::string& path);

}  // namespace sandglass
