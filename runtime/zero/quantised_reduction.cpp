// Everything is on the communication queue, in this order: quantise, exchange, add up, quantise, exchange, fold.
// Members list what they send and receive in the order of groups, then of owners, so that lists meet.
#include "runtime/zero/quantised_reduction.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/host_access.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/launch/library_sum.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::CodePart;
using kernels::CodeWires;
using kernels::Lane;
using kernels::TreeNode;
using kernels::Vec;
using kernels::WireRun;

// ---- a world -------------------------------------------------------------------------------------------------------

void QuantisedReduction::connect(Communicator& comm, const Partition& partition, const StepCut& cut,
                                 std::span<const Bucket> buckets) {
  comm_ = &comm;
  partition_ = &partition;
  cut_ = cut;
  // Where a reduction has whole sums, they are made on the way. Else an owner is sent groups, and rounds what is
  // complete after a later one.
  const bool whole = cut.count() == 1 || cut.window(0).size() % codes_.groups.together == 0;
  two_ways_ = codes_.groups.sums() && whole;
  own_runs_.clear();
  for (const OwnedRange& range : partition.owned(comm.position(), 0, parameters_.loss_offset())) {
    for (const WireRun& run : codes_.of_sum.runs()) {
      const ShardInfo here = common({run.offset, run.n}, {range.offset, range.size});
      if (here.size > 0) own_runs_.push_back({range.own + here.offset - range.offset, here.size, 0});
    }
  }
  allocate(buckets);
}

// A reduction in the middle of a step is like the first.
void QuantisedReduction::allocate(std::span<const Bucket> buckets) {
  Index own = 0, groups = 0, values = 0, sums = 0, arrivals = 0, losses = 0;
  for (const int k : {0, cut_.count() - 1}) {
    const Numbers here = groups_of(k, comm_->position());
    for (const Bucket& bucket : buckets) {
      begin(k, bucket);
      const Index arriving = now_.groups.size() / (two_ways_ ? codes_.groups.inner() : 1);
      own = std::max(own, here.size() * now_.bytes);
      arrivals = std::max(arrivals, arriving * now_.stride);
      losses = std::max(losses, now_.groups.size());
      for (const Sum& sum : now_.sums) {
        Index elements = 0;
        for (const OwnedRange& range : coded(sum.owner, bucket)) elements += range.size;
        values = std::max(values, elements);
        groups = std::max(groups, sum.at + sum.stride * codes_.groups.inner());
        sums = std::max(sums, sum.sent_at + bytes(codes_.of_sum, coded(sum.owner, bucket)));
      }
      if (bug_.is(Bug::qgz_group_of_rank)) values = std::max(values, now_.size);
    }
  }
  const auto make = [&](Index size, const char* name) {
    return rank_.device.allocate(std::size_t(std::max<Index>(size, 8)), MemoryTag::communication, name);
  };
  memory_ = {};
  memory_.own = make(own, "quantised gradients");
  memory_.groups = make(groups, "quantised gradients of neighbours");
  memory_.values = make(values * Index(sizeof(float)), "sums of groups");
  memory_.sums = make(sums, "quantised sums");
  memory_.arrivals = make(arrivals, "quantised shards");
  memory_.losses = make(losses * Index(sizeof(float)), "losses of groups");
}

std::vector<TreeNode> QuantisedReduction::roots(int k) const {
  const bool later = codes_.groups.sums() && !two_ways_;
  return nodes_of(cut_.window(k), cut_.leaves, later ? codes_.groups.sum_level() : CompressionPlan::kNoLevel);
}

std::vector<NodeRounding> QuantisedReduction::rounding_between(Index begin) const {
  if (!codes_.groups.sums() || two_ways_ || bug_.is(Bug::qgz_sums_not_rounded, rank_.id)) return {};
  return {{codes_.groups.sum_level(), codes_.of_sum.form(), own_runs_, begin}};
}

// ---- who does what -------------------------------------------------------------------------------------------------

QuantisedReduction::Numbers QuantisedReduction::groups_of(int k, int member) const {
  const SampleRange samples = cut_.samples(k, member);
  return {samples.begin / codes_.groups.samples, samples.end / codes_.groups.samples};
}

