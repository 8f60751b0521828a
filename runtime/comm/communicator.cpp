// A canonical sum over any transport: every rank sends its subtree roots of shard r to the shard's owner r, the owner
// folds them in one kernel by the tree, and the shards are gathered. That is the traffic of a ring's reduce-scatter and
// all-gather, but the order of additions is the tree's and not the ring's.
#include "runtime/comm/communicator.h"

#include <algorithm>
#include <exception>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/launch/library_sum.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::TreeNode;
using kernels::TreePart;
using kernels::Vec;

namespace {
// A transport sends and receives memory of the device, as NCCL does: what is on the host has to be brought there first.
void check_on_device(const Op& op, const Buffer* buffer) {
  SEEKSIM_CHECK(buffer == nullptr || buffer->space == Space::device, "%s sends or receives '%s', which is on the host",
                describe(op).c_str(), buffer->name);
}
}  // namespace

std::vector<TreeNode> TreeOwnership::nodes(int position) const {
  const SampleRange range =
      StepCut{.leaves = leaves, .members = members, .grain = grain, .each = each}.samples(0, position);
  if (range.size() == 0) return {};
  std::vector<TreeNode> nodes = kernels::cover(range.begin, range.end, leaves);
  for (TreeNode& node : nodes) node = lifted(node, leaves);
  return nodes;
}

Communicator::Communicator(Rank& rank, Axis axis, std::uint32_t epoch, std::vector<int> members, TimeNs timeout_ns,
                           int group)
    : rank_(rank), axis_(axis), epoch_(epoch), members_(std::move(members)), timeout_ns_(timeout_ns) {
  const auto self = std::find(members_.begin(), members_.end(), rank_.id);
  SEEKSIM_CHECK(self != members_.end(), "rank %d is no member of its communicator", rank_.id);
  position_ = static_cast<int>(self - members_.begin());
  joined_.fill(-1);
  rounds_ = GatherRounds(rank_.gather_rule, size(), position_);
  Op op;
  op.kind = OpKind::comm_create;
  op.phase = epoch == 0 ? Phase::init : Phase::recovery;
  op.tensor = "communicator";
  op.site = SEEKSIM_SITE;
  op.axis = axis_;
  op.epoch = epoch_;
  op.rank = rank_.id;
  CommSpec spec;
  spec.name = name(axis_);
  spec.axis = axis_;
  spec.epoch = epoch_;
  spec.id = id_ = (std::uint64_t(epoch_) << 32 | std::uint64_t(group) << 8 | std::uint64_t(axis_)) + 1;
  spec.members = members_;
  comm_ = rank_.transport.create(op, spec, later(rank_.clock.now(), timeout_ns_));
  rank_.comms.push_back(comm_);
  rank_.recorder.communicator({comm_.handle, id_, epoch_, axis_, members_, rank_.clock.now(), timeout_ns_});
}

// Neither waits for what is pending nor throws. A rank that is killed meanwhile is told so by its next wait.
Communicator::~Communicator() {
  if (aborted_ || !comm_) return;
  try {
    // Asked first, for it learns what has ended meanwhile.
    const bool well = rank_.transport.async_error(comm_) == CommResult::success;
    const bool in_order = well && std::uncaught_exceptions() == 0 && !rank_.transport.unmatched(comm_).pending;
    if (!in_order) {
      abort();
      return;
    }
    closed();
    rank_.transport.finalize(comm_);
    rank_.transport.destroy(comm_);
  } catch (const RankDied&) {
  }
}

Op Communicator::stamp(Op op) {
  op.epoch = epoch_;
  op.rank = rank_.id;
  op.axis = axis_;
  op.sequence = ++sequence_;
  joined_[sequence_ % joined_.size()] = rank_.clock.now();
  return op;
}

TimeNs Communicator::joined_ns(std::uint64_t sequence) const {
  const bool kept = sequence > 0 && sequence <= sequence_ && sequence + joined_.size() > sequence_;
  return kept ? joined_[sequence % joined_.size()] : -1;
}

