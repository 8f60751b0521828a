// Where ranks of this host come to the relay: a socket in a folder of this user alone, and the connections over it.
#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pytorch/core/group.h"

namespace seeksim::harness::torch {

// A rank in one group.
struct RankCaller {
  int fd = -1;
  int pid = 0;
  std::optional<pytorch::GroupKey> key;  // since it has entered
  int place = -1;
  std::optional<pytorch::ProcessHandle> process;
};

class RanksDoor {
 public:
  // Makes the folder and listens there. Throws std::runtime_error.
  RanksDoor();
  ~RanksDoor();
  RanksDoor(const RanksDoor&) = delete;
  RanksDoor& operator=(const RanksDoor&) = delete;

  const std::string& path() const { return path_; }
  std::list<RankCaller>& callers() { return callers_; }
  // What to wait for.
  void add_to(std::vector<pollfd>& waiting) const;
  // Lets in who knocks; strangers of other users are sent away.
  void accept();

  // The next thing that a caller said; `file` is a descriptor that came with it, to be closed by whoever takes it.
  // Nothing: nothing is there. Closes the caller's socket (fd -1) where it has hung up.
  struct Said {
    std::vector<std::byte> bytes;
    int file = -1;
  };
  static std::optional<Said> hear(RankCaller& caller);
  static void answer(const RankCaller& caller, const std::string& text);
  static void hang_up(RankCaller& caller);

 private:
  std::string folder_, path_;
  int listener_ = -1;
  std::list<RankCaller> callers_;
};

}  // namespace seeksim::harness::torch