QuantisedReduction::Numbers QuantisedReduction::window(int k) const {
  const SampleRange samples = cut_.window(k);
  return {samples.begin / codes_.groups.samples, samples.end / codes_.groups.samples};
}

int QuantisedReduction::holder(int k, Index group) const {
  int first = 0, end = comm_->size();  // of those that it may be
  while (end - first > 1) {
    const int middle = (first + end) / 2;
    (groups_of(k, middle).begin <= group ? first : end) = middle;
  }
  return first;
}

// Those that have groups of a sum.
std::vector<int> QuantisedReduction::makers(int k, Index sum) const {
  std::vector<int> all;
  const Index inner = codes_.groups.inner();
  for (Index group = sum * inner; group < (sum + 1) * inner; ++group) {
    const int member = holder(k, group);
    if (all.empty() || all.back() != member) all.push_back(member);
  }
  return all;
}

// The owners whose elements of a sum are added up here: its makers do it for themselves, and for the others in turn.
std::vector<int> QuantisedReduction::owners_here(const std::vector<int>& makers) const {
  std::vector<int> owners;
  const int me = comm_->position();
  const auto place = std::find(makers.begin(), makers.end(), me);
  if (place == makers.end()) return owners;
  const int turn = int(place - makers.begin()), count = int(makers.size());
  for (int owner = 0; owner < comm_->size(); ++owner) {
    const bool makes = std::binary_search(makers.begin(), makers.end(), owner);
    if (makes ? owner == me : owner % count == turn) owners.push_back(owner);
  }
  return owners;
}

// A member's ranges of a bucket, without the loss.
std::vector<OwnedRange> QuantisedReduction::coded(int member, const Bucket& bucket) const {
  return partition_->owned(member, bucket.lo, std::min(bucket.hi, parameters_.loss_offset()));
}

Index QuantisedReduction::bytes(const CodeWire& wire, const std::vector<OwnedRange>& ranges) {
  Index all = 0;
  for (const OwnedRange& range : ranges) all += wire.bytes_of(range.offset, range.size);
  return all;
}

void QuantisedReduction::begin(int k, const Bucket& bucket) {
  const int me = comm_->position();
  now_ = {};
  now_.k = k;
  now_.bucket = bucket;
  now_.lo = bucket.lo;
  now_.size = std::min(bucket.hi, parameters_.loss_offset()) - bucket.lo;
  now_.byte = now_.size > 0 ? codes_.of_group.at(now_.lo) : 0;
  now_.bytes = codes_.of_group.bytes_of(now_.lo, now_.size);
  now_.owned = partition_->owned(me, bucket.lo, bucket.hi);
  now_.mine = coded(me, bucket);
  now_.stride = bytes(two_ways_ ? codes_.of_sum : codes_.of_group, now_.mine);
  now_.groups = window(k);
  if (!two_ways_) return;
  Index at = 0, sent_at = 0;
  const Index inner = codes_.groups.inner();
  for (Index sum = now_.groups.begin / inner; sum < now_.groups.end / inner; ++sum) {
    for (const int owner : owners_here(makers(k, sum))) {
      const std::vector<OwnedRange> theirs = coded(owner, bucket);
      const Index stride = bytes(codes_.of_group, theirs);
      now_.sums.push_back({sum, owner, at, stride, sent_at});
      at += stride * inner;
      if (owner != me) sent_at += bytes(codes_.of_sum, theirs);
    }
  }
}

// ---- a bucket ------------------------------------------------------------------------------------------------------

Op QuantisedReduction::reduce(int k, Op op, const Bucket& bucket, std::span<const VecView<const float>> parts,
                              float factor, const Out& out) {
  begin(k, bucket);
  SEEKSIM_CHECK_EQ(Index(parts.size()), groups_of(k, comm_->position()).size());
  quantise(parts);
  pieces_.clear();
  list_first_way(parts);
  Queue& queue = launch_.queue();
  Op last = comm_->exchange(queue, op, pieces_);
  if (bug_.is(Bug::qgz_last_scale_lost, rank_.id)) lose_last_scale();
  if (two_ways_) {
    add_up_groups();
    pieces_.clear();
    list_second_way();
    last = comm_->exchange(queue, op, pieces_);
  }
  fold(factor, out);
  return last;
}