Op Communicator::all_reduce(Queue& queue, Op op, const TreeOwnership& ownership,
                            std::span<const VecView<const float>> parts, float factor, VecView<float> out) {
  SEEKSIM_CHECK_EQ(ownership.members, size());
  op.kind = OpKind::all_reduce;
  op.bytes = static_cast<std::uint64_t>(out.n) * sizeof(float);
  op = stamp(op);
  if (library_sums() == LibrarySums::instead) {
    reduce_by_library(queue, op, parts, factor, out);
    return op;
  }
  if (library_sums() == LibrarySums::beside) {
    reduce_by_library(queue, op, parts, 1.0f, vec<float>(*arrivals(ownership, out.n).library, 0, out.n));
    op = stamp(op);
  }
  if (library_sums() != LibrarySums::none || !rank_.transport.has_native(comm_, op)) {
    reduce_over_exchange(queue, op, ownership, parts, factor, out);
    return op;
  }
  const std::vector<TreeNode> nodes = ownership.nodes(position_);
  SEEKSIM_CHECK_EQ(nodes.size(), parts.size());
  slices_.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i) slices_.push_back({nodes[i], parts[i]});
  check_on_device(op, out.buffer);
  check(rank_.transport.tree_all_reduce(queue, comm_, op, {slices_, ownership.leaves, factor, out}), op);
  return op;
}

Communicator::Arrivals& Communicator::arrivals(const TreeOwnership& ownership, Index n) {
  for (Arrivals& known : arrivals_) {
    if (known.leaves == ownership.leaves && known.n == n) return known;
  }
  Arrivals made;
  made.leaves = ownership.leaves;
  made.n = n;
  std::vector<std::int64_t> table;
  for (int member = 0; member < size(); ++member) {
    if (member == position_) made.first_own = made.count;
    const std::vector<TreeNode> nodes = ownership.nodes(member);
    for (const TreeNode node : nodes) table.insert(table.end(), {node.level | member << 8, node.index});
    made.parts_of.push_back(static_cast<int>(nodes.size()));
    made.count += made.parts_of.back();
  }
  made.shard = shard_of(n, size(), position_).size;
  made.table = rank_.device.allocate_in(Space::host, std::max<std::size_t>(table.size(), 1) * sizeof(std::int64_t),
                                        MemoryTag::communication, "subtree table");
  Op op;
  op.kind = OpKind::copy;
  op.rank = rank_.id;
  op.epoch = epoch_;
  op.tensor = "subtree table";
  op.site = SEEKSIM_SITE;
  rank_.device.host_touches(op, vec<std::int64_t>(*made.table).range());
  if (made.table->data != nullptr)  // null in a run of shapes
    std::copy(table.begin(), table.end(), reinterpret_cast<std::int64_t*>(made.table->data));
  made.slots =
      rank_.device.allocate(static_cast<std::size_t>(std::max<Index>(made.shard * made.count, 1)) * sizeof(float),
                            MemoryTag::communication, "subtree roots");
  if (library_sums() == LibrarySums::beside)
    made.library = rank_.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::communication, "a library's sum");
  arrivals_.push_back(std::move(made));
  return arrivals_.back();
}

Launcher Communicator::launcher(Queue& queue, const Op& op) const {
  Launcher launch(queue, rank_.id, launches_);
  launch.at(op.epoch, op.step);
  launch.phase(op.phase);
  return launch;
}

void Communicator::reduce_by_library(Queue& queue, const Op& op, std::span<const VecView<const float>> parts,
                                     float factor, VecView<float> out) {
  Launcher launch = launcher(queue, op);
  add_up(launch, op.tensor, parts, out);
  check_on_device(op, out.buffer);
  check(rank_.transport.library_all_reduce(queue, comm_, op, out, out), op);
  scale_sum(launch, op.tensor, factor, out);
  launches_ = launch.last().sequence;
}

