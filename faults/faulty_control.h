// A ControlPlane with faults: a rank hangs or dies on its way into a vote, an agreement or a join, or gets notice of
// when it will be gone. The times of a wrong clock are corrected on the way in.
#pragma once

#include "faults/faulty_clock.h"
#include "faults/forwarding.h"
#include "faults/host_faults.h"

namespace seeksim::faults {

class FaultyControlPlane final : public ForwardingControlPlane {
 public:
  FaultyControlPlane(int rank, runtime::ControlPlane& inner, runtime::Clock& clock, FaultyClock& shown,
                     HostFaults& host, std::vector<RuleState*> notices)
      : ForwardingControlPlane(inner),
        rank_(rank),
        clock_(clock),
        shown_(shown),
        host_(host),
        notices_(std::move(notices)) {}

  void revoke(std::uint32_t epoch, const runtime::Op& op, runtime::ErrorKind why) override {
    if (!host_.gone()) inner_.revoke(epoch, op, why);
  }
  // A rank that dies `during` has cast its ballot and never learns the answer. `after`: it has learnt the answer, and
  // does not act on it. The others cannot tell the two apart.
  runtime::Agreement agree(const runtime::Op& op, std::uint32_t epoch, const runtime::Ballot& ballot,
                           TimeNs deadline) override {
    const runtime::DiesAt dies = host_.enter(op);
    runtime::Agreement agreement = inner_.agree(op, epoch, ballot, shown_.true_time(deadline));
    if (dies != runtime::DiesAt::never) host_.die();
    return agreement;
  }
  runtime::TakenIn join(const runtime::Op& op, TimeNs deadline) override {
    const runtime::DiesAt dies = host_.enter(op);
    runtime::TakenIn taken = inner_.join(op, shown_.true_time(deadline));
    if (dies != runtime::DiesAt::never) host_.die();
    return taken;
  }
  TimeNs notice() override;
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override {
    if (!host_.gone()) inner_.enter_epoch(epoch, members);
  }

 private:
  int rank_;
  runtime::Clock& clock_;
  FaultyClock& shown_;
  HostFaults& host_;
  std::vector<RuleState*> notices_;
};

// Whether the notice is called off, which is decided when the plan is made, and when the rank will be gone.
bool is_called_off(const RuleState& notice);
TimeNs gone_at(const Rule& notice);

}  // namespace seeksim::faults
