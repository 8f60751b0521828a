// SimStorage: a rank's view of its node's files, and of those that all nodes share. They live in memory, with POSIX's
// honesty: content lasts after its file's sync, a name after its folder's; what is not synced is gone when the whole
// node dies, of shared files when all nodes do. Disks outlive a world: the next one may go on with them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/seams/seams.h"
#include "sim/steering.h"
#include "sim/world.h"

namespace seeksim::sim {

class Loop;

// One node's files, or the shared ones.
class Disk {
 public:
  struct Inode {
    std::string content;
    std::string durable;
  };
  void lose_what_is_not_synced();
  // Less orderly: of what is not synced, each sector of content and each change of a name lasts or does not, by a draw.
  void tear_what_is_not_synced(std::uint64_t seed);
  std::uint64_t used_bytes() const;
  // No less than used_bytes(), so that a write need not add up all files; unset: to be added up. Kept by SimStorage.
  std::optional<std::uint64_t> used_at_most;

  std::map<std::string, std::shared_ptr<Inode>, std::less<>> names;    // as seen now
  std::map<std::string, std::shared_ptr<Inode>, std::less<>> durable;  // as seen after a crash of the node
};

struct Disks {
  std::map<int, Disk> by_node;
  Disk shared;
};

class SimStorage final : public runtime::Storage {
 public:
  SimStorage(Disks& disks, const StorageModel& model, int node, int rank)
      : disks_(disks), model_(model), node_(node), rank_(rank) {}
  void told_to(const Loop& loop) { loop_ = &loop; }  // what is read and written

  std::string read(std::string_view path) override;
  void write(std::string_view path, std::string_view bytes) override;
  void sync(std::string_view path) override;
  void rename(std::string_view from, std::string_view to) override;
  void remove(std::string_view path) override;
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override;
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override;
  bool exists(std::string_view path) override;
  std::vector<std::string> list(std::string_view folder) override;
  std::uint64_t free_bytes(std::string_view folder) override;

 private:
  Disk& disk(std::string_view path);
  void touch(std::string_view path, Access how);
  Disk::Inode& inode(std::string_view path);
  [[noreturn]] void fail(std::string_view path, const std::string& reason) const;

  Disks& disks_;
  const StorageModel& model_;
  int node_;
  int rank_;
  const Loop* loop_ = nullptr;
};

}  // namespace seeksim::sim
