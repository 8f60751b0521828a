// Files that the ranks of a host have left, on their way to the first host: sent part by part, each when the one before
// has gone; written there under names that are checked, never over a file that is there.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/torch/hosts/frames.h"

namespace seeksim::harness::torch {

inline constexpr std::size_t kFilePart = std::size_t(1) << 20;

// A file, and how it is called on the first host.
struct HostFile {
  std::string path, name;
};
// Names of files that one host takes from another.
bool is_name_of_a_rank_file(const std::string& name);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

class FileSender {
 public:
  explicit FileSender(std::vector<HostFile> files) : files_(std::move(files)) {}
  // The next part; false: all have been given. `bytes` stays as it is until the next call.
  bool next(FileFrame& frame, std::span<const std::byte>& bytes);

 private:
  std::vector<HostFile> files_;
  std::size_t at_ = 0;
  std::uint64_t offset_ = 0;
  OpenFile file_;
  std::vector<std::byte> part_;
};

class FileReceiver {
 public:
  FileReceiver(std::string folder, std::uint64_t bytes_max) : folder_(std::move(folder)), left_(bytes_max) {}
  // A part is there. What is wrong with it is kept as the problem; the rest of that file is passed over.
  void take(const FileFrame& frame, std::span<const std::byte> bytes);
  const std::string& problem() const { return problem_; }
  const std::vector<std::string>& whole() const { return whole_; }
  const std::vector<std::string>& begun() const { return begun_; }  // files that are here, whole or not

 private:
  void fail(const std::string& why);

  std::string folder_;
  std::uint64_t left_;
  std::string name_;  // of the file that comes now; empty: none
  std::uint64_t offset_ = 0;
  OpenFile file_;  // null: it is passed over
  std::string problem_;
  std::vector<std::string> whole_, begun_;
};

}  // namespace seeksim::harness::torch
