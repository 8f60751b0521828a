// A ControlPlane with faults: a rank that hangs or dies on its way into a vote or an agreement.
#pragma once

#include "faults/host_faults.h"

namespace seeksim::faults {

class FaultyControlPlane final : public runtime::ControlPlane {
 public:
  FaultyControlPlane(runtime::ControlPlane& inner, HostFaults& host) : inner_(inner), host_(host) {}

  std::uint32_t epoch() const override { return inner_.epoch(); }
  std::vector<int> members() const override { return inner_.members(); }
  void revoke(std::uint32_t epoch, const runtime::Op& op, runtime::ErrorKind why) override {
    if (!host_.gone()) inner_.revoke(epoch, op, why);
  }
  bool revoked(std::uint32_t epoch) const override { return inner_.revoked(epoch); }
  // A rank that dies `during` has put its ballot on the table and never learns the answer; `after`: learnt it, and acts
  // on it no more. For the others the two are one.
  runtime::Agreement agree(const runtime::Op& op, std::uint32_t epoch, const runtime::Ballot& ballot,
                           TimeNs deadline) override {
    const runtime::DiesAt dies = host_.enter(op);
    runtime::Agreement agreement = inner_.agree(op, epoch, ballot, deadline);
    if (dies != runtime::DiesAt::never) host_.die();
    return agreement;
  }
  runtime::TakenIn join(const runtime::Op& op, TimeNs deadline) override {
    const runtime::DiesAt dies = host_.enter(op);
    runtime::TakenIn taken = inner_.join(op, deadline);
    if (dies != runtime::DiesAt::never) host_.die();
    return taken;
  }
  TimeNs notice() override { return inner_.notice(); }
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override {
    if (!host_.gone()) inner_.enter_epoch(epoch, members);
  }
  void stopped_until(TimeNs when) override { inner_.stopped_until(when); }

 private:
  runtime::ControlPlane& inner_;
  HostFaults& host_;
};

}  // namespace seeksim::faults