void Communicator::reduce_over_exchange(Queue& queue, const Op& op, const TreeOwnership& ownership,
                                        std::span<const VecView<const float>> parts, float factor, VecView<float> out) {
  Launcher launch = launcher(queue, op);
  if (size() == 1) return fold_alone(launch, op, ownership.leaves, parts, factor, out);
  Arrivals& in = arrivals(ownership, out.n);
  SEEKSIM_CHECK_EQ(parts.size(), in.parts_of[position_]);
  list_pieces(in, parts);
  exchange_pieces(queue, op, pieces_);
  fold_shard(launch, op, in, parts, factor, out);
  launches_ = launch.last().sequence;
  all_gather(queue, op, out, shard_evenly(out.n, size()));
}

// Everyone's subtree roots of our shard come in, ours of every other shard go out.
void Communicator::list_pieces(const Arrivals& in, std::span<const VecView<const float>> parts) {
  auto piece = [&](int member, bool send, Range range) {
    if (range.lo < range.hi)
      pieces_.push_back({members_[member], send, range.buffer, range.lo, range.hi, nullptr, range.type});
  };
  pieces_.clear();
  int arriving = 0;
  for (int member = 0; member < size(); ++member) {
    for (int k = 0; k < in.parts_of[member]; ++k, ++arriving) {
      if (member != position_) piece(member, false, in.slot(arriving).range());
    }
    if (member == position_) continue;
    const ShardInfo theirs = shard_of(in.n, size(), member);
    for (const VecView<const float>& part : parts) piece(member, true, part.part(theirs.offset, theirs.size).range());
  }
}

void Communicator::fold_shard(Launcher& launch, const Op& op, const Arrivals& in,
                              std::span<const VecView<const float>> parts, float factor, VecView<float> out) {
  const ShardInfo mine = shard_of(out.n, size(), position_);
  if (mine.size == 0) return;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    launch(
        op.tensor, SEEKSIM_SITE, memory_cost(2 * mine.size, 0),
        [](Lane lane, Vec<const float> own, Vec<float> to) { kernels::copy(lane, own, to); },
        parts[k].part(mine.offset, mine.size), in.slot(in.first_own + static_cast<int>(k)));
  }
  launch(
      op.tensor, SEEKSIM_SITE, memory_cost((in.count + 1) * mine.size),
      [leaves = in.leaves, factor, me = position_,
       table = vec<const std::int64_t>(*in.table, 0, 2 * Index(in.count)).get()](
          Lane lane, Vec<const float> slots, Vec<float> sum, Vec<const float> library) {
        std::vector<TreePart> roots(static_cast<std::size_t>(table.n / 2));
        for (std::size_t i = 0; i < roots.size(); ++i) {
          const int both = static_cast<int>(table[2 * i]);
          roots[i] = {{both & 255, table[2 * i + 1]}, slots.data + Index(i) * sum.n, both >> 8};
        }
        kernels::tree_sum(lane, roots.data(), Index(roots.size()), leaves, sum, factor, me, library.data);
      },
      vec<const float>(*in.slots, 0, in.count * mine.size), out.part(mine.offset, mine.size),
      in.library ? vec<const float>(*in.library, mine.offset, mine.size) : VecView<const float>{});
}

// All leaves are here, so this rank's one subtree root is the tree's.
void Communicator::fold_alone(Launcher& launch, const Op& op, Index leaves, std::span<const VecView<const float>> parts,
                              float factor, VecView<float> out) {
  SEEKSIM_CHECK_EQ(parts.size(), 1);
  const TreeNode root = TreeOwnership{leaves, 1}.nodes(0).front();
  launch(
      op.tensor, SEEKSIM_SITE, memory_cost(2 * out.n),
      [root, leaves, factor](Lane lane, Vec<const float> part, Vec<float> sum) {
        const TreePart parts_of_it[] = {{root, part.data}};
        kernels::tree_sum(lane, parts_of_it, 1, leaves, sum, factor);
      },
      parts.front(), out);
  launches_ = launch.last().sequence;
}

