// One exchange a bucket, then one fold for each node and range; everything of a step in order on one queue, so that
// neither slots nor nodes need an event between them.
#include "runtime/zero/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/launch/library_sum.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::TreeNode;
using kernels::TreePart;
using kernels::Vec;

GradientReducer::GradientReducer(Rank& rank, const Parameters& parameters, const TrainPlan& plan)
    : rank_(rank),
      parameters_(parameters),
      bug_(plan.bug),
      home_(plan.layout.offload.optimizer.space()),
      buckets_(gradient_buckets(parameters, plan.layout.zero.reduce_bucket_elements)),
      launch_(rank.device.communication_queue(), rank.id),
      copies_(rank.device.copy_queue(), rank.id, 0, OpKind::copy),
      host_(rank.device.host_queue(), rank.id, 0, OpKind::host_compute) {
  if (plan.definition.quantised_gradients.on()) quantised_.emplace(rank, parameters, plan, launch_);
}

void GradientReducer::connect(Communicator& comm, const Partition& partition, const StepCut& cut,
                              Communicator* replicas) {
  comm_ = &comm;
  replicas_ = replicas;
  partition_ = &partition;
  cut_ = cut;
  const int me = comm.position();
  if (quantised_) quantised_->connect(comm, partition, cut, buckets_);
  add_partial_sums();
  Index elements = 0;
  for (const Bucket& bucket : buckets_) {
    Index owned = 0;
    for (const OwnedRange& range : partition.owned(me, bucket.lo, bucket.hi)) owned += range.size;
    elements = std::max(elements, owned);
  }
  std::size_t parts_max = 0, sums_max = 0;
  for (now_.k = 0; now_.k < cut_.count(); ++now_.k) {
    sums_max = std::max(sums_max, roots(now_.k).size());
    std::size_t parts = 0;
    for (int member = 0; member < comm.size() && !quantised_; ++member) parts += nodes(member).size();
    parts_max = std::max(parts_max, parts);
  }
  const std::size_t extras = std::size_t(partition.own_size(me) - partition.shard(me).size);
  memory_.extras = rank_.device.allocate_in(home_, std::max<std::size_t>(extras, 1) * sizeof(float),
                                            MemoryTag::partial_sums, "head's share and loss");
  memory_.slots.reset();
  memory_.slots = rank_.device.allocate(std::max<std::size_t>(parts_max * std::size_t(elements), 1) * sizeof(float),
                                        MemoryTag::communication, "subtree roots");
  memory_.addend.reset();
  memory_.library.reset();
  if (comm.library_sums() != LibrarySums::none) {
    Index longest = 0;
    for (const Bucket& bucket : buckets_) longest = std::max(longest, bucket.hi - bucket.lo);
    memory_.addend = rank_.device.allocate(std::size_t(longest) * sizeof(float), MemoryTag::communication, "addend");
  }
  if (comm.library_sums() == LibrarySums::beside) {
    memory_.library = rank_.device.allocate(std::max<std::size_t>(sums_max * std::size_t(elements), 1) * sizeof(float),
                                            MemoryTag::communication, "a library's sums");
  }
  landings_.clear();
  landings_.resize(!offloaded() ? 0 : buckets_.size() > 1 ? 2 : 1);
  for (Landing& landing : landings_) {
    landing.buffer = rank_.device.allocate(std::max<std::size_t>(sums_max * std::size_t(elements), 1) * sizeof(float),
                                           MemoryTag::staging, "sums of a bucket");
  }
}

std::size_t GradientReducer::first_bucket(std::size_t piece) const {
  const auto of_piece = [&](const Bucket& bucket) { return parameters_.piece_of(bucket.lo) == piece; };
  return std::size_t(std::find_if(buckets_.begin(), buckets_.end(), of_piece) - buckets_.begin());
}

// What is owned of a piece lies in a row: of a rank with several none has both uses of wte.
void GradientReducer::add_partial_sums() {
  sums_.clear();
  const Parameters& p = parameters_;
  const bool apart = cut_.interleaved && p.pieces().size() > 1;
  for (std::size_t piece = 0; piece < (apart ? p.pieces().size() : 1); ++piece) {
    const Index lo = apart ? p.gradient_begin(piece) : 0, hi = apart ? p.gradient_end(piece) : p.gradient_size();
    const std::vector<OwnedRange> owned = partition_->owned(comm_->position(), lo, hi);
    const Index begin = owned.empty() ? 0 : owned.front().own;
    const Index end = owned.empty() ? 0 : owned.back().own + owned.back().size;
    sums_.push_back({begin, end, GradientTree(rank_.device, end - begin, home_)});
    if (quantised_) sums_.back().tree.round_nodes(quantised_->rounding_between(begin));
  }
}

