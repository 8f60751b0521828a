#include "runtime/comm/ring_attention.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Vec;

RingAttention::RingAttention(Device& device, const RingShape& shape, int me, const PlantedBug& bug)
    : shape_(shape),
      me_(me),
      bug_(bug),
      order_(shape.cut, me,
             {bug.is(Bug::ring_mask_by_rank), bug.is(Bug::ring_last_hop_left_out), bug.is(Bug::ring_gradients_stay)}) {
  const Index rows = shape.samples_max * shape.cut.size(), chunk = this->rows(shape.samples_max);
  const auto floats = [&](const char* name, Index n) {
    return device.allocate(std::size_t(std::max<Index>(n, 1)) * sizeof(float), MemoryTag::activations, name);
  };
  blocks_ = device.allocate(std::size_t(2 * rows * shape.key_columns()) * size_of(shape.type), MemoryTag::activations,
                            "blocks of keys and values");
  states_ = floats("sums over keys", order_.query_slots() * rows * shape.heads * (shape.head_dim + 2));
  keys_ = floats("sums over queries", order_.key_slots() * rows * shape.key_columns());
  sent_ = floats("sums over queries to send", 2 * order_.pairs_at_most() * chunk * shape.key_columns());
}

kernels::AttentionShape RingAttention::attention(Index samples) const {
  return {samples, shape_.cut.chunk_size(), shape_.heads, shape_.head_dim, 0, shape_.group};
}

RingAttention::Part RingAttention::part(Index samples, const RingPair& pair, int owner) const {
  const auto small = [](Index n) { return static_cast<std::int32_t>(n); };
  const ContextCut& cut = shape_.cut;
  const Index key = bug_.is(Bug::ring_dropout_of_block) ? 0 : cut.first(owner, pair.key);
  return {small(samples),
          small(cut.chunk_size()),
          small(shape_.heads),
          small(shape_.head_dim),
          small(shape_.group),
          small(cut.tokens),
          small(cut.first(me_, pair.query)),
          small(key),
          pair.before};
}

template <class S>
MatView<S> RingAttention::block(Index samples, int hop, int chunk) const {
  const Index n = rows(samples);
  return mat<S>(*blocks_, (hop % 2 * Index(chunks()) + chunk) * n * shape_.key_columns(), n, shape_.key_columns());
}
// Rows of so many columns for each of a chunk's, in a slot. The slots of all chunks lie side by side.
MatView<float> RingAttention::state(Index samples, int slot, int chunk, Index columns, Index of_row) const {
  const Index n = rows(samples) * of_row;
  return mat<float>(*states_, (slot * Index(chunks()) + chunk) * n * columns, n, columns);
}
MatView<float> RingAttention::key_node(Index samples, int slot, int chunk) const {
  const Index n = rows(samples), columns = shape_.key_columns();
  return mat<float>(*keys_, (slot * Index(chunks()) + chunk) * n * columns, n, columns);
}
MatView<float> RingAttention::sent_node(Index samples, int hop, int pair) const {
  const Index n = rows(samples), columns = shape_.key_columns();
  return mat<float>(*sent_, (hop % 2 * Index(order_.pairs_at_most()) + pair) * n * columns, n, columns);
}

// ---- messages ------------------------------------------------------------------------------------------------------

template <class S>
void RingAttention::pack(const Pass& p, MatView<const S> qkv) {
  MatView<S> own = block<S>(p.samples, 0, 0);
  own.rows = qkv.rows;
  p.launch(
      "keys and values", SEEKSIM_SITE, memory_cost(2 * own.rows * own.cols, 0),
      [wide = shape_.group * shape_.head_dim, both = 2 * shape_.head_dim](Lane lane, Mat<const S> from, Mat<S> to) {
        for (Index r = 0; r < to.rows; ++r) {
          for (Index k = 0; k < to.cols / both; ++k)
            kernels::copy<S>(lane, {from.row(r) + k * (wide + both) + wide, both}, {to.row(r) + k * both, both});
        }
      },
      qkv, own);
}

template <class S>
void RingAttention::add_block(const Pass& p, int hop) {
  if (is_last(hop)) return;
  const std::vector<int>& members = p.link.comm.members();
  const int ranks = shape_.cut.ranks;
  MatView<S> here = block<S>(p.samples, hop, 0), next = block<S>(p.samples, hop + 1, 0);
  here.rows = next.rows = rows(p.samples) * Index(chunks());
  const Range out = reads(here).range(), in = next.range();
  pieces_.push_back({members[std::size_t((me_ + 1) % ranks)], true, out.buffer, out.lo, out.hi, nullptr, out.type});
  pieces_.push_back(
      {members[std::size_t((me_ + ranks - 1) % ranks)], false, in.buffer, in.lo, in.hi, nullptr, in.type});
}

