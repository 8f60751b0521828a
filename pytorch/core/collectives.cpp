#include "pytorch/core/collectives.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace seeksim::pytorch {
namespace {

constexpr std::size_t kWide = 64;          // bytes: shares of a slot begin at multiples of it
constexpr std::size_t kCached = 16384;     // bytes that stay in the first cache
constexpr std::size_t kShareFrom = 32768;  // bytes of a round, from which on the ranks share the work of a reduction

// Copies, and digests what it has copied.
void copy(std::byte* to, const std::byte* from, std::size_t n, Digester* digester) {
  for (std::size_t at = 0; at < n; at += kCached) {
    const std::size_t some = std::min(kCached, n - at);
    std::memcpy(to + at, from + at, some);
    if (digester != nullptr) digester->add({from + at, some});
  }
}

// Where a rank's contribution goes into its slot: faults of messages strike here.
class Contribution {
 public:
  // how: what is done with all contributions, where they are reduced.
  Contribution(Group& group, const Call& call, const Reduction* how = nullptr)
      : group_(group), call_(call), how_(how) {}
  // n bytes of the tensor, which is `base` bytes after the beginning of all that this rank gives. to: the place that
  // reads them; -1: all do.
  void put(const std::byte* from, std::size_t n, std::size_t offset_in_slot, std::size_t base,
           Digester* digester = nullptr, int to = -1) const {
    SEEKSIM_CHECK(offset_in_slot + n <= kSlotBytes, "%zu bytes at %zu", n, offset_in_slot);
    char* slot = group_.slot(group_.place()) + offset_in_slot;
    copy(reinterpret_cast<std::byte*>(slot), from, n, digester);
    group_.filled(offset_in_slot, n, to);
    for (const Strike& strike : call_.strikes) {
      if (strike.byte >= base && strike.byte < base + n)
        slot[strike.byte - base] = char(slot[strike.byte - base] ^ strike.flip);
    }
    if (call_.doubled && how_ != nullptr && n > 0) {
      auto* numbers = reinterpret_cast<std::byte*>(slot);
      const std::byte* const twice[] = {numbers, numbers};
      reduce(how_->dtype, ReduceName::sum, twice, numbers, n / element_bytes(how_->dtype));
    }
  }

 private:
  Group& group_;
  const Call& call_;
  const Reduction* how_;
};

std::vector<const std::byte*> all_slots(const Group& group, std::size_t offset) {
  std::vector<const std::byte*> slots;
  for (int r = 0; r < group.size(); ++r) slots.push_back(reinterpret_cast<const std::byte*>(group.slot(r)) + offset);
  return slots;
}

// Reduces part of a tensor from all slots, and digests the result.
void reduce_slots(const Group& group, const Reduction& how, std::size_t n, std::byte* out, Digester* digester) {
  const std::size_t width = element_bytes(how.dtype);
  for (std::size_t at = 0; at < n; at += kCached) {
    const std::size_t some = std::min(kCached, n - at);
    reduce(how.dtype, how.op, all_slots(group, at), out + at, some / width, how.factor, how.order);
    if (digester != nullptr) digester->add({out + at, some});
  }
}

void copy_out(Bytes to, std::size_t at, std::size_t n, const char* from) {
  if (n > 0) std::memcpy(to.data() + at, from, n);
}

// Whether the ranks share the work of a round, and meet again for its result: where it is much, or for many. Between
// hosts the way is what takes time.
bool share_work(const Group& group, std::size_t bytes) {
  return group.size() > 2 && bytes >= kShareFrom && !group.far();
}

// The reduction of one tensor, everywhere or at one place, in rounds. `base`: bytes of the tensors before it.
void reduce_tensor(Group& group, Call& call, const Reduction& how, Bytes tensor, bool wants, std::size_t base) {
  const std::size_t width = element_bytes(how.dtype);
  const Contribution mine(group, call, &how);
  std::size_t at = 0;
  do {
    const std::size_t n = std::min(kSlotBytes, tensor.size() - at);  // a whole number of elements: widths divide a slot
    mine.put(tensor.data() + at, n, 0, base + at, call.digest_in);
    group.meet(call);
    if (!share_work(group, n)) {
      if (wants) reduce_slots(group, how, n, tensor.data() + at, call.digest_out);
    } else {
      const std::size_t share = (n / std::size_t(group.size()) + kWide - 1) / kWide * kWide;
      const std::size_t from = std::min(n, share * std::size_t(group.place()));
      const std::size_t to = group.place() + 1 == group.size() ? n : std::min(n, from + share);
      auto* result = reinterpret_cast<std::byte*>(group.result());
      if (to > from)
        reduce(how.dtype, how.op, all_slots(group, from), result + from, (to - from) / width, how.factor, how.order);
      group.meet(call);
      if (wants) copy(tensor.data() + at, result, n, call.digest_out);
    }
    group.turn();
    at += n;
  } while (at < tensor.size());
}

void expect_reduction(Call& call, OpName op, const Reduction& how, int root) {
  const std::string no = refusal(how.dtype, how.op);
  if (!no.empty()) throw std::invalid_argument("seeksim: " + std::string(name(op)) + ": there is no " + no);
  call.expected.op = op;
  call.expected.reduce = how.op;
  call.expected.dtype = how.dtype;
  call.expected.root = root;
}

// The most that one rank gives another, by what all of them expect: they agree on it, so all make as many rounds.
std::size_t largest_gift(const Call& call, int n) {
  std::int64_t most = 0;
  for (const Expectation& e : call.all) most = std::max(most, *std::max_element(e.gives.begin(), e.gives.begin() + n));
  return std::size_t(most);
}

void need(bool fits, const char* op, const char* what) {
  if (!fits) throw std::invalid_argument("seeksim: " + std::string(op) + ": " + what);
}

// Where another backend carries the data the ranks only meet, and compare what they mean.
bool only_meets(Group& group, Call& call) {
  if (!call.carried_elsewhere) return false;
  group.meet(call);
  group.turn();
  return true;
}

}  // namespace