std::vector<TreeNode> GradientReducer::nodes(int member) const {
  const SampleRange samples = cut_.samples(now_.k, member);
  return kernels::cover(samples.begin, samples.end, cut_.leaves);
}

// What the samples of a reduction add up to.
std::vector<TreeNode> GradientReducer::roots(int k) const {
  if (quantised_) return quantised_->roots(k);
  const SampleRange window = cut_.window(k);
  return kernels::cover(window.begin, window.end, cut_.leaves);
}

void GradientReducer::begin_step(std::int64_t step, VecView<float> gradients, float factor, ElementType accumulator) {
  now_.step = step;
  now_.accumulator = accumulator;
  now_.gradients = gradients;
  now_.factor = factor;
  for (Launcher* launch : {&launch_, &copies_, &host_}) {
    launch->at(comm_->epoch(), step);
    launch->phase(Phase::grad_reduce);
  }
  for (PartialSums& sums : sums_) sums.tree.begin(cut_.leaves);
}

void GradientReducer::begin_reduction(int k, std::size_t piece) {
  now_.k = k;
  now_.piece = sums_.size() > 1 ? piece : 0;
  launch_.phase(Phase::grad_reduce, cut_.interleaved ? k : -1);
  open_ = roots(k);
  open_out_.clear();
  if (at_once()) return;
  GradientTree& tree = sums_[now_.piece].tree;
  const bool drops =
      bug_.is(Bug::offload_drops_accumulation) || (bug_.is(Bug::offload_miscounts_first_step) && now_.step == 0);
  if (drops && offloaded()) tree.scale(host_, 0.0f);
  for (const TreeNode node : open_) open_out_.push_back(tree.open(node));
  if (offloaded()) after(copies_.queue(), host_.queue().record(), Edge::node_free, bug_);
}

// Fills pieces_: what this member sends to and receives from each other one. Returns the slots of its own roots.
std::vector<VecView<float>> GradientReducer::list_pieces(const Bucket& bucket, const std::vector<OwnedRange>& owned,
                                                         Index stride, std::span<const VecView<const float>> parts) {
  const int me = comm_->position();
  pieces_.clear();
  std::vector<VecView<float>> own_slots;
  Index slot = 0;
  for (int member = 0; member < comm_->size(); ++member) {
    const std::size_t brings = nodes(member).size();
    for (std::size_t i = 0; i < brings; ++i, slot += stride) {
      if (stride == 0) continue;
      const VecView<float> arrival = vec<float>(*memory_.slots, slot, stride);
      if (member == me) own_slots.push_back(arrival);
      if (member == me) continue;
      Index at = 0;
      for (const OwnedRange& range : owned) {
        const Range r = arrival.part(at, range.size).range();
        pieces_.push_back({comm_->members()[member], false, r.buffer, r.lo, r.hi});
        at += range.size;
      }
    }
    if (member == me) continue;
    const std::vector<OwnedRange> theirs = partition_->owned(member, bucket.lo, bucket.hi);
    for (const VecView<const float>& part : parts) {
      for (const OwnedRange& range : theirs) {
        const Range r = part.part(range.offset - bucket.lo, range.size).range();
        pieces_.push_back({comm_->members()[member], true, r.buffer, r.lo, r.hi});
      }
    }
  }
  return own_slots;
}

