// The real Storage: files below one folder, through POSIX. Paths are relative to that folder and may not leave it.
#pragma once

#include <string>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class PosixStorage : public Storage {
 public:
  // root: an existing folder.
  explicit PosixStorage(std::string root);

  std::string read(std::string_view path) override;
  void write(std::string_view path, std::string_view bytes) override;  // makes missing folders
  void sync(std::string_view path) override;
  void rename(std::string_view from, std::string_view to) override;
  void remove(std::string_view path) override;
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override;
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override;
  bool exists(std::string_view path) override;
  std::vector<std::string> list(std::string_view folder) override;
  std::uint64_t free_bytes(std::string_view folder) override;

 private:
  std::string full(std::string_view path) const;

  std::string root_;
};

}  // namespace seeksim::runtime