// What this rank made in a hop for the owner of that block, and what the rank that had its own block made.
void RingAttention::add_gradients(const Pass& p, int hop, Counts& counts) {
  const RingOrder::Hop& of = order_.hops[std::size_t(hop)];
  const std::vector<int>& members = p.link.comm.members();
  for (int i = 0; i < int(of.pairs.size()); ++i) {
    const Range out = reads(sent_node(p.samples, hop, i)).range();
    pieces_.push_back({members[std::size_t(of.owner)], true, out.buffer, out.lo, out.hi, nullptr, out.type});
  }
  std::vector<int> coming = counts.keys;
  for (const RingPair& pair : of.from_asker) {
    const Range in = key_node(p.samples, next(order_.keys, coming, pair.key).slot, pair.key).range();
    pieces_.push_back({members[std::size_t(of.asker)], false, in.buffer, in.lo, in.hi, nullptr, in.type});
  }
}

// After all that is enqueued on the compute queue; what is enqueued there does not wait for it until arrived().
void RingAttention::start(const Pass& p, const char* tensor, const char* site) {
  Op op = p.launch.last();
  op.kind = OpKind::ring_hop;
  op.tensor = tensor;
  op.site = site;
  after(p.link.queue, p.launch.queue().record(), Edge::ring_place_free, bug_);
  p.link.comm.exchange(p.link.queue, op, pieces_);
  pieces_.clear();
}

void RingAttention::arrived(const Pass& p) {
  after(p.launch.queue(), p.link.queue.record(), Edge::ring_block_arrived, bug_);
}

// ---- forward -------------------------------------------------------------------------------------------------------

namespace {

// A planted mistake, on the host: the operands are added as they are.
void join_as_they_are(Mat<const float> newer, Mat<float> older) {
  const Index d = older.cols - 2;
  for (Index r = 0; r < older.rows; ++r) {
    for (Index c = 0; c < older.cols; ++c) {
      if (c != d) older.row(r)[c] += newer.row(r)[c];
    }
    older.row(r)[d] = std::max(older.row(r)[d], newer.row(r)[d]);
  }
}

}  // namespace

void RingAttention::join(const Pass& p, int chunk, const TreeOrder::Join& join) {
  const Index columns = shape_.head_dim + 2;
  const MatView<float> older = state(p.samples, join.older, chunk, columns, shape_.heads),
                       newer = state(p.samples, join.newer, chunk, columns, shape_.heads);
  p.launch(
      "attention to two blocks", SEEKSIM_SITE, memory_cost(3 * older.rows * columns),
      [as_they_are = bug_.is(Bug::ring_joins_without_factors)](Lane lane, Mat<const float> more, Mat<float> sum) {
        if (as_they_are && lane.device == nullptr) return join_as_they_are(more, sum);
        kernels::fused_join(lane, more, sum);
      },
      reads(newer), older);
}

template <class S>
void RingAttention::attend(const Pass& p, int hop, Counts& counts, MatView<const S> qkv) {
  const kernels::AttentionShape shape = attention(p.samples);
  const Index n = rows(p.samples), columns = shape_.head_dim + 2;
  const RingOrder::Hop& here = order_.hops[std::size_t(hop)];
  for (const RingPair& pair : here.pairs) {
    const TreeOrder::Arrival& arrival = next(order_.queries, counts.queries, pair.query);
    const MatView<float> node = state(p.samples, arrival.slot, pair.query, columns, shape_.heads);
    const double products = (pair.before ? 4.0 : 2.0) * double(n * shape.tokens * shape_.heads * shape_.head_dim);
    p.launch(
        "attention to a block", SEEKSIM_SITE, {products, 4.0 * double(n * qkv.cols + node.rows * columns)},
        [part = part(p.samples, pair, here.owner), drop = p.drop](Lane lane, Mat<const S> in, Mat<const S> kv,
                                                                  Mat<float> sums) {
          kernels::fused_part_forward<S>(lane, part.shape(), part.place(), in, kv, sums, drop);
        },
        qkv.row_range(pair.query * n, n), reads(block<S>(p.samples, hop, pair.key)), node);
    if (bug_.is(Bug::ring_sums_in_16_bits)) {
      p.launch(
          "attention to a block", SEEKSIM_SITE, memory_cost(2 * node.rows * columns),
          [](Lane lane, Mat<float> sums) {
            using Half = std::conditional_t<std::is_same_v<S, float>, kernels::bf16, S>;
            for (Index r = 0; r < sums.rows; ++r) kernels::round_through<Half>(lane, {sums.row(r), sums.cols - 2});
          },
          node);
    }
    for (const TreeOrder::Join& both : arrival.joins) join(p, pair.query, both);
  }
}