Event GradientReducer::reduce(const Bucket& bucket, std::span<const VecView<const float>> parts) {
  const int me = comm_->position();
  const std::vector<OwnedRange> owned = partition_->owned(me, bucket.lo, bucket.hi);
  Index stride = 0;  // of slots: this member's elements of the bucket
  for (const OwnedRange& range : owned) stride += range.size;
  if (offloaded()) {
    landing_ = (landing_ + 1) % landings_.size();
    after(launch_.queue(), landings_[landing_].free, Edge::landing_free, bug_);
  }
  Op op;
  op.kind = OpKind::reduce_scatter;
  op.phase = Phase::grad_reduce;
  op.step = now_.step;
  op.micro_batch = cut_.interleaved ? now_.k : -1;
  op.tensor = bucket.name;
  op.site = SEEKSIM_SITE;
  if (quantised_) {
    const auto out = [&](std::size_t root, const OwnedRange& range, Index at) {
      return sum_of(range, root, stride, at);
    };
    last_ = quantised_->reduce(now_.k, op, bucket, parts, at_once() ? now_.factor : 1.0f, out);
    return reduced(bucket.name, owned, stride);
  }
  SEEKSIM_CHECK_EQ(parts.size(), nodes(me).size());
  const std::vector<VecView<float>> own_slots = list_pieces(bucket, owned, stride, parts);
  if (comm_->library_sums() != LibrarySums::none) reduce_by_library(bucket, op, owned, stride, parts);
  if (comm_->library_sums() == LibrarySums::instead) return reduced(bucket.name, owned, stride);
  if (comm_->scatters_natively(op)) {
    scatter(bucket, op, owned, stride, parts);
    return reduced(bucket.name, owned, stride);
  }
  last_ = comm_->exchange(launch_.queue(), op, pieces_);

  // A single root of our own is folded from where it is; several are copied to their slots.
  for (std::size_t i = 0; i < own_slots.size() && parts.size() > 1; ++i) {
    Index at = 0;
    for (const OwnedRange& range : owned) {
      launch_(
          bucket.name, SEEKSIM_SITE, memory_cost(2 * range.size, 0),
          [](Lane lane, Vec<const float> own, Vec<float> to) { kernels::copy(lane, own, to); },
          parts[i].part(range.offset - bucket.lo, range.size), own_slots[i].part(at, range.size));
      at += range.size;
    }
  }
  fold(bucket, owned, parts);
  return reduced(bucket.name, owned, stride);
}

// What was enqueued leaves the sums where they belong, or on the device, from where they go home.
Event GradientReducer::reduced(const char* tensor, const std::vector<OwnedRange>& owned, Index stride) {
  const Event done = launch_.queue().record();
  if (!offloaded() || stride == 0) return done;
  after(copies_.queue(), done, Edge::landing_filled, bug_);
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Index at = 0;
    for (const OwnedRange& range : owned) {
      copy_values(copies_, tensor, SEEKSIM_SITE, sum_of(range, i, stride, at), home_of(range, i));
      at += range.size;
    }
  }
  landings_[landing_].free = copies_.queue().record();
  if (!now_.came || !at_once()) return done;
  after(host_.queue(), landings_[landing_].free, Edge::gradients_arrived, bug_);
  for (const OwnedRange& range : owned) {  // the tied head's use is still to be added to what is in front
    const Index head = partition_->head_size(comm_->position()), lo = std::max(range.own, head);
    if (const Index hi = std::min(range.own + range.size, now_.gradients.n); lo < hi) now_.came(lo, hi - lo);
  }
  return done;
}

// The transport sums the members' roots from where they lie. The slots are there all the same: where it cannot, they
// are needed.
void GradientReducer::scatter(const Bucket& bucket, const Op& op, const std::vector<OwnedRange>& owned, Index stride,
                              std::span<const VecView<const float>> parts) {
  const std::vector<TreeNode> roots = nodes(comm_->position());
  slices_.clear();
  targets_.clear();
  for (std::size_t i = 0; i < parts.size(); ++i) slices_.push_back({roots[i], parts[i]});
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Index at = 0;
    for (const OwnedRange& range : owned) {
      targets_.push_back({open_[i], range.offset - bucket.lo, sum_of(range, i, stride, at)});
      at += range.size;
    }
  }
  const float factor = at_once() ? now_.factor : 1.0f;
  last_ = comm_->tree_reduce_scatter(launch_.queue(), op, {slices_, cut_.leaves, factor, targets_, pieces_});
}

// A sum a node: what this member brings of it is added up, and the library does the rest. Where its sums are only held
// against the canonical ones, they go to a place of their own.
void GradientReducer::reduce_by_library(const Bucket& bucket, const Op& op, const std::vector<OwnedRange>& owned,
                                        Index stride, std::span<const VecView<const float>> parts) {
  const bool aside = comm_->library_sums() == LibrarySums::beside;
  const int me = comm_->position();
  const std::vector<TreeNode> roots = nodes(me);
  const VecView<float> addend = vec<float>(*memory_.addend, 0, bucket.hi - bucket.lo);
  for (std::size_t i = 0; i < open_.size(); ++i) {
    std::vector<VecView<const float>> brought;
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (lies_under(roots[k], open_[i])) brought.push_back(parts[k]);
    add_up(launch_, bucket.name, brought, addend);
    shares_.clear();
    for (int member = 0; member < comm_->size(); ++member) {
      Index at = 0;
      for (const OwnedRange& range : partition_->owned(member, bucket.lo, bucket.hi)) {
        VecView<float> out;
        if (member == me)
          out = aside ? vec<float>(*memory_.library, Index(i) * stride + at, range.size) : sum_of(range, i, stride, at);
        shares_.push_back({member, range.offset - bucket.lo, range.size, out});
        at += range.size;
      }
    }
    last_ = comm_->library_reduce(launch_.queue(), op, addend, shares_);
    Index at = 0;
    for (const OwnedRange& range : owned) {
      if (!aside && at_once()) scale_sum(launch_, bucket.name, now_.factor, sum_of(range, i, stride, at));
      at += range.size;
    }
  }
}

