// Sums of NCCL's own, for `fast` arithmetic: gradients are added up by its all-reduce, and where they are sharded by
// its reduce-scatter, or by a group of reduces where shards are not all alike. The order of additions is whatever NCCL
// chooses for the machine, the number of ranks and the size; the audit says how far it is from the contract's.
#include "runtime/backend/gpu/nccl_transport.h"

#ifdef SEEKSIM_NCCL

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

bool on_device(const Buffer* buffer) { return buffer != nullptr && buffer->space == Space::device; }

// One share a member, in order, side by side and of one size: what ncclReduceScatter takes.
bool is_even(std::span<const SumShare> shares, std::size_t members) {
  if (shares.size() != members) return false;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const SumShare& share = shares[i];
    if (share.member != int(i) || share.n != shares[0].n || share.first != shares[0].first + Index(i) * share.n)
      return false;
  }
  return true;
}

}  // namespace

// As a ring sends it: each rank passes on all but its own part, once to add up and once to tell.
CommResult NcclTransport::library_all_reduce(Queue& queue, Comm comm, const Op& op, VecView<const float> values,
                                             VecView<float> out) {
  CommResult why = CommResult::success;
  Exchange* const made = begin(queue, comm, op, why);
  if (made == nullptr) return why;
  SEEKSIM_CHECK_EQ(values.n, out.n);
  SEEKSIM_CHECK(values.n > 0 && on_device(values.buffer) && on_device(out.buffer), "%s sums what is not on the device",
                describe(op).c_str());
  made->addend = values;
  made->sum = out;
  const std::size_t members = comms_[made->comm].members.size();
  return enqueue(*made, ElementType::f32, 2 * std::uint64_t(values.n) * sizeof(float) * (members - 1) / members);
}

CommResult NcclTransport::library_reduce(Queue& queue, Comm comm, const Op& op, VecView<const float> values,
                                         std::span<const SumShare> shares) {
  CommResult why = CommResult::success;
  Exchange* const made = begin(queue, comm, op, why);
  if (made == nullptr) return why;
  SEEKSIM_CHECK(values.n > 0 && on_device(values.buffer) && !shares.empty(), "%s sums what is not on the device",
                describe(op).c_str());
  made->addend = values;
  made->shares.assign(shares.begin(), shares.end());
  std::uint64_t sent = 0;
  for (const SumShare& share : shares) {
    const bool mine = comms_[made->comm].members[std::size_t(share.member)] == rank_;
    SEEKSIM_CHECK(!mine || (on_device(share.out.buffer) && share.out.n == share.n), "%s: a share has no place",
                  describe(op).c_str());
    if (!mine) sent += std::uint64_t(share.n) * sizeof(float);
  }
  return enqueue(*made, ElementType::f32, sent);
}

// Called inside a group.
ncclResult_t NcclTransport::add_up(const Exchange& exchange, const Held& held) const {
  const cudaStream_t stream = exchange.queue->stream();
  const float* const from = exchange.addend.get().data;
  if (exchange.sum.n > 0) {
    return nccl_.all_reduce(from, exchange.sum.get().data, std::size_t(exchange.sum.n), ncclFloat32, ncclSum, held.comm,
                            stream);
  }
  if (is_even(exchange.shares, held.members.size())) {
    float* mine = nullptr;
    for (const SumShare& share : exchange.shares)
      if (share.out.n > 0) mine = share.out.get().data;
    return nccl_.reduce_scatter(from + exchange.shares[0].first, mine, std::size_t(exchange.shares[0].n), ncclFloat32,
                                ncclSum, held.comm, stream);
  }
  ncclResult_t worst = ncclSuccess;
  for (const SumShare& share : exchange.shares) {
    float* const to = share.out.n > 0 ? share.out.get().data : nullptr;  // NCCL reads it on the root only
    const ncclResult_t result = nccl_.reduce(from + share.first, to, std::size_t(share.n), ncclFloat32, ncclSum,
                                             share.member, held.comm, stream);
    if (worst == ncclSuccess) worst = result;
  }
  return worst;
}

}  // namespace seeksim::runtime

#endif