template <class S>
void RingAttention::forward(Link link, Launcher& launch, Index samples, const kernels::Dropout& drop,
                            MatView<const S> qkv, MatView<float> stats, MatView<S> out) {
  if (launch.muted()) return;
  const Pass p{link, launch, samples, drop};
  Counts counts = none();
  pack<S>(p, qkv);
  for (int hop = 0; hop < int(order_.hops.size()); ++hop) {
    if (hop > 0) arrived(p);
    add_block<S>(p, hop);
    if (!pieces_.empty()) start(p, "keys and values", SEEKSIM_SITE);
    attend<S>(p, hop, counts, qkv);
  }
  const Index columns = shape_.head_dim + 2;
  MatView<float> roots = state(samples, 0, 0, columns, shape_.heads);
  roots.rows *= Index(chunks());
  launch(
      "attention", SEEKSIM_SITE, memory_cost(2 * roots.rows * columns),
      [shape = attention(samples * Index(chunks()))](Lane lane, Mat<const float> from, Mat<float> row_stats, Mat<S> y) {
        kernels::fused_root<S>(lane, shape, from, row_stats, y);
      },
      reads(roots), stats, out);
}

// ---- backward ------------------------------------------------------------------------------------------------------

void RingAttention::add_nodes(const Pass& p, MatView<float> older, MatView<float> newer) {
  p.launch(
      "d attention to two blocks", SEEKSIM_SITE, memory_cost(3 * older.rows * older.cols),
      [](Lane lane, Mat<const float> more, Mat<float> sum) { kernels::add<float>(lane, sum, more, sum); }, reads(newer),
      older);
}

// The nodes that came for own keys, of the queries of another rank or, in hop 0, of its own.
void RingAttention::add_arrivals(const Pass& p, int hop, Counts& counts) {
  for (const RingPair& pair : order_.hops[std::size_t(hop)].from_asker) {
    for (const TreeOrder::Join& both : next(order_.keys, counts.keys, pair.key).joins)
      add_nodes(p, key_node(p.samples, both.older, pair.key), key_node(p.samples, both.newer, pair.key));
  }
}

template <class S>
void RingAttention::differentiate(const Pass& p, int hop, Counts& counts, MatView<const S> dout, MatView<const S> qkv,
                                  MatView<const S> out, MatView<const float> stats) {
  const kernels::AttentionShape shape = attention(p.samples);
  const Index n = rows(p.samples), wide = shape_.heads * shape_.head_dim, of_chunk = n * shape_.heads;
  const RingOrder::Hop& here = order_.hops[std::size_t(hop)];
  std::vector<int> own = counts.keys;
  const bool stale = bug_.is(Bug::ring_stale_block) && hop > 0 && is_last(hop);
  for (int i = 0; i < int(here.pairs.size()); ++i) {
    const RingPair& pair = here.pairs[std::size_t(i)];
    const TreeOrder::Arrival& arrival = next(order_.queries, counts.queries, pair.query);
    const MatView<float> dq = state(p.samples, arrival.slot, pair.query, wide, 1);
    const MatView<float> dkv =
        hop > 0 ? sent_node(p.samples, hop, i) : key_node(p.samples, next(order_.keys, own, pair.key).slot, pair.key);
    const double products = (pair.before ? 12.0 : 6.0) * double(n * shape.tokens * wide);
    const Index first = pair.query * n;
    p.launch(
        "d attention to a block", SEEKSIM_SITE, {products, 4.0 * double(n * (2 * qkv.cols + 2 * wide))},
        [part = part(p.samples, pair, here.owner), drop = p.drop](
            Lane lane, Mat<const S> dy, Mat<const S> in, Mat<const S> kv, Mat<const S> y, Mat<const float> of_rows,
            Mat<float> queries, Mat<float> keys) {
          kernels::fused_part_backward<S>(lane, part.shape(), part.place(), dy, in, kv, y, of_rows, queries, keys,
                                          drop);
        },
        dout.row_range(first, n), qkv.row_range(first, n), reads(block<S>(p.samples, stale ? hop - 1 : hop, pair.key)),
        out.row_range(first, n), stats.row_range(pair.query * of_chunk, of_chunk), dq, dkv);
    for (const TreeOrder::Join& both : arrival.joins)
      add_nodes(p, state(p.samples, both.older, pair.query, wide, 1),
                state(p.samples, both.newer, pair.query, wide, 1));
  }
}

