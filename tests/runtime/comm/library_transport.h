// A transport whose "library" adds up gradients in an order of its own, over any other transport: the owner of a share
// receives all members' values of it, and adds them up from the highest member to the lowest.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "faults/forwarding.h"

namespace seeksim::test {

using namespace runtime;

class LibraryTransport final : public faults::ForwardingTransport {
 public:
  // forgets: one addend of each sum.
  LibraryTransport(Seams inner, int rank, LibrarySums sums, bool forgets)
      : ForwardingTransport(inner.transport), device_(inner.device), rank_(rank), sums_(sums), forgets_(forgets) {}

  LibrarySums library_sums() const override { return sums_; }

  Comm create(const Op& op, const CommSpec& spec, TimeNs deadline) override {
    const Comm comm = inner_.create(op, spec, deadline);
    members_[comm.handle] = spec.members;
    return comm;
  }

  CommResult library_all_reduce(Queue& queue, Comm comm, const Op& op, VecView<const float> values,
                                VecView<float> out) override {
    std::vector<SumShare> shares;
    const std::vector<int>& members = members_.at(comm.handle);
    for (std::size_t i = 0; i < members.size(); ++i)
      shares.push_back({int(i), 0, values.n, members[i] == rank_ ? out : VecView<float>{}});
    return library_reduce(queue, comm, op, values, shares);
  }

  CommResult library_reduce(Queue& queue, Comm comm, const Op& op, VecView<const float> values,
                            std::span<const SumShare> shares) override {
    const std::vector<int>& members = members_.at(comm.handle);
    const Index others = Index(members.size()) - 1;
    std::vector<Piece> pieces;
    std::vector<std::pair<SumShare, Buffer*>> mine;
    for (const SumShare& share : shares) {
      const int owner = members[std::size_t(share.member)];
      if (owner != rank_) {
        const Range range = values.part(share.first, share.n).range();
        pieces.push_back({owner, true, range.buffer, range.lo, range.hi, nullptr, range.type});
        continue;
      }
      kept_.push_back(
          device_.allocate(std::size_t(others * share.n) * sizeof(float), MemoryTag::communication, "sent"));
      mine.emplace_back(share, kept_.back().get());
      Index at = 0;
      for (auto member = members.rbegin(); member != members.rend(); ++member) {
        if (*member == rank_) continue;
        const Range range = vec<float>(*kept_.back(), at, share.n).range();
        pieces.push_back({*member, false, range.buffer, range.lo, range.hi, nullptr, range.type});
        at += share.n;
      }
    }
    const Index above = std::count_if(members.begin(), members.end(), [this](int member) { return member > rank_; });
    const CommResult result = inner_.exchange(queue, comm, op, pieces, DiesAt::never);
    for (const auto& [share, arrived] : mine) {
      queue.launch(
          op, {},
          [above, count = forgets_ ? others : others + 1](kernels::Lane, kernels::Vec<const float> own,
                                                          kernels::Vec<const float> sent, kernels::Vec<float> sum) {
            for (Index i = 0; i < sum.n; ++i) {
              float x = 0;
              for (Index k = 0; k < count; ++k) x += k == above ? own[i] : sent[(k < above ? k : k - 1) * sum.n + i];
              sum[i] = x;
            }
          },
          values.part(share.first, share.n), vec<const float>(*arrived, 0, others * share.n), share.out);
    }
    return result;
  }

 private:
  Device& device_;
  int rank_;
  LibrarySums sums_;
  bool forgets_;
  std::map<std::uint32_t, std::vector<int>> members_;  // by handle
  std::vector<BufferPtr> kept_;                        // until the world ends: launches refer to them
};

}  // namespace seeksim::test
