// A file system that holds nothing and keeps nothing.
#pragma once

#include <string>
#include <vector>

#include "runtime/seams/seams.h"

namespace seeksim::test {

class EmptyStorage final : public runtime::Storage {
 public:
  std::string read(std::string_view) override { return {}; }
  void write(std::string_view, std::string_view) override {}
  void sync(std::string_view) override {}
  void rename(std::string_view, std::string_view) override {}
  void remove(std::string_view) override {}
  std::size_t read_at(std::string_view, std::uint64_t, std::span<std::byte>) override { return 0; }
  std::size_t write_at(std::string_view, std::uint64_t, std::span<const std::byte>) override { return 0; }
  bool exists(std::string_view) override { return false; }
  std::vector<std::string> list(std::string_view) override { return {}; }
  std::uint64_t free_bytes(std::string_view) override { return 0; }
};

}  // namespace seeksim::test