void QuantisedReduction::quantise(std::span<const VecView<const float>> parts) {
  if (now_.size == 0) return;
  const CodePart part{codes_.of_group.runs(), now_.lo, now_.byte};
  const bool together = bug_.is(Bug::qgz_group_of_rank) && parts.size() > 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    VecView<const float> values = parts[i].part(0, now_.size);
    if (together) {  // all that this rank has, and zeros in place of its further groups
      const VecView<float> sum = vec<float>(*memory_.values, 0, now_.size);
      std::vector<VecView<const float>> all;
      for (const VecView<const float>& one : parts) all.push_back(one.part(0, now_.size));
      add_up(launch_, now_.bucket.name, i == 0 ? all : std::vector<VecView<const float>>{}, sum);
      values = reads(sum);
    }
    launch_(
        now_.bucket.name, SEEKSIM_SITE, memory_cost(now_.size, 3),
        [form = codes_.of_group.form(), part](Lane lane, Vec<const float> x, Vec<std::byte> wire) {
          kernels::quantise(lane, form, part, x, wire);
        },
        values, vec<std::byte>(*memory_.own, Index(i) * now_.bytes, now_.bytes));
  }
}

void QuantisedReduction::add_piece(int member, bool send, const Range& r) {
  if (r.lo < r.hi)
    pieces_.push_back({comm_->members()[std::size_t(member)], send, r.buffer, r.lo, r.hi, nullptr, r.type});
}

// Where an owner's elements of a group lie on the rank that they are sent to.
VecView<std::byte> QuantisedReduction::arrival(Index group, int owner) const {
  if (!two_ways_) return vec<std::byte>(*memory_.arrivals, (group - now_.groups.begin) * now_.stride, now_.stride);
  const Index inner = codes_.groups.inner();
  const auto sum = std::find_if(now_.sums.begin(), now_.sums.end(),
                                [&](const Sum& s) { return s.number == group / inner && s.owner == owner; });
  SEEKSIM_CHECK(sum != now_.sums.end(), "the sum %lld of member %d is made elsewhere",
                static_cast<long long>(group / inner), owner);
  return vec<std::byte>(*memory_.groups, sum->at + group % inner * sum->stride, sum->stride);
}

// An owner's elements of a group: from the rank that has it to the one that adds it up.
void QuantisedReduction::bring(Index group, int holder, int owner, int to) {
  const bool here = holder == comm_->position();
  const Index at = here ? (group - groups_of(now_.k, holder).begin) * now_.bytes - now_.byte : 0;
  Index there = 0;
  for (const OwnedRange& range : coded(owner, now_.bucket)) {
    const Index n = codes_.of_group.bytes_of(range.offset, range.size);
    const auto own = [&] { return vec<const std::byte>(*memory_.own, at + codes_.of_group.at(range.offset), n); };
    if (!here)
      add_piece(holder, false, arrival(group, owner).part(there, n).range());
    else if (to != holder)
      add_piece(to, true, own().range());
    else
      CodeWay::copy(launch_, now_.bucket.name, own(), arrival(group, owner).part(there, n));
    there += n;
  }
}

void QuantisedReduction::list_first_way(std::span<const VecView<const float>> parts) {
  const int me = comm_->position(), last = comm_->size() - 1;
  const bool has_loss = now_.bucket.hi > parameters_.loss_offset();
  const Numbers here = groups_of(now_.k, me);
  std::vector<int> makers_of_sum, owners = {me};
  for (Index group = now_.groups.begin; group < now_.groups.end; ++group) {
    const int by = holder(now_.k, group);
    if (two_ways_ && group % codes_.groups.inner() == 0) {
      makers_of_sum = makers(now_.k, group / codes_.groups.inner());
      owners = owners_here(makers_of_sum);
    }
    if (by == me) {
      for (int owner = 0; owner <= last; ++owner) {
        const bool makes = std::binary_search(makers_of_sum.begin(), makers_of_sum.end(), owner);
        const int to = !two_ways_ || makes ? owner : makers_of_sum[std::size_t(owner) % makers_of_sum.size()];
        bring(group, by, owner, to);
      }
    } else {
      for (const int owner : owners) bring(group, by, owner, me);
    }
    if (!has_loss) continue;
    const VecView<float> slot = vec<float>(*memory_.losses, group - now_.groups.begin, 1);
    if (by != me && me == last) add_piece(by, false, slot.range());
    if (by != me) continue;
    const VecView<const float> own = parts[std::size_t(group - here.begin)].part(now_.size, 1);
    if (me != last)
      add_piece(last, true, own.range());
    else
      launch_(
          "loss", SEEKSIM_SITE, memory_cost(2, 0),
          [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy(lane, x, y); }, own, slot);
  }
}

