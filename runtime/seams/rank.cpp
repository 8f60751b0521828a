// Rank::wait: the one place where "the event is done" is turned into "the data is good". An aborted operation completes
// too (over garbage), and a communicator that hangs reports success, so the order in which things are asked decides
// what a failure is called: the communicator's own error first, then the revoke, then the watchdog.
#include "runtime/seams/rank.h"

#include <fmt/format.h>

namespace seeksim::runtime {
namespace {

std::vector<Comm> all_of(const Rank& rank, Comm first) {
  std::vector<Comm> all = rank.comms;
  if (!first) return all;
  std::erase_if(all, [first](Comm open) { return open.handle == first.handle; });
  all.insert(all.begin(), first);
  return all;
}

std::string who_is_missing(const Rank& rank, Comm first) {
  for (const Comm comm : all_of(rank, first)) {
    const Transport::Unmatched waiting = rank.transport.unmatched(comm);
    if (!waiting.pending) continue;
    const std::string what = describe(waiting.op);
    if (waiting.peer < 0) return fmt::format("; the oldest unfinished operation is {}", what);
    if (waiting.waits_for_send) return fmt::format("; in {} the message of rank {} never came", what, waiting.peer);
    return fmt::format("; in {} rank {} never took our message", what, waiting.peer);
  }
  return {};
}

// Out of line, so that the way without failures needs little stack.
[[noreturn, gnu::cold, gnu::noinline]] void throw_failed(const Rank& rank, CommResult error, Comm comm, const Op& op) {
  if (error == CommResult::invalid_argument) {  // a dead handle: this rank gave up on it
    const ErrorKind kind = rank.control.revoked(op.epoch) ? ErrorKind::revoked : ErrorKind::mismatch;
    throw SeamError(kind, op, "the communicator was aborted, or poisoned by an invalid argument");
  }
  throw SeamError(error_kind(error), op,
                  fmt::format("the transport reports {}{}", name(error), who_is_missing(rank, comm)));
}

[[noreturn, gnu::cold, gnu::noinline]] void throw_revoked(const Rank& rank, Comm comm, const Op& op) {
  throw SeamError(ErrorKind::revoked, op, "another rank failed and revoked the epoch" + who_is_missing(rank, comm));
}

[[noreturn, gnu::cold, gnu::noinline]] void throw_timeout(const Rank& rank, TimeNs timeout, Comm comm, const Op& op) {
  for (const Comm open : all_of(rank, comm)) {
    const Transport::Unmatched waiting = rank.transport.unmatched(open);
    if (waiting.pending) rank.recorder.timed_out(waiting.op);
  }
  throw SeamError(
      ErrorKind::timeout, op,
      fmt::format("not complete after {:.6g} s{}", double(timeout) / double(kSecond), who_is_missing(rank, comm)));
}

}  // namespace

void Rank::wait(const Event& event, const Op& op, TimeNs timeout_ns, Comm comm) {
  const TimeNs deadline = later(clock.now(), timeout_ns);
  const auto look = [&](Comm at) {
    const CommResult error = transport.async_error(at);
    if (error != CommResult::success && error != CommResult::in_progress) throw_failed(*this, error, at, op);
  };
  for (;;) {
    const WaitResult result = device.wait(event, deadline, op.epoch);
    if (comm) look(comm);
    for (const Comm open : comms) {
      if (open.handle != comm.handle) look(open);
    }
    if (control.revoked(op.epoch)) throw_revoked(*this, comm, op);
    if (result == WaitResult::done) return;
    if (result == WaitResult::timed_out) throw_timeout(*this, timeout_ns, comm, op);
    // Woken by an alarm whose communicator is gone already.
  }
}

}  // namespace seeksim::runtime
