// A Storage that fails now and then: reads and writes that throw, come up short or lie. Names, listings and room are
// the wrapped storage's. The Op of the storage queue says what a rank was doing.
#pragma once

#include <string>
#include <vector>

#include "faults/forwarding.h"
#include "faults/memory_fault.h"

namespace seeksim::faults {

class FaultyStorage final : public ForwardingStorage {
 public:
  FaultyStorage(int rank, runtime::Storage& inner, runtime::Clock& clock, std::vector<RuleState*> rules,
                const LastOps& last)
      : ForwardingStorage(inner), rank_(rank), clock_(clock), rules_(std::move(rules)), last_(last) {}

  std::string read(std::string_view path) override;
  void write(std::string_view path, std::string_view bytes) override;
  void sync(std::string_view path) override;
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override;
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override;
  void rename(std::string_view from, std::string_view to) override {
    inner_.rename(from, to);
    damage(runtime::OpKind::storage_rename, to);
  }

 private:
  // The rule that fires at this read or write, the first of several; null: none.
  const Rule* struck(runtime::OpKind kind, std::string_view path, std::size_t bytes);
  // Damages durable content in place, for all ranks that will read it.
  void damage(runtime::OpKind kind, std::string_view path);
  void spoil(const Rule& rule, std::string_view path);
  [[noreturn]] void fail(runtime::OpKind kind, std::string_view path, const char* why) const;

  int rank_;
  runtime::Clock& clock_;
  std::vector<RuleState*> rules_;
  const LastOps& last_;
};

}  // namespace seeksim::faults