// Where the sum of a range is made, the range being at `at` of the bucket's `stride` owned elements.
VecView<float> GradientReducer::sum_of(const OwnedRange& range, std::size_t node, Index stride, Index at) const {
  if (!offloaded()) return home_of(range, node);
  return vec<float>(*landings_[landing_].buffer, Index(node) * stride + at, range.size);
}

// Where it belongs: to its final place, or into a node of the tree.
VecView<float> GradientReducer::home_of(const OwnedRange& range, std::size_t node) const {
  if (!at_once()) return open_out_[node].part(range.own - sums_[now_.piece].begin, range.size);
  if (range.own < now_.gradients.n) return now_.gradients.part(range.own, range.size);
  return vec<float>(*memory_.extras, range.own - now_.gradients.n, range.size);
}

// Which members' roots make up a node is asked of the cut inside the kernel: a table of them would cost every rank of a
// large world memory for every micro-step.
void GradientReducer::fold(const Bucket& bucket, const std::vector<OwnedRange>& owned,
                           std::span<const VecView<const float>> parts) {
  Index stride = 0, count = 0, first = 0;  // first: of this member's slots
  for (const OwnedRange& range : owned) stride += range.size;
  for (int member = 0; member < comm_->size(); ++member) {
    if (member == comm_->position()) first = count;
    count += Index(nodes(member).size());
  }
  const float factor = at_once() ? now_.factor : 1.0f;
  // A root that is folded from where it is leaves its slot unwritten: the slots before it and behind it are read.
  const Index before = parts.size() == 1 ? first : count, behind = parts.size() == 1 ? first + 1 : count;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Index at = 0;
    for (const OwnedRange& range : owned) {
      const bool in_place = parts.size() == 1;
      const VecView<const float> own =
          in_place ? parts[0].part(range.offset - bucket.lo, range.size) : VecView<const float>{};
      launch_(
          bucket.name, SEEKSIM_SITE, memory_cost((count + 1) * range.size),
          [cut = cut_, k = now_.k, root = open_[i], me = in_place ? comm_->position() : -1, owner = comm_->position(),
           stride, at, factor, behind, swapped = bug_.is(Bug::arrivals_swapped)](
              Lane lane, Vec<const float> mine, Vec<const float> slots, Vec<const float> slots_behind, Vec<float> sum,
              Vec<const float> library) {
            const Index begin = first_leaf(root), end = std::min(begin + (Index(1) << root.level), cut.leaves);
            std::vector<TreePart> roots;
            Index slot = 0;
            for (int member = 0; member < cut.members; ++member) {
              const SampleRange samples = cut.samples(k, member);
              for (const TreeNode node : kernels::cover(samples.begin, samples.end, cut.leaves)) {
                const float* const held =
                    slot < behind ? slots.data + slot * stride : slots_behind.data + (slot - behind) * stride;
                const float* const data = member == me ? mine.data : held + at;
                if (lies_under(node, root)) roots.push_back({inside(node, root), data, member});
                ++slot;
              }
            }
            if (swapped && !roots.empty()) std::swap(roots.front().data, roots.back().data);
            kernels::tree_sum(lane, roots.data(), Index(roots.size()), end - begin, sum, factor, owner, library.data);
          },
          own, vec<const float>(*memory_.slots, 0, before * stride),
          vec<const float>(*memory_.slots, behind * stride, (count - behind) * stride), sum_of(range, i, stride, at),
          memory_.library ? vec<const float>(*memory_.library, Index(i) * stride + at, range.size)
                          : VecView<const float>{});
      at += range.size;
    }
  }
}

