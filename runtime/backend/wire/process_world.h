// ProcessWorld: the processes of a job, and what the leading one and the others tell each other before and after a run.
// Waiting here never spins: a process that waits for another one's long work leaves it the processor.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/backend/wire/wire.h"

namespace seeksim::runtime {

// Another process of the job is gone, and this one cannot go on without it.
struct PeerGone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;

  virtual const char* name() const = 0;  // of the backend, for reports
  int rank() const { return rank_; }
  int size() const { return size_; }
  int hosts() const { return hosts_; }  // on which the processes run
  // This host, as the others name it.
  virtual std::string host() const = 0;

  // From rank 0 to all. Throws PeerGone.
  virtual std::string broadcast(std::string text) = 0;
  // To rank 0, which gets one from each of ranks 0..count-1, itself included. A rank from which nothing has come for
  // `patience` since the last one came has an empty text.
  virtual std::vector<std::vector<std::byte>> gather(std::vector<std::byte> mine, int count, TimeNs patience) = 0;
  // Whether broadcast() reaches those that are left when others are gone or say nothing.
  virtual bool reaches_who_is_left() const { return false; }
  // Ends this process, and all others as far as it can, also those that will never answer.
  [[noreturn]] virtual void abort(int exit_status) = 0;

  // What carries the messages of training. Lives no longer than this.
  virtual Wire& wire() = 0;

 protected:
  int rank_ = 0;
  int size_ = 1;
  int hosts_ = 1;
};

}  // namespace seeksim::runtime