// Of the last group that this member is sent of its own elements.
void QuantisedReduction::lose_last_scale() {
  if (now_.mine.empty()) return;
  const bool here = !two_ways_ || std::any_of(now_.sums.begin(), now_.sums.end(), [&](const Sum& sum) {
    return sum.owner == comm_->position() && sum.number == (now_.groups.end - 1) / codes_.groups.inner();
  });
  if (!here) return;
  const OwnedRange& range = now_.mine.back();
  const auto run = std::find_if(codes_.of_group.runs().rbegin(), codes_.of_group.runs().rend(),
                                [&](const WireRun& r) { return r.offset < range.offset + range.size; });
  const Index end = range.offset + range.size - run->offset, block = codes_.of_group.form().block;
  const Index in_last = end - (end - 1) / block * block;
  const VecView<std::byte> wire = arrival(now_.groups.end - 1, comm_->position());
  const Index bytes = kernels::code_bytes(in_last, block, codes_.of_group.form().bits);
  launch_(
      now_.bucket.name, SEEKSIM_SITE, memory_cost(1),
      [](Lane lane, Vec<std::byte> scale) { kernels::clear(lane, scale); },
      wire.part(wire.n - bytes, Index(sizeof(float))));
}

// ---- sums ----------------------------------------------------------------------------------------------------------

namespace {

// Planted mistakes of those who add up groups.
kernels::CodeForm summing_form(kernels::CodeForm form, const PlantedBug& bug, int rank) {
  using kernels::CodeSlip;
  form.slip = bug.is(Bug::qgz_neighbours_scale)       ? CodeSlip::neighbours_scale
              : bug.is(Bug::qgz_codes_summed)         ? CodeSlip::codes_summed
              : bug.is(Bug::qgz_halves_swapped, rank) ? CodeSlip::halves_swapped
                                                      : CodeSlip::none;
  return form;
}

// sum = what `count` wires are worth together, of a range of the gradient space that lies `at` bytes behind each one's
// beginning.
struct Wires {
  Buffer* buffer = nullptr;
  Index first = 0;  // byte of the first one
  CodeWires wires;
};
void add_up_codes(Launcher& launch, const char* tensor, const CodeWire& wire, kernels::CodeForm form, const Wires& from,
                  const OwnedRange& range, Index at, VecView<float> sum, float factor) {
  const Index n = wire.bytes_of(range.offset, range.size);
  const CodePart part{wire.runs(), range.offset, wire.at(range.offset)};
  launch(
      tensor, SEEKSIM_SITE, memory_cost((from.wires.count / 4 + 1) * range.size),
      [form, part, wires = from.wires, factor](Lane lane, Vec<const std::byte> bytes, Vec<float> out) {
        kernels::sum_codes(lane, form, part, wires, bytes, out, factor);
      },
      vec<const std::byte>(*from.buffer, from.first + at, (from.wires.count - 1) * from.wires.stride + n), sum);
}

}  // namespace

void QuantisedReduction::add_up_groups() {
  const int me = comm_->position();
  const Index inner = codes_.groups.inner();
  for (const Sum& sum : now_.sums) {
    Index at = 0, to = 0;
    for (const OwnedRange& range : coded(sum.owner, now_.bucket)) {
      const VecView<float> values = vec<float>(*memory_.values, 0, range.size);
      add_up_codes(launch_, now_.bucket.name, codes_.of_group, summing_form(codes_.of_group.form(), bug_, rank_.id),
                   {memory_.groups.get(), sum.at, {inner, sum.stride}}, range, at, values, 1.0F);
      const Index n = codes_.of_sum.bytes_of(range.offset, range.size);
      const VecView<std::byte> wire =
          sum.owner == me
              ? vec<std::byte>(*memory_.arrivals, (sum.number - now_.groups.begin / inner) * now_.stride + to, n)
              : vec<std::byte>(*memory_.sums, sum.sent_at + to, n);
      const CodePart part{codes_.of_sum.runs(), range.offset, codes_.of_sum.at(range.offset)};
      launch_(
          now_.bucket.name, SEEKSIM_SITE, memory_cost(range.size, 3),
          [form = codes_.of_sum.form(), part](Lane lane, Vec<const float> x, Vec<std::byte> out) {
            kernels::quantise(lane, form, part, x, out);
          },
          reads(values), wire);
      at += codes_.of_group.bytes_of(range.offset, range.size);
      to += n;
    }
  }
}