Op Communicator::all_gather(Queue& queue, Op op, AnyVec values, std::span<const ShardInfo> shards) {
  SEEKSIM_CHECK_EQ(shards.size(), size());
  if (op.kind != OpKind::publish) op.kind = OpKind::all_gather;
  op.bytes = values.bytes();
  op = stamp(op);
  if (size() == 1) return op;
  pieces_.clear();
  const Range mine = values.part(shards[position_].offset, shards[position_].size).range(false);
  for (int member = 0; member < size(); ++member) {
    if (member == position_) continue;
    const Range theirs = values.part(shards[member].offset, shards[member].size).range(true);
    if (mine.lo < mine.hi)
      pieces_.push_back({members_[member], true, mine.buffer, mine.lo, mine.hi, nullptr, mine.type});
    if (theirs.lo < theirs.hi)
      pieces_.push_back({members_[member], false, theirs.buffer, theirs.lo, theirs.hi, nullptr, theirs.type});
  }
  return gather_pieces(queue, op, pieces_);
}

// op is stamped; each further round is an operation with a number of its own.
Op Communicator::gather_pieces(Queue& queue, Op op, std::span<const Piece> pieces) {
  if (rounds_.count() == 0) {
    exchange_pieces(queue, op, pieces);
    return op;
  }
  rounds_.begin(pieces, members_);
  for (int round = 0; round < rounds_.count(); ++round) {
    if (round > 0) op = stamp(op);
    const std::span<const Piece> moved = rounds_.pieces(round, members_);
    if (!moved.empty()) exchange_pieces(queue, op, moved);
  }
  return op;
}

namespace {
std::uint64_t bytes_sent(std::span<const Piece> pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.send ? piece.hi - piece.lo : 0;
  return bytes;
}
}  // namespace

Op Communicator::tree_reduce_scatter(Queue& queue, Op op, const TreeScatter& scatter) {
  for (const TreeReduceSlice& part : scatter.parts) check_on_device(op, part.value.buffer);
  for (const TreeTarget& target : scatter.targets) check_on_device(op, target.out.buffer);
  op.bytes = bytes_sent(scatter.pieces);
  op = stamp(op);
  check(rank_.transport.tree_reduce_scatter(queue, comm_, op, scatter), op);
  return op;
}

Op Communicator::library_reduce(Queue& queue, Op op, VecView<const float> values, std::span<const SumShare> shares) {
  check_on_device(op, values.buffer);
  for (const SumShare& share : shares) check_on_device(op, share.out.buffer);
  op.bytes = std::uint64_t(values.n) * sizeof(float);
  op = stamp(op);
  check(rank_.transport.library_reduce(queue, comm_, op, values, shares), op);
  return op;
}

Op Communicator::exchange(Queue& queue, Op op, std::span<const Piece> pieces) {
  op.bytes = bytes_sent(pieces);
  op = stamp(op);
  if (op.kind == OpKind::param_gather && rounds_.count() > 0) return gather_pieces(queue, op, pieces);
  if (!pieces.empty()) exchange_pieces(queue, op, pieces);
  return op;
}

void Communicator::exchange_pieces(Queue& queue, const Op& op, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) check_on_device(op, piece.buffer);
  check(rank_.transport.exchange(queue, comm_, op, pieces), op);
}

void Communicator::wait(const Event& event, const Op& op) { rank_.wait(event, op, timeout_ns_, comm_); }

void Communicator::closed() {
  std::erase_if(rank_.comms, [this](Comm comm) { return comm.handle == comm_.handle; });
}

void Communicator::abort() {
  Communicator* const self[] = {this};
  abort_all(rank_, self);
}

void Communicator::abort_all(Rank& rank, std::span<Communicator* const> all) {
  std::vector<Comm> comms;
  for (Communicator* comm : all) {
    if (comm->aborted_ || !comm->comm_) continue;
    comm->closed();
    comm->aborted_ = true;
    comms.push_back(comm->comm_);
  }
  if (!comms.empty()) rank.transport.abort(comms);
}

void Communicator::check(CommResult result, const Op& op) {
  if (result == CommResult::success || result == CommResult::in_progress) return;
  const ErrorKind kind = result == CommResult::invalid_usage ? ErrorKind::revoked
                         : result == CommResult::timeout     ? ErrorKind::timeout
                                                             : ErrorKind::remote_error;
  throw SeamError(kind, op, "the transport refused it: " + std::string(name(result)));
}

}  // namespace seeksim::runtime
