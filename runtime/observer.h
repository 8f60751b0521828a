// What a run tells whoever watches it: one call a committed step, one a stage of a recovery. The harness turns these
// into the report; the runtime never formats anything for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "runtime/diagnosis.h"
#include "runtime/plan.h"
#include "runtime/provenance.h"

namespace seeksim::runtime {

struct StepRecord {
  std::int64_t step = 0;
  float loss = 0;
  float grad_norm = 0;
  double lr = 0;               // the one that was applied
  double loss_scale = 1;       // that was used
  std::int64_t nonfinite = 0;  // elements of the gradients that this rank measured: all, or its shard's
  bool skipped = false;        // non-finite gradient: nothing was applied
  TimeNs committed_ns = 0;
};

// One recovery as one rank lived it.
struct RecoveryRecord {
  std::uint32_t epoch = 0;  // that ended
  std::int64_t step = 0;    // that was under way
  ErrorKind error = ErrorKind::count_;
  Op op;  // in which this rank noticed
  std::string detail;
  Diagnosis diagnosis;
  std::vector<int> evicted;
  std::vector<int> survivors;
  TimeNs detected_ns = 0;
  TimeNs agreed_ns = 0;
  TimeNs rebuilt_ns = 0;
  TimeNs resumed_ns = 0;  // the step that was under way is committed
  std::int64_t steps_lost = 0;
};

// Digests of what a rank holds at the end; equal on all ranks and to the golden's.
struct StateDigest {
  std::uint64_t params = 0;
  std::uint64_t optimizer = 0;
  std::int64_t data_position = 0;    // samples consumed
  std::int64_t optimizer_steps = 0;  // Adam's t
  double loss_scale = 1;
  std::vector<std::pair<std::string, std::uint64_t>> by_tensor;  // parameter digests, registration order
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

// Named host copies, for --save-gradients and the like.
struct NamedTensor {
  std::string name;  // GPT-2's name in Hugging Face's transformers
  std::vector<Index> shape;
  std::vector<float> values;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void step_committed(int rank, const StepRecord& record) = 0;
  // Values of the result were searched for poison (poison.h): where it was found; empty: nowhere. at_source: in what
  // the step began with, and not only in what came of it.
  virtual void looked_for_poison(int /*rank*/, Index /*values*/, const std::string& /*found*/, bool /*at_source*/) {}
  virtual void recovering(int rank, const RecoveryRecord& so_far) = 0;  // agreed: who is to blame, who goes on
  virtual void recovered(int rank, const RecoveryRecord& record) = 0;
  // Asked before a step: should its reduced, unscaled, unclipped gradients be handed out?
  virtual bool wants_gradients(int rank, std::int64_t step) = 0;
  virtual void gradients(int rank, std::int64_t step, std::vector<NamedTensor> gradients) = 0;
  // The first value of a step that is not finite, as this rank saw it, and what operations wrote, where that is logged.
  virtual void nonfinite_born(int, std::int64_t, const NonFiniteBirth&) {}
  virtual void ranges(int, std::int64_t, std::vector<RangeLogEntry>) {}
  // Without fp32 masters: of the last step on this rank's shard, how many updates there were and were lost in rounding.
  virtual void stagnation(int, std::int64_t, const kernels::Stagnation&) {}
};

}  // namespace seeksim::runtime
