#include "data/corpus.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxDocumentBytes = size_t{1} << 30;
constexpr size_t kBlockBytes = size_t{1} << 20;

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

void DropCarriageReturn(std::string& text) {
  if (text.ends_with('\r')) text.pop_back();
}

bool HasJsonLinesName(const std::string& path) {
  fs::path name = path;
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  const fs::path extension = name.extension();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

}  // namespace

struct CorpusReader::JsonLines {
  simdjson::dom::parser parser;
};

CorpusReader::CorpusReader(CorpusOptions options)
    : options_(std::move(options)), json_lines_(std::make_unique<JsonLines>()) {
  if (options_.inputs.empty()) {
    throw Error({.what = "no input was given",
                 .expected = "text files, .jsonl files, directories, or - for standard input"});
  }
  for (const std::string& input : options_.inputs) AddInput(input);
  if (std::find(options_.inputs.begin(), options_.inputs.end(), "-") != options_.inputs.end()) {
    total_bytes_ = 0;
  }
}

CorpusReader::~CorpusReader() = default;

void CorpusReader::AddInput(const std::string& input) {
  if (input == "-") {
    files_.push_back({input, false});
    return;
  }
  std::error_code failure;
  const fs::file_status status = fs::status(input, failure);
  if (!fs::exists(status)) {
    throw Error({.what = "the input does not exist",
                 .where = input,
                 .remedy = "check the path; relative paths start at the current directory"});
  }
  if (!fs::is_directory(status)) {
    if (fs::is_regular_file(status) && fs::file_size(input) == 0) {
      throw Error({.what = "the input is empty", .where = input, .expected = "text"});
    }
    return AddFile(input);
  }
  std::vector<std::string> paths;
  fs::recursive_directory_iterator entry(input, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      paths.push_back(entry->path().string());
    }
  }
  if (failure) {
    throw Error({.what = "cannot read the directory: " + failure.message(), .where = input});
  }
  if (paths.empty()) {
    throw Error({.what = "the directory holds no files", .where = input, .expected = "text"});
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) AddFile(path);
}

void CorpusReader::AddFile(const std::string& path) {
  std::error_code ignored;  // a named pipe has no size
  const uintmax_t size = fs::file_size(path, ignored);
  if (!ignored) total_bytes_ += size;
  files_.push_back({path, HasJsonLinesName(path)});
}

std::vector<std::string> CorpusReader::Paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

std::optional<std::vector<std::string>> CorpusReader::NextBlock() {
  std::vector<std::string> block;
  size_t block_bytes = 0;
  while (block_bytes < kBlockBytes) {
    auto document = Next();
    if (!document) break;
    block_bytes += document->size();
    block.push_back(std::move(*document));
  }
  if (block.empty()) return std::nullopt;
  return block;
}

std::optional<std::string> CorpusReader::Next() {
  while (source_ != nullptr || OpenNextFile()) {
    if (auto document = NextOfFile()) {
      ++report_.documents;
      report_.text_bytes += static_cast<int64_t>(document->size());
      return document;
    }
    finished_bytes_ += source_->consumed_bytes();
    source_.reset();
  }
  if (report_.documents == 0) {
    const std::string& malformed = report_.first_malformed;
    throw Error(
        {.what = "the input holds no text at all",
         .where = malformed.empty() ? options_.inputs.front() : malformed,
         .expected = "at least one document that is not empty",
         .remedy = malformed.empty() ? "" : "name the field that holds the text with --text-key"});
  }
  return std::nullopt;
}

bool CorpusReader::OpenNextFile() {
  if (next_file_ == files_.size()) return false;
  source_ = std::make_unique<ByteSource>(files_[next_file_].path);
  ++next_file_;
  ++report_.files;
  buffer_.clear();
  buffer_begin_ = 0;
  line_ = 0;
  whole_file_read_ = false;
  return true;
}

std::optional<std::string> CorpusReader::NextOfFile() {
  if (files_[next_file_ - 1].is_json_lines) return ReadJsonLine();
  switch (options_.documents) {
    case DocumentUnit::kFile:
      return ReadWholeFile();
    case DocumentUnit::kLine:
      return ReadLineDocument();
    case DocumentUnit::kParagraph:
      return ReadParagraph();
  }
  SANDGLASS_CHECK(false, "unknown document unit");
}

