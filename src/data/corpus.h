// Documents from text files, directories and JSON lines, one after another in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/byte_source.h"

namespace sandglass {

// How a plain text file is cut into documents. JSON lines are one document per line whatever this
// says.
enum class DocumentUnit { kFile, kLine, kParagraph };

template <class E>
struct EnumNames;  // base/fields.h
template <>
struct EnumNames<DocumentUnit> {
  static constexpr std::array<std::pair<DocumentUnit, const char*>, 3> kNames{
      {{DocumentUnit::kFile, "file"},
       {DocumentUnit::kLine, "line"},
       {DocumentUnit::kParagraph, "paragraph"}}};
};

struct CorpusOptions {
  std::vector<std::string> inputs;
  DocumentUnit documents = DocumentUnit::kFile;
  std::string text_key = "text";

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("inputs", self.inputs,
          "text files, .jsonl files, directories of them, or - for standard input; each may be "
          "compressed with gzip or zstd");
    field("documents", self.documents,
          "how a text file is cut into documents: file, line or paragraph (at blank lines)");
    field("text_key", self.text_key, "the field of a JSON line that holds the text");
  }
};

// What has been read so far.
struct CorpusReport {
  int64_t files = 0;
  int64_t documents = 0;
  int64_t text_bytes = 0;
  int64_t empty_lines = 0;      // blank lines where lines are documents, and in JSON lines
  int64_t empty_documents = 0;  // empty files in a directory, JSON lines whose text is ""
  int64_t malformed_lines = 0;  // JSON lines that could not be used
  std::string first_malformed;  // "data.jsonl:3: no field \"text\"", "" if there is none
  uint64_t consumed_bytes = 0;  // of the input files, before decompression
};

// Reads the inputs in the order given, directories recursively in the order of their sorted paths
// without hidden files. Names that end in .jsonl, .ndjson or .json (then perhaps .gz or .zst) are
// JSON lines, all others text.
//
// Bytes are kept as they are, CRLF and invalid UTF-8 included. What separates documents belongs to
// none: the end of a line, the blank lines around a paragraph.
class CorpusReader {
 public:
  // Throws Error if an input is missing or empty.
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();

  // The next document, never empty; nothing at the end. Throws Error for a file that is binary (a
  // NUL byte in text), damaged, or cut off, for a document above 1 GiB, and at the end if there was
  // no document at all.
  std::optional<std::string> Next();

  // About a megabyte of documents, at least one; nothing at the end.
  std::optional<std::vector<std::string>> NextBlock();

  const CorpusReport& report() const { return report_; }
  // The files that will be read, in order; "-" for standard input.
  std::vector<std::string> Paths() const;
  // Size of the input files before decompression; 0 if it is unknown (standard input).
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  struct File {
    std::string path;
    bool is_json_lines = false;
  };
  struct JsonLines;

  void AddInput(const std::string& input);
  void AddFile(const std::string& path);
  bool OpenNextFile();
  std::optional<std::string> NextOfFile();
  std::optional<std::string> ReadWholeFile();
  std::optional<std::string> ReadLineDocument();
  std::optional<std::string> ReadParagraph();
  std::optional<std::string> ReadJsonLine();
  std::optional<std::string> ReadLine();
  bool Refill();
  void CheckSize(size_t document_bytes) const;
  std::string Here() const;

  CorpusOptions options_;
  std::vector<File> files_;
  size_t next_file_ = 0;
  uint64_t total_bytes_ = 0;
  uint64_t finished_bytes_ = 0;  // of the files before the present one
  CorpusReport report_;

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t buffer_begin_ = 0;  // what lies before it has been used
  int64_t line_ = 0;         // number of the line read last
  bool whole_file_read_ = false;
  std::unique_ptr<JsonLines> json_lines_;
};

}  // namespace sandglass
