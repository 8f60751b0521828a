// What a seam may throw. A SeamError unwinds to the one catch site in training_run.cpp; a RankDied unwinds a killed
// rank's host to its launcher and is deliberately no std::exception, so that no other code catches it.
#pragma once

#include <exception>
#include <string>

#include "runtime/seams/op.h"

namespace seeksim::runtime {

enum class ErrorKind : std::uint8_t {
  timeout,       // the watchdog: an Op did not complete by its deadline
  revoked,       // another rank failed and revoked the epoch
  remote_error,  // the transport learned that a peer or a link is gone
  corrupt,       // a message failed its checksum
  mismatch,      // a peer brought another Op than the one expected
  out_of_memory,
  io,
  fenced,           // the others have declared this rank dead and gone on
  no_progress,      // policy or members cannot go on (no quorum, too many attempts)
  closure,          // a kernel or host closure failed
  corrupt_compute,  // a rank computed other bits when it ran a micro-batch again
  device_lost,      // the device's context is gone: an uncorrectable memory error, a kernel that never ends
  data_error,       // the data loader cannot bring a sample
  diverged,         // the run's numbers left the range in which it can go on (divergence monitor)
  too_slow,         // no failure: a rank leaves because it is too slow (straggler score)
  count_
};
std::string_view name(ErrorKind kind);

class SeamError : public std::exception {
 public:
  SeamError(ErrorKind kind, const Op& op, std::string detail, bool injected = false);
  ErrorKind kind() const { return kind_; }
  const Op& op() const { return op_; }
  bool injected() const { return injected_; }
  const std::string& detail() const { return detail_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorKind kind_;
  Op op_;
  bool injected_;
  std::string detail_;
  std::string what_;
};

struct RankDied {
  int rank = -1;
};

}  // namespace seeksim::runtime
