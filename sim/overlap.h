// OverlapMeter: how long a rank's transfers (its communication, or copies between host and device) were in flight, in
// virtual time, and for how much of that something computed: what a user of `overlap_comm` or of offload wants to know.
#pragma once

#include "runtime/seams/op.h"
#include "runtime/seams/time.h"

namespace seeksim::sim {

using runtime::TimeNs;

struct CommOverlap {
  TimeNs in_flight_ns = 0;  // at least one operation had been started and was not over
  TimeNs hidden_ns = 0;     // and a kernel ran on a queue of the same rank that counts
  double share() const { return in_flight_ns > 0 ? double(hidden_ns) / double(in_flight_ns) : 0; }
  CommOverlap& operator+=(const CommOverlap& other) {
    in_flight_ns += other.in_flight_ns;
    hidden_ns += other.hidden_ns;
    return *this;
  }
};

class OverlapMeter {
 public:
  // Only the transfers of steps: while a world is made, mended or ended there is nothing to hide it under.
  static bool counts(const runtime::Op& op) {
    return op.phase != runtime::Phase::init && op.phase != runtime::Phase::recovery &&
           op.phase != runtime::Phase::checkpoint;
  }

  void transfer_starts(TimeNs now) { advance(now), ++in_flight_; }
  void transfer_ends(TimeNs now) { advance(now), --in_flight_; }
  void compute_starts(TimeNs now) { advance(now), ++computing_; }
  void compute_ends(TimeNs now) { advance(now), --computing_; }

  const CommOverlap& total() const { return total_; }

 private:
  void advance(TimeNs now) {
    if (in_flight_ > 0) {
      const TimeNs passed = now - since_;
      total_.in_flight_ns = runtime::later(total_.in_flight_ns, passed);
      if (computing_ > 0) total_.hidden_ns = runtime::later(total_.hidden_ns, passed);
    }
    since_ = now;
  }

  int in_flight_ = 0;
  int computing_ = 0;  // queues that do
  TimeNs since_ = 0;
  CommOverlap total_;
};

}  // namespace seeksim::sim