// A planted mistake: as if own keys were those that the last hop brought.
void RingAttention::keep_last_gradients(const Pass& p) {
  const int hop = int(order_.hops.size()) - 1;
  const std::vector<RingPair>& pairs = order_.hops.back().pairs;
  for (int i = 0; i < int(pairs.size()); ++i)
    add_nodes(p, key_node(p.samples, 0, pairs[std::size_t(i)].key), sent_node(p.samples, hop, i));
}

template <class S>
void RingAttention::write_gradients(const Pass& p, MatView<S> dqkv) {
  const Index wide = shape_.heads * shape_.head_dim;
  MatView<float> dq = state(p.samples, 0, 0, wide, 1), dkv = key_node(p.samples, 0, 0);
  dq.rows = dkv.rows = dqkv.rows;
  p.launch(
      "attention", SEEKSIM_SITE, memory_cost(2 * dqkv.rows * dqkv.cols, 0),
      [of_group = shape_.group * shape_.head_dim, both = 2 * shape_.head_dim](Lane lane, Mat<const float> queries,
                                                                              Mat<const float> keys, Mat<S> to) {
        for (Index r = 0; r < to.rows; ++r) {
          for (Index k = 0; k < keys.cols / both; ++k) {
            S* const group = to.row(r) + k * (of_group + both);
            kernels::narrow<S>(lane, {queries.row(r) + k * of_group, of_group}, {group, of_group});
            kernels::narrow<S>(lane, {keys.row(r) + k * both, both}, {group + of_group, both});
          }
        }
      },
      reads(dq), reads(dkv), dqkv);
}

template <class S>
void RingAttention::backward(Link link, Launcher& launch, Index samples, const kernels::Dropout& drop,
                             MatView<const S> dout, MatView<const S> qkv, MatView<const S> out,
                             MatView<const float> stats, MatView<S> dqkv) {
  if (launch.muted()) return;
  const Pass p{link, launch, samples, drop};
  Counts counts = none();
  const int hops = int(order_.hops.size());
  // Gradients made in one hop go home during the next one, and are added in the one after that.
  const auto goes_home = [&](int hop) {
    return hop >= 1 && hop < hops && !(bug_.is(Bug::ring_gradients_stay) && is_last(hop));
  };
  pack<S>(p, qkv);
  for (int hop = 0; hop <= hops + (goes_home(hops - 1) ? 1 : 0); ++hop) {
    if (hop > 0) arrived(p);
    if (goes_home(hop - 2)) add_arrivals(p, hop - 2, counts);
    if (hop < hops) add_block<S>(p, hop);
    if (!pieces_.empty()) start(p, "keys and values", SEEKSIM_SITE);
    if (goes_home(hop - 1)) {
      add_gradients(p, hop - 1, counts);
      start(p, "d keys and values", SEEKSIM_SITE);
    }
    if (hop >= hops) continue;
    differentiate<S>(p, hop, counts, dout, qkv, out, stats);
    if (hop == 0) add_arrivals(p, 0, counts);
  }
  if (bug_.is(Bug::ring_gradients_stay)) keep_last_gradients(p);
  write_gradients<S>(p, dqkv);
}

#define SEEKSIM_RING_ATTENTION_OF(S)                                                                          \
  template void RingAttention::forward<S>(Link, Launcher&, Index, const kernels::Dropout&, MatView<const S>,  \
                                          MatView<float>, MatView<S>);                                        \
  template void RingAttention::backward<S>(Link, Launcher&, Index, const kernels::Dropout&, MatView<const S>, \
                                           MatView<const S>, MatView<const S>, MatView<const float>, MatView<S>);
SEEKSIM_RING_ATTENTION_OF(float)
SEEKSIM_RING_ATTENTION_OF(kernels::bf16)
SEEKSIM_RING_ATTENTION_OF(kernels::fp16)
#undef SEEKSIM_RING_ATTENTION_OF

}  // namespace seeksim::runtime