void all_reduce(Group& group, Call& call, const Reduction& how, std::span<const Bytes> tensors) {
  expect_reduction(call, OpName::all_reduce, how, -1);
  if (only_meets(group, call)) return;
  std::size_t base = 0;
  for (const Bytes tensor : tensors) {
    reduce_tensor(group, call, how, tensor, true, base);
    base += tensor.size();
  }
}

void reduce(Group& group, Call& call, const Reduction& how, std::span<const Bytes> tensors, int root) {
  expect_reduction(call, OpName::reduce, how, root);
  if (only_meets(group, call)) return;
  std::size_t base = 0;
  for (const Bytes tensor : tensors) {
    reduce_tensor(group, call, how, tensor, group.place() == root, base);
    base += tensor.size();
  }
}

void broadcast(Group& group, Call& call, std::span<const Bytes> tensors, int root) {
  call.expected.op = OpName::broadcast;
  call.expected.root = root;
  if (only_meets(group, call)) return;
  const Contribution mine(group, call);
  std::size_t base = 0;
  for (const Bytes tensor : tensors) {
    std::size_t at = 0;
    do {
      const std::size_t n = std::min(kSlotBytes, tensor.size() - at);
      if (group.place() == root) mine.put(tensor.data() + at, n, 0, base + at);
      group.meet(call);
      if (group.place() != root) copy_out(tensor, at, n, group.slot(root));
      group.turn();
      at += n;
    } while (at < tensor.size());
    base += tensor.size();
  }
}

// Everybody's bytes, to all or to one: what all_gather and gather share. out is empty where nothing is wanted.
static void collect(Group& group, Call& call, ConstBytes in, std::span<const Bytes> out) {
  if (only_meets(group, call)) return;
  const Contribution mine(group, call);
  std::size_t at = 0, most = 0;
  do {
    const std::size_t n = at < in.size() ? std::min(kSlotBytes, in.size() - at) : 0;
    mine.put(in.data() + (n > 0 ? at : 0), n, 0, at);
    group.meet(call);
    if (at == 0) most = largest_gift(call, group.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
      if (at < out[r].size()) copy_out(out[r], at, std::min(kSlotBytes, out[r].size() - at), group.slot(int(r)));
    }
    group.turn();
    at += kSlotBytes;
  } while (at < most);
}

void all_gather(Group& group, Call& call, ConstBytes in, std::span<const Bytes> out) {
  need(out.size() == std::size_t(group.size()), "all_gather", "not one output for each rank");
  need(out[std::size_t(group.place())].size() == in.size(), "all_gather",
       "this rank's output is not as large as its input");
  call.expected.op = OpName::all_gather;
  for (std::size_t r = 0; r < out.size(); ++r) {
    call.expected.gives[r] = std::int64_t(in.size());
    call.expected.takes[r] = std::int64_t(out[r].size());
  }
  collect(group, call, in, out);
}

