// A Python process that has imported torch and forks ranks, so that the next run starts in milliseconds.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "harness/torch/run.h"

namespace seeksim::harness::torch {

class WarmStart {
 public:
  // Starts it and waits until it is ready. Where it does not get ready, why() says so and ranks start by themselves.
  // modules: what it imports besides torch.
  explicit WarmStart(const Start& start, const std::vector<std::string>& modules = {});
  // Ends it, and the ranks that it has forked.
  ~WarmStart();
  WarmStart(const WarmStart&) = delete;
  WarmStart& operator=(const WarmStart&) = delete;

  // What stands before the script (Start::ranks_with); empty where it is not ready.
  const std::vector<std::string>& ranks_with() const { return ranks_with_; }
  const std::string& why() const { return why_; }
  // What it and the ranks that have ended have used of the processor.
  double processor_s() const;

 private:
  std::string folder_, why_;
  pid_t pid_ = -1;
  std::vector<std::string> ranks_with_;
};

}  // namespace seeksim::harness::torch
