// A Transport with faults: delays or kills the host before it joins, and attaches fates to the pieces that this rank
// sends. Wraps any transport; the wrapped transport carries out the fate of a message.
#pragma once

#include <map>
#include <vector>

#include "faults/fates.h"
#include "faults/faulty_clock.h"
#include "faults/host_faults.h"
#include "faults/memory_fault.h"

namespace seeksim::faults {

// The rules that can concern one rank, picked once, so that an operation without a rule costs next to nothing.
struct TransportRules {
  std::vector<MessageFault*> messages;        // this rank may be the sender
  std::vector<LinkFault*> links;              // this rank is at the sending end
  std::vector<RuleState*> mismatches;         // this rank brings something else
  std::vector<RuleState*> inits;              // this rank builds communicators of the wrong ranks
  std::vector<const RuleState*> per_message;  // of the WHOLE plan: rules that need collectives as single messages
};

class FaultyTransport final : public runtime::Transport {
 public:
  FaultyTransport(int rank, runtime::Transport& inner, runtime::Clock& clock, FaultyClock& shown, HostFaults& host,
                  MemoryFaults& memory, TransportRules rules, CombinedFates& combined)
      : rank_(rank),
        inner_(inner),
        clock_(clock),
        shown_(shown),
        host_(host),
        memory_(memory),
        rules_(std::move(rules)),
        combined_(combined) {}

  runtime::Comm create(const runtime::Op& op, const runtime::CommSpec& spec, TimeNs deadline) override;
  runtime::CommResult exchange(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                               std::span<const runtime::Piece> pieces, runtime::DiesAt dies) override;
  // The same on all ranks: depends on the rules and on what the Op says on all ranks, never on counts or time.
  bool has_native(runtime::Comm comm, const runtime::Op& op) const override;
  runtime::CommResult tree_all_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                      const runtime::TreeReduce& reduce) override;
  runtime::CommResult tree_reduce_scatter(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                          const runtime::TreeScatter& scatter) override;
  runtime::LibrarySums library_sums() const override { return inner_.library_sums(); }
  runtime::CommResult library_all_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                         runtime::VecView<const float> values, runtime::VecView<float> out) override;
  runtime::CommResult library_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                     runtime::VecView<const float> values,
                                     std::span<const runtime::SumShare> shares) override;
  runtime::CommResult async_error(runtime::Comm comm) override;
  runtime::CommResult revoke(runtime::Comm comm) override;
  runtime::CommResult abort(std::span<const runtime::Comm> comms) override;
  runtime::CommResult finalize(runtime::Comm comm) override;
  runtime::CommResult destroy(runtime::Comm comm) override;
  runtime::Comm split(const runtime::Op& op, runtime::Comm parent, int color, int key, TimeNs deadline) override;
  runtime::Comm shrink(const runtime::Op& op, runtime::Comm parent, std::span<const int> exclude,
                       TimeNs deadline) override;
  Unmatched unmatched(runtime::Comm comm) const override;

 private:
  std::span<const runtime::Piece> with_fates(const runtime::Op& op, std::span<const runtime::Piece> pieces);
  const runtime::PieceFate* fate_of(const runtime::Op& piece, TimeNs now);
  // The operation that this rank posts instead. Sequences of a communicator are shifted after an operation was left out
  // or swapped.
  runtime::Op moved(runtime::Comm comm, runtime::Op op);
  const Rule* mismatched(const runtime::Op& op);
  bool change(const Rule& rule, runtime::Comm comm, runtime::Op& op);
  runtime::CommSpec misbuilt(const runtime::Op& op, runtime::CommSpec spec);
  template <class Sum>
  runtime::CommResult as_one(runtime::Comm comm, const runtime::Op& op, bool takes_part, Sum&& sum);
  template <class Build>
  runtime::Comm build(const runtime::Op& op, Build&& build);

  int rank_;
  runtime::Transport& inner_;
  runtime::Clock& clock_;
  FaultyClock& shown_;
  HostFaults& host_;
  MemoryFaults& memory_;
  TransportRules rules_;
  CombinedFates& combined_;
  std::map<std::uint32_t, std::int64_t> shift_;     // by handle: operations left out so far
  std::map<std::uint32_t, std::uint64_t> swapped_;  // by handle: the sequence left for the next operation
  std::vector<runtime::Piece> pieces_;              // reused from call to call
  std::vector<const runtime::PieceFate*> fates_;
};

}  // namespace seeksim::faults
