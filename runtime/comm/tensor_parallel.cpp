#include "runtime/comm/tensor_parallel.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/pointwise.h"
#include "runtime/comm/expert_group.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Stretch;
using kernels::Vec;

namespace {

Index expert_rows_max(const TrainPlan& plan, Index samples_max) {
  const int ranks = plan.layout.parallel.expert;
  const ExpertShape shape = expert_shape(plan, samples_max);
  return ranks > 1 ? ExpertGroup(shape, ranks, 0, {}).rows_max() : samples_max * shape.tokens * shape.choices;
}

}  // namespace

TensorShape tensor_shape(const TrainPlan& plan, Index samples_max, bool embeds) {
  const ModelPlan& model = plan.definition.model;
  return {samples_max,
          model.context,
          model.width,
          model.vocab,
          plan.layout.parallel.sequence_parallel,
          embeds,
          model.experts.on() ? expert_rows_max(plan, samples_max) : 0,
          plan.definition.precision.compute};
}

TensorAxis::TensorAxis(Device& device, const TensorShape& shape, int ways, int way, const PlantedBug& bug)
    : shape_(shape), ways_(ways), way_(way), bug_(bug) {
  SEEKSIM_CHECK(kernels::filled_ways(shape.vocabulary, ways) == ways, "a way of %d without vocabulary", ways);
  SEEKSIM_CHECK(!shape.sequence_parallel || kernels::filled_ways(shape.tokens, ways) == ways,
                "a way of %d without tokens", ways);
  const auto floats = [&](MemoryTag tag, const char* name, Index n) {
    return device.allocate(std::size_t(n) * sizeof(float), tag, name);
  };
  const Index R = shape.samples_max * shape.tokens, C = shape.width;
  const Index X = shape.expert_rows_max, slots = shape.samples_max > 0 ? X / R : 0;  // of a token, without a group
  const Index owned_max =
      std::max({shape.sequence_parallel ? rows_max() * std::max<Index>(slots, 1) : (R + ways - 1) / ways,
                (X + ways - 1) / ways});
  const Index values_max = std::max({2 * R, shape.sequence_parallel ? 2 * shape.samples_max * C : 0, X});
  node_ = floats(MemoryTag::communication, "node of a split product", std::max(R, X) * C);
  folded_ = floats(MemoryTag::communication, "maxima, sums and target logits", 3 * R);
  slots_ = floats(MemoryTag::scratch, "rows of all ways", ways * owned_max * C);
  values_ = floats(MemoryTag::scratch, "values of all ways", ways * values_max);
  if (shape.embeds)
    embedded_ =
        device.allocate(std::size_t(R * C) * size_of(shape.type), MemoryTag::scratch, "rows of an embedding slice");
}

void TensorAxis::connect(Rank& rank, std::uint32_t epoch, std::vector<int> members, TimeNs timeout_ns, int group) {
  comm_.emplace(rank, Axis::tensor, epoch, std::move(members), timeout_ns, group);
  SEEKSIM_CHECK_EQ(comm_->size(), ways_);
  SEEKSIM_CHECK_EQ(comm_->position(), way_);
  queue_ = &rank.device.message_queue(MessageQueue::tensor);
}

Stretch TensorAxis::tokens() const {
  return splits_tokens() ? kernels::stretch_of_way(shape_.tokens, ways_, way_) : Stretch{0, shape_.tokens};
}

TensorAxis::Rows TensorAxis::owned(const Shared& all, int way) const {
  if (by_tokens(all)) {
    const Stretch mine = kernels::stretch_of_way(shape_.tokens, ways_, way);
    const Index k = all.of_token;
    return {mine.first * k, mine.size * k, shape_.tokens * k, all.rows / (shape_.tokens * k)};
  }
  const Index first = all.rows * way / ways_;
  return {first, all.rows * (way + 1) / ways_ - first, 0, 1};
}

// ---- exchanges -----------------------------------------------------------------------------------------------------

template <class T>
void TensorAxis::send(int way, VecView<T> values) {
  const Range r = values.range();
  if (r.lo < r.hi) pieces_.push_back({comm_->members()[std::size_t(way)], true, r.buffer, r.lo, r.hi, nullptr, r.type});
}
template <class T>
void TensorAxis::receive(int way, VecView<T> values) {
  const Range r = values.range();
  if (r.lo < r.hi)
    pieces_.push_back({comm_->members()[std::size_t(way)], false, r.buffer, r.lo, r.hi, nullptr, r.type});
}

// What the pieces say, after what is enqueued on the compute queue; what is enqueued there from now on comes after it.
void TensorAxis::exchange(Launcher& launch, OpKind kind, const char* tensor, const char* site) {
  SEEKSIM_CHECK(comm_.has_value(), "way %d of %d is not connected", way_, ways_);
  Op op = launch.last();
  op.kind = kind;
  op.tensor = tensor;
  op.site = site;
  after(*queue_, launch.queue().record(), Edge::tensor_part_made, bug_);
  last_ = comm_->exchange(*queue_, op, pieces_);
  pieces_.clear();
  after(launch.queue(), queue_->record(), Edge::tensor_part_arrived, bug_);
}