std::optional<std::string> CorpusReader::ReadWholeFile() {
  if (std::exchange(whole_file_read_, true)) return std::nullopt;
  while (Refill()) CheckSize(buffer_.size());
  if (buffer_.empty()) {
    ++report_.empty_documents;
    return std::nullopt;
  }
  return std::move(buffer_);
}

std::optional<std::string> CorpusReader::ReadLineDocument() {
  while (auto line = ReadLine()) {
    DropCarriageReturn(*line);
    if (!IsBlank(*line)) return line;
    ++report_.empty_lines;
  }
  return std::nullopt;
}

std::optional<std::string> CorpusReader::ReadParagraph() {
  std::optional<std::string> paragraph;
  while (auto line = ReadLine()) {
    if (IsBlank(*line)) {
      if (paragraph) break;
    } else if (paragraph) {
      *paragraph += '\n';
      *paragraph += *line;
      CheckSize(paragraph->size());
    } else {
      paragraph = std::move(line);
    }
  }
  if (paragraph) DropCarriageReturn(*paragraph);
  return paragraph;
}

std::optional<std::string> CorpusReader::ReadJsonLine() {
  while (auto line = ReadLine()) {
    if (IsBlank(*line)) {
      ++report_.empty_lines;
      continue;
    }
    simdjson::dom::element object;
    std::string_view text;
    std::string reason;
    if (const auto error = json_lines_->parser.parse(*line).get(object)) {
      reason = fmt::format("not JSON: {}", simdjson::error_message(error));
    } else if (!object.is_object()) {
      reason = "not a JSON object";
    } else if (object[options_.text_key].error()) {
      reason = fmt::format("no field \"{}\"", options_.text_key);
    } else if (object[options_.text_key].get(text)) {
      reason = fmt::format("the field \"{}\" is no string", options_.text_key);
    } else if (text.empty()) {
      ++report_.empty_documents;
      continue;
    } else {
      return std::string(text);
    }
    if (++report_.malformed_lines == 1) {
      report_.first_malformed = fmt::format("{}: {}", Here(), reason);
    }
  }
  return std::nullopt;
}

// The next line without its "\n".
std::optional<std::string> CorpusReader::ReadLine() {
  size_t searched = buffer_begin_;
  size_t end = 0;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    buffer_.erase(0, buffer_begin_);
    buffer_begin_ = 0;
    searched = buffer_.size();
    CheckSize(buffer_.size());
    if (Refill()) continue;
    if (buffer_.empty()) return std::nullopt;
    ++line_;
    return std::exchange(buffer_, {});
  }
  std::string line = buffer_.substr(buffer_begin_, end - buffer_begin_);
  buffer_begin_ = end + 1;
  ++line_;
  return line;
}

bool CorpusReader::Refill() {
  const size_t before = buffer_.size();
  const bool more = source_->Read(buffer_);
  report_.consumed_bytes = finished_bytes_ + source_->consumed_bytes();
  // In JSON lines the parser tells what is wrong with the line.
  if (!files_[next_file_ - 1].is_json_lines && buffer_.find('\0', before) != std::string::npos) {
    throw Error({.what = "the file is not text: it contains NUL bytes",
                 .where = Here(),
                 .expected = "UTF-8 text or JSON lines, perhaps compressed with gzip or zstd",
                 .remedy = "leave the file out, or convert UTF-16 text with "
                           "`iconv -f UTF-16 -t UTF-8`"});
  }
  return more;
}

void CorpusReader::CheckSize(size_t document_bytes) const {
  if (document_bytes > kMaxDocumentBytes) {
    throw Error(
        {.what = "a document is larger than " + HumanBytes(static_cast<double>(kMaxDocumentBytes)),
         .where = Here(),
         .expected = "documents that fit into memory several times",
         .remedy = "cut the text with --documents paragraph or --documents line"});
  }
}

std::string CorpusReader::Here() const {
  const std::string& path = files_[next_file_ - 1].path;
  const std::string name = path == "-" ? "standard input" : path;
  return line_ > 0 ? fmt::format("{}:{}", name, line_) : name;
}

}  // namespace sandglass
