// Rank::wait: the one place where "the event is done" is turned into "the data is good". An aborted operation completes
// too (over garbage), and a communicator that hangs reports success, so the order in which things are asked decides
// what a failure is called: the communicator's own error first, then the revoke, then the watchdog.
#include "runtime/rank.h"

#include <fmt/format.h>

namespace seeksim::runtime {
namespace {

std::string who_is_missing(const Transport& transport, Comm comm) {
  if (!comm) return {};
  const Transport::Unmatched waiting = transport.unmatched(comm);
  if (!waiting.pending) return {};
  const std::string what = describe(waiting.op);
  if (waiting.peer < 0) return fmt::format("; the oldest unfinished operation is {}", what);
  if (waiting.waits_for_send) return fmt::format("; in {} the message of rank {} never came", what, waiting.peer);
  return fmt::format("; in {} rank {} never took our message", what, waiting.peer);
}

// Out of line, so that the way without failures needs little stack.
[[noreturn, gnu::cold, gnu::noinline]] void throw_failed(const Transport& transport, CommResult error,
                                                         const ControlPlane& control, Comm comm, const Op& op) {
  if (error == CommResult::invalid_argument) {  // a dead handle: somebody here gave up on it
    const ErrorKind kind = control.revoked(op.epoch) ? ErrorKind::revoked : ErrorKind::mismatch;
    throw SeamError(kind, op, "the communicator was aborted, or poisoned by an invalid argument");
  }
  throw SeamError(error_kind(error), op,
                  fmt::format("the transport reports {}{}", name(error), who_is_missing(transport, comm)));
}

[[noreturn, gnu::cold, gnu::noinline]] void throw_revoked(const Transport& transport, Comm comm, const Op& op) {
  throw SeamError(ErrorKind::revoked, op,
                  "another rank failed and revoked the epoch" + who_is_missing(transport, comm));
}

[[noreturn, gnu::cold, gnu::noinline]] void throw_timeout(const Transport& transport, TimeNs timeout, Comm comm,
                                                          const Op& op) {
  throw SeamError(
      ErrorKind::timeout, op,
      fmt::format("not complete after {:.6g} s{}", double(timeout) / double(kSecond), who_is_missing(transport, comm)));
}

}  // namespace

void Rank::wait(const Event& event, const Op& op, TimeNs timeout_ns, Comm comm) {
  const TimeNs deadline = later(clock.now(), timeout_ns);
  for (;;) {
    const WaitResult result = device.wait(event, deadline, op.epoch);
    if (comm) {
      const CommResult error = transport.async_error(comm);
      if (error != CommResult::success && error != CommResult::in_progress)
        throw_failed(transport, error, control, comm, op);
    }
    if (control.revoked(op.epoch)) throw_revoked(transport, comm, op);
    if (result == WaitResult::done) return;
    if (result == WaitResult::timed_out) throw_timeout(transport, timeout_ns, comm, op);
    // Woken because another communicator of this rank failed: that is for whoever waits on it.
  }
}

}  // namespace seeksim::runtime