void gather(Group& group, Call& call, ConstBytes in, std::span<const Bytes> out, int root) {
  need(out.size() == (group.place() == root ? std::size_t(group.size()) : 0), "gather", "not one output for each rank");
  call.expected.op = OpName::gather;
  call.expected.root = root;
  call.expected.gives[std::size_t(root)] = std::int64_t(in.size());
  for (std::size_t r = 0; r < out.size(); ++r) call.expected.takes[r] = std::int64_t(out[r].size());
  collect(group, call, in, out);
}

// Puts the next part of what this rank has for each rank into this rank's slot: `share` bytes of it, from `at` on.
static void put_shares(const Contribution& mine, std::span<const ConstBytes> in, std::size_t at, std::size_t share) {
  std::size_t base = 0;
  for (std::size_t r = 0; r < in.size(); ++r) {
    const std::size_t n = at < in[r].size() ? std::min(share, in[r].size() - at) : 0;
    if (n > 0) mine.put(in[r].data() + at, n, share * r, base + at, nullptr, int(r));
    base += in[r].size();
  }
}

// What each rank has for each, cut into shares of the giver's slot: what scatter and all_to_all have in common.
static void deal(Group& group, Call& call, std::span<const ConstBytes> in, std::span<const Bytes> out) {
  if (only_meets(group, call)) return;
  const Contribution mine(group, call);
  const std::size_t share = kSlotBytes / std::size_t(group.size()) / kWide * kWide;
  const std::size_t me = std::size_t(group.place());
  std::size_t at = 0, most = 0;
  do {
    put_shares(mine, in, at, share);
    group.meet(call);
    if (at == 0) most = largest_gift(call, group.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
      if (at < out[r].size()) {
        copy_out(out[r], at, std::min(share, out[r].size() - at), group.slot(int(r)) + share * me);
      }
    }
    group.turn();
    at += share;
  } while (at < most);
}

void scatter(Group& group, Call& call, std::span<const ConstBytes> in, Bytes out, int root) {
  need(in.size() == (group.place() == root ? std::size_t(group.size()) : 0), "scatter", "not one input for each rank");
  call.expected.op = OpName::scatter;
  call.expected.root = root;
  call.expected.takes[std::size_t(root)] = std::int64_t(out.size());
  for (std::size_t r = 0; r < in.size(); ++r) call.expected.gives[r] = std::int64_t(in[r].size());
  std::vector<Bytes> outs(std::size_t(group.size()));
  outs[std::size_t(root)] = out;
  deal(group, call, in, outs);
}

void all_to_all(Group& group, Call& call, std::span<const ConstBytes> in, std::span<const Bytes> out) {
  need(in.size() == std::size_t(group.size()) && out.size() == in.size(), "all_to_all", "not one part for each rank");
  call.expected.op = OpName::all_to_all;
  for (std::size_t r = 0; r < in.size(); ++r) {
    call.expected.gives[r] = std::int64_t(in[r].size());
    call.expected.takes[r] = std::int64_t(out[r].size());
  }
  deal(group, call, in, out);
}

void reduce_scatter(Group& group, Call& call, const Reduction& how, std::span<const ConstBytes> in, Bytes out) {
  need(in.size() == std::size_t(group.size()), "reduce_scatter", "not one input for each rank");
  expect_reduction(call, OpName::reduce_scatter, how, -1);
  const std::size_t me = std::size_t(group.place());
  for (std::size_t r = 0; r < in.size(); ++r) {
    call.expected.gives[r] = std::int64_t(in[r].size());
    call.expected.takes[r] = std::int64_t(out.size());
  }
  if (only_meets(group, call)) return;
  const Contribution mine(group, call, &how);
  const std::size_t share = kSlotBytes / std::size_t(group.size()) / kWide * kWide;
  std::size_t at = 0, most = 0;
  do {
    put_shares(mine, in, at, share);
    group.meet(call);
    if (at == 0) most = largest_gift(call, group.size());
    if (at < out.size()) {
      const auto slots = all_slots(group, share * me);
      const std::size_t n = std::min(share, out.size() - at);
      reduce(how.dtype, how.op, slots, out.data() + at, n / element_bytes(how.dtype), how.factor, how.order);
    }
    group.turn();
    at += share;
  } while (at < most);
}

void barrier(Group& group, Call& call) {
  call.expected.op = OpName::barrier;
  group.meet(call);
  group.turn();
}

}  // namespace seeksim::pytorch