void QuantisedReduction::list_second_way() {
  const int me = comm_->position();
  const Index inner = codes_.groups.inner(), first = now_.groups.begin / inner;
  auto own = now_.sums.begin();
  for (Index number = first; number < now_.groups.end / inner; ++number) {
    bool here = false;
    for (; own != now_.sums.end() && own->number == number; ++own) {
      here = here || own->owner == me;
      if (own->owner == me) continue;
      const Index n = bytes(codes_.of_sum, coded(own->owner, now_.bucket));
      add_piece(own->owner, true, vec<const std::byte>(*memory_.sums, own->sent_at, n).range());
    }
    if (here) continue;
    const std::vector<int> all = makers(now_.k, number);
    add_piece(all[std::size_t(me) % all.size()], false,
              vec<std::byte>(*memory_.arrivals, (number - first) * now_.stride, now_.stride).range());
  }
}

void QuantisedReduction::fold(float factor, const Out& out) {
  const std::vector<TreeNode> all = roots(now_.k);
  const CodeWire& wire = two_ways_ ? codes_.of_sum : codes_.of_group;
  const kernels::CodeForm form = two_ways_ ? wire.form() : summing_form(wire.form(), bug_, rank_.id);
  const Index samples = two_ways_ ? codes_.groups.together : codes_.groups.samples;
  const Index first = cut_.window(now_.k).begin / samples;
  for (std::size_t root = 0; root < all.size(); ++root) {
    const Index begin = kernels::first_leaf(all[root]);
    const Index end = std::min(begin + (Index(1) << all[root].level), cut_.leaves);
    const Index count = (end - begin) / samples;
    Index at = 0, element = 0;
    for (const OwnedRange& range : now_.owned) {
      const VecView<float> sum = out(root, range, element);
      element += range.size;
      if (range.offset == parameters_.loss_offset()) {
        fold_loss({begin / codes_.groups.samples, end / codes_.groups.samples}, factor, sum);
        continue;
      }
      const Wires from{memory_.arrivals.get(), (begin / samples - first) * now_.stride, {count, now_.stride}};
      add_up_codes(launch_, now_.bucket.name, wire, form, from, range, at, sum, factor);
      if (bug_.is(Bug::qgz_averaged_over_nodes_only)) average_over_nodes_only(range, sum);
      at += wire.bytes_of(range.offset, range.size);
    }
  }
}

void QuantisedReduction::fold_loss(Numbers groups, float factor, VecView<float> sum) {
  launch_(
      "loss", SEEKSIM_SITE, memory_cost(groups.size() + 1),
      [factor](Lane lane, Vec<const float> losses, Vec<float> loss) {
        std::vector<kernels::TreePart> leaves;
        for (Index i = 0; i < losses.n; ++i) leaves.push_back({{0, i}, losses.data + i});
        kernels::tree_sum(lane, leaves.data(), losses.n, losses.n, loss, factor);
      },
      vec<const float>(*memory_.losses, groups.begin - now_.groups.begin, groups.size()), sum);
}

// A planted bug: matrices are divided by the sums of groups that there are, vectors by the groups.
void QuantisedReduction::average_over_nodes_only(const OwnedRange& range, VecView<float> sum) {
  if (range.offset >= parameters_.trainable_size()) return;
  for (const ParameterPiece& piece : partition_->pieces({range.offset, range.size}))
    if (piece.parameter->shape.size() > 1)
      scale_sum(launch_, piece.parameter->name, float(codes_.groups.inner()),
                sum.part(piece.offset() - range.offset, piece.size));
}

}  // namespace seeksim::runtime