template <class T>
MatView<const T> TensorAxis::scatter_rows(Launcher& launch, OpKind kind, const char* tensor, const char* site,
                                          const Shared& shared, MatView<const T> all) {
  const Rows mine = owned(shared, way_);
  const Index n = mine.total() * all.cols;
  const auto slot = [&](int way) { return vec<T>(*slots_, way * n, n); };
  launch(
      tensor, site, memory_cost(2 * n, 0),
      [mine](Lane lane, Mat<const T> from, Vec<T> to) {
        const Index size = mine.size * from.cols;
        for (Index i = 0; i < mine.count; ++i)
          kernels::copy<T>(lane, {from.row(mine.first + i * mine.step), size}, {to.data + i * size, size});
      },
      all, slot(way_));
  for (int way = 0; way < ways_; ++way) {
    if (way == way_) continue;
    for (Index i = 0; i < mine.count; ++i) receive(way, slot(way).part(i * n / mine.count, n / mine.count));
    const Rows theirs = owned(shared, way);
    for (Index i = 0; i < theirs.count; ++i) send(way, at(all, theirs, i));
  }
  exchange(launch, kind, tensor, site);
  return {slots_.get(), 0, ways_, n, n};
}

template <class T>
void TensorAxis::gather_in_place(Launcher& launch, const char* tensor, const char* site, const Shared& shared,
                                 MatView<T> all) {
  const Rows mine = owned(shared, way_);
  for (int way = 0; way < ways_; ++way) {
    if (way == way_) continue;
    for (Index i = 0; i < mine.count; ++i) send(way, at(MatView<const T>(all), mine, i));
    const Rows theirs = owned(shared, way);
    for (Index i = 0; i < theirs.count; ++i) receive(way, at(all, theirs, i));
  }
  exchange(launch, OpKind::all_gather, tensor, site);
}

// ---- what a model asks for -----------------------------------------------------------------------------------------

template <class S>
void TensorAxis::sum_nodes(Launcher& launch, const char* tensor, const char* site, Index samples, VecView<const S> bias,
                           MatView<S> out) {
  sum<S>(launch, tensor, site, of_samples(samples), node(samples), bias, out);
}

template <class S>
void TensorAxis::sum_expert_nodes(Launcher& launch, const char* tensor, const char* site, Index rows, Index of_token,
                                  MatView<S> out) {
  sum<S>(launch, tensor, site, {rows, of_token}, expert_node(rows), {}, out);
}

template <class S>
void TensorAxis::sum(Launcher& launch, const char* tensor, const char* site, const Shared& shared,
                     MatView<const float> node, VecView<const S> bias, MatView<S> out) {
  if (launch.muted()) return;
  const Rows mine = owned(shared, way_);
  MatView<const float> nodes = scatter_rows<float>(launch, OpKind::reduce_scatter, tensor, site, shared, node);
  if (bug_.is(Bug::lost_partial_sum)) --nodes.rows;
  const MatView<S> sums = by_tokens(shared) ? out : out.row_range(mine.first, mine.size);
  const Cost cost = memory_cost((ways_ + 1) * sums.rows * sums.cols);
  if (bias.n == 0) {
    launch(
        tensor, site, cost,
        [](Lane lane, Mat<const float> parts, Mat<S> sum) { kernels::add_ways<S>(lane, parts, {}, sum); }, nodes, sums);
  } else {
    launch(
        tensor, site, cost,
        [](Lane lane, Mat<const float> parts, Vec<const S> added, Mat<S> sum) {
          kernels::add_ways<S>(lane, parts, added, sum);
        },
        nodes, bias, sums);
  }
  if (!by_tokens(shared)) gather_in_place(launch, tensor, site, shared, out);
}

template <class S>
void TensorAxis::select_rows(Launcher& launch, const char* tensor, const char* site, Index samples,
                             VecView<const std::int32_t> tokens, MatView<S> out) {
  if (launch.muted()) return;
  const Rows mine = owned(of_samples(samples), way_);
  const MatView<const S> parts =
      scatter_rows<S>(launch, OpKind::reduce_scatter, tensor, site, of_samples(samples), embedded<S>(samples));
  const MatView<S> selected = splits_tokens() ? out : out.row_range(mine.first, mine.size);
  launch(
      tensor, site, memory_cost(2 * selected.rows * selected.cols, 0),
      [mine, V = shape_.vocabulary, ways = ways_](Lane lane, Vec<const std::int32_t> ids, Mat<const S> rows, Mat<S> x) {
        const Index size = mine.size * x.cols;
        for (Index i = 0; i < mine.count; ++i)
          kernels::select_rows<S>(lane, {ids.data + mine.first + i * mine.step, mine.size}, V, ways,
                                  {rows.data + i * size, rows.rows, size, rows.stride},
                                  {x.row(i * mine.size), mine.size, x.cols, x.stride});
      },
      tokens, parts, selected);
  if (!splits_tokens()) gather_in_place(launch, tensor, site, of_samples(samples), out);
}

