// How much slower a straggler is, and when.
#include "faults/faulty_device.h"

#include <algorithm>
#include <cmath>

#include "faults/pace.h"
#include "runtime/seams/bounded.h"

namespace seeksim::faults {

using runtime::kForever;
using runtime::Op;
using runtime::OpKind;

Straggler::Straggler(RuleState& state) : state_(state) {
  if (is_timed(state.rule().when) && state.drawn_at_start()) since_ = *state.rule().when.at_ns;
}

double Straggler::factor(const Op& op, TimeNs now) {
  if (since_ == kForever) {
    if (is_timed(state_.rule().when) || !state_.asks(op, now)) return 1.0;
    since_ = now;
  }
  if (now < since_) return 1.0;
  if (state_.status().fired == 0) state_.record(now, op.rank, &op);
  return pace_after(state_.rule(), now - since_);
}

namespace {
// Far from where times could wrap, and beyond every run.
constexpr TimeNs kNeverEnds = kForever / 4;
}  // namespace

TimeNs FaultyDevice::duration(const Op& op, runtime::Cost cost) const {
  const TimeNs plain = inner_.duration(op, cost);
  const bool of_storage = op.kind == OpKind::storage_read || op.kind == OpKind::storage_write ||
                          op.kind == OpKind::storage_sync || op.kind == OpKind::storage_rename;
  if (of_storage) memory_.last.storage = op;
  if (stragglers_.empty() && hangs_.empty()) return plain;
  Op ours = op;
  ours.rank = rank_;
  for (RuleState* hang : hangs_) {
    if (!hang->asks(ours, clock_.now())) continue;
    hang->record(clock_.now(), rank_, &ours);
    return kNeverEnds;
  }
  double factor = 1.0;
  for (Straggler* straggler : stragglers_) {
    if (can_concern(straggler->rule(), op.kind)) factor *= straggler->factor(ours, clock_.now());
  }
  return factor == 1.0 ? plain : runtime::to_time_ns(std::round(double(plain) * factor));
}

// A rank that dies `during` or `after` an allocation has the memory, which goes with it.
runtime::BufferPtr FaultyDevice::allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                             const char* name) {
  runtime::DiesAt dies = runtime::DiesAt::never;
  if (own_acts_ && !host_.gone()) {
    host_.check_device();
    dies = host_.enter(memory_.as_op(bytes, name));
  }
  memory_.before_allocation(inner_, space, bytes, tag, name);
  runtime::BufferPtr buffer = inner_.allocate_in(space, bytes, tag, name);
  if (dies != runtime::DiesAt::never) host_.die();
  return buffer;
}

runtime::WaitResult FaultyDevice::wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) {
  if (host_.gone()) return runtime::WaitResult::done;
  host_.check_device();
  return inner_.wait(event, shown_.true_time(deadline), epoch);
}

void FaultyDevice::drain() {
  if (!host_.gone()) inner_.drain();
}

// What a device computed whose context is gone counts for nothing, though its queues run empty.
bool FaultyDevice::drain_by(TimeNs deadline, bool files_too) {
  if (host_.gone()) return true;
  return inner_.drain_by(shown_.true_time(deadline), files_too) && !host_.device_lost();
}

}  // namespace seeksim::faults
