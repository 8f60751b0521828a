#include "sim/native_sum.h"

#include <fmt/format.h>

#include "kernels/check.h"
#include "sim/core.h"

namespace seeksim::sim {

using runtime::RecordState;

void NativeSum::post() {
  RankComm& held = owner->comm_at(comm);
  group_ = &held.shared->group(op.sequence);
  const std::size_t here = std::size_t(held.position);
  SEEKSIM_CHECK(group_->at[here] == nullptr, "two operations of one rank with the same sequence number: %s",
                describe(op).c_str());
  group_->at[here] = this;
  ++group_->posted;
  bring(here);
  if (!group_->agrees(*this) || !compare_with_neighbours(here)) group_->mismatched = true;
  if (group_->posted == group_->shared->simulated && !group_->mismatched) complete(*group_);
  if (owner->core().transport.any_dead() && !summed()) look_for_dead(here);
}

// Everybody is compared with the neighbours that are here: if any two members differ, some two neighbours do.
bool NativeSum::compare_with_neighbours(std::size_t here) {
  const std::size_t size = group_->at.size();
  for (const std::size_t next : {here + 1 == size ? 0 : here + 1, here == 0 ? size - 1 : here - 1}) {
    SimActivity* other = group_->at[next];
    if (other == nullptr || other == this || same_as(*other)) continue;
    tell_mismatch(*this, other, mismatch_text(op, what(), other->op, other->what()));
    return false;
  }
  return true;
}

// Native operations of one kind are of one class.
bool NativeSum::same_as(const SimActivity& activity) const {
  if (!activity.native || op.kind != activity.op.kind) return false;
  const auto& other = static_cast<const NativeSum&>(activity);
  return leaves_ == other.leaves_ && factor_ == other.factor_;
}

void NativeSum::fire(const Timer&) {
  withdraw();
  end(RecordState::completed);
}

void NativeSum::withdraw() {
  if (group_ != nullptr) group_->leave(owner->comm_at(comm).position);
  group_ = nullptr;
}

std::string NativeSum::waits_for() const {
  if (group_ == nullptr) return "nobody";
  if (summed()) return "the network";
  std::string text;
  int named = 0;
  for (std::size_t i = 0; i < group_->at.size(); ++i) {
    if (group_->at[i] != nullptr) continue;
    if (named++ == 8) return text + ", ...";
    text += fmt::format("{}rank {} (to join)", named == 1 ? "" : ", ", group_->shared->members[i]);
  }
  return text.empty() ? "nobody: the members brought different operations" : text;
}

}  // namespace seeksim::sim