template <class S>
void TensorAxis::gather_rows(Launcher& launch, const char* tensor, const char* site, Index samples,
                             MatView<const S> rows, MatView<S> all) {
  if (launch.muted()) return;
  SEEKSIM_CHECK(splits_tokens(), "every way has all rows of '%s'", tensor);
  const Rows mine = owned(of_samples(samples), way_);
  for (Index i = 0; i < mine.count; ++i) {
    launch(
        tensor, site, memory_cost(2 * mine.size * rows.cols, 0),
        [](Lane lane, Vec<const S> from, Vec<S> to) { kernels::copy<S>(lane, from, to); },
        VecView<const S>{rows.buffer, rows.offset + i * mine.size * rows.cols, mine.size * rows.cols},
        at(all, mine, i));
  }
  gather_in_place(launch, tensor, site, of_samples(samples), all);
}

void TensorAxis::gather_values(Launcher& launch, const char* tensor, const char* site, Index n) {
  if (launch.muted()) return;
  for (int way = 0; way < ways_; ++way) {
    if (way == way_) continue;
    send(way, VecView<const float>(own_values(n)));
    receive(way, vec<float>(*values_, way * n, n));
  }
  exchange(launch, OpKind::all_gather, tensor, site);
}

template <class S>
void TensorAxis::cross_entropy(Launcher& launch, Index samples, MatView<S> logits, VecView<const std::int32_t> targets,
                               float scale, VecView<float> losses) {
  const char* const tensor = "logits";
  const Index R = samples * shape_.tokens;
  const VecView<float> maxima = vec<float>(*folded_, 0, R), sums = vec<float>(*folded_, R, R),
                       at_target = vec<float>(*folded_, 2 * R, R);
  const kernels::VocabularySlice slice{shape_.vocabulary,
                                       kernels::stretch_of_way(shape_.vocabulary, ways_, way_).first};
  launch(
      tensor, SEEKSIM_SITE, memory_cost(logits.rows * logits.cols),
      [slice](Lane lane, Mat<const S> x, Vec<const std::int32_t> ids, Vec<float> max, Vec<float> logit) {
        kernels::slice_maxima<S>(lane, x, slice, ids, max, logit);
      },
      reads(logits), targets, own_values(2 * R).part(0, R), own_values(2 * R).part(R, R));
  gather_values(launch, "maxima and target logits", SEEKSIM_SITE, 2 * R);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(ways_ * 2 * R),
      [V = shape_.vocabulary, ways = ways_](Lane lane, Vec<const std::int32_t> ids, Mat<const float> max_of,
                                            Mat<const float> logit_of, Vec<float> max, Vec<float> logit) {
        kernels::max_over_ways(lane, max_of, max);
        kernels::select_rows<float>(lane, ids, V, ways, logit_of, {logit.data, logit.n, 1, 1});
      },
      targets, values(2 * R, 0, R), values(2 * R, R, R), maxima, at_target);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(logits.rows * logits.cols, 5),
      [slice](Lane lane, Mat<const S> x, Vec<const float> max, Vec<float> sum) {
        kernels::slice_sums<S>(lane, x, slice, max, sum);
      },
      reads(logits), reads(maxima), own_values(R));
  gather_values(launch, "softmax sums", SEEKSIM_SITE, R);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(ways_ * R),
      [](Lane lane, Mat<const float> nodes, Vec<float> sum) {
        kernels::add_ways<float>(lane, nodes, {}, {sum.data, 1, sum.n, sum.n});
      },
      values(R, 0, R), sums);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(2 * logits.rows * logits.cols, 6),
      [slice, scale](Lane lane, Mat<S> x, Vec<const std::int32_t> ids, Vec<const float> max, Vec<const float> sum,
                     Vec<const float> logit, Vec<float> loss) {
        kernels::slice_cross_entropy<S>(lane, x, slice, ids, scale, max, sum, logit, loss, x);
      },
      logits, targets, reads(maxima), reads(sums), reads(at_target), losses);
}

#define SEEKSIM_TENSOR_AXIS_OF(S)                                                                                     \
  template void TensorAxis::sum_nodes<S>(Launcher&, const char*, const char*, Index, VecView<const S>, MatView<S>);   \
  template void TensorAxis::sum_expert_nodes<S>(Launcher&, const char*, const char*, Index, Index, MatView<S>);       \
  template void TensorAxis::select_rows<S>(Launcher&, const char*, const char*, Index, VecView<const std::int32_t>,   \
                                           MatView<S>);                                                               \
  template void TensorAxis::gather_rows<S>(Launcher&, const char*, const char*, Index, MatView<const S>, MatView<S>); \
  template void TensorAxis::cross_entropy<S>(Launcher&, Index, MatView<S>, VecView<const std::int32_t>, float,        \
                                             VecView<float>);
SEEKSIM_TENSOR_AXIS_OF(float)
SEEKSIM_TENSOR_AXIS_OF(kernels::bf16)
SEEKSIM_TENSOR_AXIS_OF(kernels::fp16)
#undef SEEKSIM_TENSOR_AXIS_OF

}  // namespace seeksim::runtime