void GradientReducer::end_reduction() {
  if (offloaded()) after(host_.queue(), copies_.queue().record(), Edge::gradients_arrived, bug_);
  if (offloaded() && now_.k > 0 && bug_.is(Bug::offload_keeps_first_gradients)) {
    for (const VecView<float>& later : open_out_) clear_values(host_, "gradients", SEEKSIM_SITE, AnyVec(later));
  }
  if (!at_once()) {
    PartialSums& sums = sums_[now_.piece];
    const bool has_loss = now_.piece + 1 == sums_.size() && partition_->is_last(comm_->position());  // as its last
    const Index gradients = sums.end - sums.begin - (has_loss ? 1 : 0);
    const bool loses = bug_.is(Bug::chunk_loses_last_micro_batch) && now_.piece > 0 && now_.k + 1 == cut_.count();
    for (std::size_t i = 0; loses && i < open_out_.size(); ++i)
      clear_values(at_home(), "gradients", SEEKSIM_SITE, AnyVec(open_out_[i].part(0, gradients)));
    for (const TreeNode node : open_) sums.tree.close(at_home(), node);
    sums.tree.round(at_home(), now_.accumulator, gradients);
  }
  open_.clear();
}

// The nodes of this group's samples meet those of the other groups, at the owners of the same shard.
void GradientReducer::reduce_over_groups() {
  const TreeOwnership ownership{.leaves = cut_.leaves, .members = cut_.groups, .grain = cut_.grain};
  Op op;
  op.phase = Phase::grad_reduce;
  op.step = now_.step;
  op.site = SEEKSIM_SITE;
  const auto sum = [&](const char* what, const PartialSums& from, Index at, VecView<float> out) {
    if (out.n == 0) return;
    std::vector<VecView<const float>> parts;
    for (const VecView<const float>& root : from.tree.parts()) parts.push_back(root.part(at - from.begin, out.n));
    op.tensor = what;
    const float more = bug_.is(Bug::replicas_added_up) ? float(cut_.groups) : 1.0f;
    if (bug_.is(Bug::replicas_not_reduced)) {
      add_up(launch_, what, parts, out);
      return scale_sum(launch_, what, now_.factor * float(cut_.groups), out);
    }
    last_ = replicas_->all_reduce(launch_.queue(), op, ownership, parts, now_.factor * more, out);
  };
  const Index n = now_.gradients.n;
  for (const PartialSums& from : sums_) {
    const Index end = std::min(from.end, n), extra = from.end - std::max(from.begin, n);
    if (from.begin < end)
      sum("gradients of a shard", from, from.begin, now_.gradients.part(from.begin, end - from.begin));
    if (extra > 0)
      sum("head's share and loss", from, from.end - extra, vec<float>(*memory_.extras, from.end - extra - n, extra));
  }
}

// The roots of this group's only tree of each piece.
void GradientReducer::finish_sums() {
  const Index n = now_.gradients.n;
  auto scaled = [factor = now_.factor](Lane lane, Vec<const float> x, Vec<float> y) {
    const TreePart whole{{0, 0}, x.data};
    kernels::tree_sum(lane, &whole, 1, 1, y, factor);
  };
  for (const PartialSums& from : sums_) {
    const std::vector<VecView<const float>> roots = from.tree.parts();
    SEEKSIM_CHECK_EQ(roots.size(), std::size_t(1));
    const auto bring = [&](Index at, VecView<float> to) {
      if (to.n > 0) at_home()("gradients", SEEKSIM_SITE, memory_cost(2 * to.n), scaled, roots[0].part(at, to.n), to);
    };
    const Index begin = std::min(from.begin, n), own = std::min(from.end, n) - begin;
    bring(0, now_.gradients.part(begin, own));
    bring(own, vec<float>(*memory_.extras, from.begin + own - n, from.end - from.begin - own));
  }
}

void GradientReducer::finish(VecView<float> loss) {
  Launcher& launch = at_home();
  launch_.phase(Phase::grad_reduce);
  const int me = comm_->position();
  const Index head = partition_->head_size(me);
  if (replicas_ != nullptr)
    reduce_over_groups();
  else if (!at_once())
    finish_sums();
  if (head > 0) {  // root(embedding use) + root(head use), in that order
    launch(
        "wte.weight", SEEKSIM_SITE, memory_cost(3 * head),
        [](Lane lane, Vec<const float> head_use, Vec<float> embedding_use) {
          kernels::tree_add(lane, embedding_use, head_use, embedding_use);
        },
        vec<const float>(*memory_.extras, 0, head), now_.gradients.part(0, head));
  }
  if (partition_->is_last(me)) {
    launch(
        "loss", SEEKSIM_SITE, memory_cost(2),
        [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy(lane, x, y); },
        vec<const float>(*memory_.extras, head, 1), loss);
  }
}

}  // namespace seeksim::runtime
