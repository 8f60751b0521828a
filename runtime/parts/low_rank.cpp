// Everything of a step is on one queue. What a group owes lies where its residual will be, until that takes its place.
#include "runtime/parts/low_rank.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/compression.h"
#include "kernels/gemm.h"
#include "kernels/norms.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::OwedGradient;
using kernels::Trans;
using kernels::Vec;

// ---- what travels how ----------------------------------------------------------------------------------------------

bool LowRankLayout::gains(const ParameterInfo& p, Index rank) {
  return p.shape.size() > 1 && 2 * rank * (p.rows() + p.cols()) < p.size;
}

LowRankLayout::LowRankLayout(const Parameters& parameters, const CompressionPlan& plan) {
  for (const ParameterInfo* p : parameters.trainable()) {
    const Index rank = std::min({Index(plan.rank), p->rows(), p->cols()});
    if (gains(*p, rank)) {
      matrices.push_back({p, rank, p_size, q_size});
      p_size += matrices.back().p_size();
      q_size += matrices.back().q_size();
      continue;
    }
    whole_size += p->size;
    if (!whole.empty() && whole.back().offset + whole.back().size == p->offset)
      whole.back().size += p->size;
    else
      whole.push_back({p->offset, p->size});
  }
}

LowRankFactors::LowRankFactors(Device& device, const Parameters& parameters, const TrainPlan& plan)
    : plan_(plan), layout_(parameters, plan.definition.compression) {
  const std::size_t bytes = std::size_t(std::max<Index>(layout_.q_size, 1)) * sizeof(float);
  for (int i = 0; i < 2; ++i) buffers_.push_back(device.allocate(bytes, MemoryTag::communication, "factors"));
}

// Streams of their own, in which a step's values follow those of the one before.
void LowRankFactors::draw(Launcher& launch, std::int64_t step, VecView<float> out) const {
  constexpr std::uint32_t kStreams = 0x50000000U;
  for (const LowRankMatrix& m : layout_.matrices) {
    const std::uint64_t first = std::uint64_t(step) * std::uint64_t((m.q_size() + 3) / 4 * 4);
    launch(
        "factors", SEEKSIM_SITE, memory_cost(m.q_size(), 20),
        [stream = kStreams + m.parameter->number, first, seed = plan_.definition.training_seed](
            Lane lane, Vec<float> values) { kernels::fill_normal(lane, values, stream, first, 1.0F, seed); },
        out.part(m.q_at, m.q_size()));
  }
}

// ---- a step --------------------------------------------------------------------------------------------------------

LowRankReduction::LowRankReduction(Rank& rank, const Parameters& parameters, const TrainPlan& plan,
                                   Residuals& residuals, LowRankFactors& factors)
    : rank_(rank),
      parameters_(parameters),
      plan_(plan),
      residuals_(residuals),
      factors_(factors),
      first_tree_(rank.device, factors.layout().first_size()),
      second_tree_(rank.device, factors.layout().q_size) {}

void LowRankReduction::connect(Communicator& comm) {
  comm_ = &comm;
  const auto make = [&](Index bytes, const char* name) {
    return rank_.device.allocate(std::size_t(std::max<Index>(bytes, 8)), MemoryTag::communication, name);
  };
  const LowRankLayout& layout = factors_.layout();
  first_ = make(layout.first_size() * Index(sizeof(float)), "sums of factors");
  begin_ = make(layout.q_size * Index(sizeof(float)), "factors");
  counts_ = make(residuals_.groups().size() * Index(sizeof(std::int64_t)), "unconserved elements");
}

std::int64_t LowRankReduction::bytes() const {
  const LowRankLayout& layout = factors_.layout();
  return residuals_.groups().size() * Index(sizeof(float)) * (layout.whole_size + layout.p_size + layout.q_size);
}

VecView<const std::int64_t> LowRankReduction::unconserved() const {
  return vec<const std::int64_t>(*counts_, 0, residuals_.groups().size());
}

MatView<float> LowRankReduction::factor(const LowRankMatrix& m, const VecView<float>& factors, Factor which) const {
  const Index at = which == Factor::p ? m.p_at : m.q_at;
  const Index cols = which == Factor::p ? m.parameter->rows() : m.parameter->cols();
  return {factors.buffer, factors.offset + at, m.rank, cols, cols};
}

MatView<float> LowRankReduction::owed(Index i, const ParameterInfo& p) const {
  const VecView<float> all = residuals_.next(i);
  return {all.buffer, all.offset + p.offset, p.rows(), p.cols(), p.cols()};
}

VecView<const float> LowRankReduction::head_use(const VecView<const float>& part) const {
  const Index n = parameters_.shares_head() ? parameters_.wte().size : 0;
  return part.part(n > 0 ? parameters_.head_gradient_offset() : 0, n);
}

VecView<float> LowRankReduction::p_factors() const {
  const LowRankLayout& layout = factors_.layout();
  return {first_.get(), layout.whole_size + 1, layout.p_size};
}

Op LowRankReduction::op(std::int64_t step, const char* tensor) const {
  Op op;
  op.kind = OpKind::all_reduce;
  op.phase = Phase::grad_reduce;
  op.step = step;
  op.tensor = tensor;
  op.site = SEEKSIM_SITE;
  return op;
}

Op LowRankReduction::sum(Queue& queue, std::int64_t step, const char* tensor, GradientTree& tree, VecView<float> out) {
  const TreeOwnership ownership{plan_.definition.compression.groups, comm_->size()};
  return comm_->all_reduce(queue, op(step, tensor), ownership, tree.parts(), 1.0F, out);
}

Op LowRankReduction::reduce(std::int64_t step, Parts parts, Scales scales, VecView<float> sums, VecView<float> loss) {
  SEEKSIM_CHECK_EQ(parts.size(), residuals_.groups().size());
  const LowRankLayout& layout = factors_.layout();
  const Index groups = plan_.definition.compression.groups, first = residuals_.groups().begin;
  Queue& queue = rank_.device.communication_queue();
  Launcher launch(queue, rank_.id);
  launch.at(comm_->epoch(), step);
  launch.phase(Phase::grad_reduce);
  begin_with(launch, step);
  first_tree_.begin(groups);
  for (Index i = 0; i < Index(parts.size()); ++i) {
    owe(launch, i, parts[std::size_t(i)], scales.before);
    fill_first(launch, i, parts[std::size_t(i)], first_tree_.open({0, first + i}));
    first_tree_.close(launch, {0, first + i});
  }
  Op done = sum(queue, step, "factors P", first_tree_, {first_.get(), 0, layout.first_size()});
  orthogonalise(launch, p_factors(), Factor::p);
  second_tree_.begin(groups);
  for (Index i = 0; i < Index(parts.size()); ++i) {
    fill_second(launch, i, second_tree_.open({0, first + i}));
    second_tree_.close(launch, {0, first + i});
  }
  if (layout.q_size > 0) done = sum(queue, step, "factors Q", second_tree_, factors_.next());
  take_apart(launch, scales, sums, loss);
  for (Index i = 0; i < Index(parts.size()); ++i) keep(launch, i, parts[std::size_t(i)], scales.before, sums);
  launch(
      "gradients", SEEKSIM_SITE, memory_cost(2 * sums.n),
      [after = scales.after](Lane lane, Vec<float> values) { kernels::scale(lane, values, after); }, sums);
  return done;
}

// The kept factors, or others in each step; orthogonal, as products with them are taken.
void LowRankReduction::begin_with(Launcher& launch, std::int64_t step) {
  const VecView<float> begin{begin_.get(), 0, factors_.layout().q_size};
  if (begin.n == 0) return;
  if (plan_.definition.compression.warm_start)
    copy_values(launch, "factors", SEEKSIM_SITE, AnyVec(factors_.kept()), AnyVec(begin));
  else
    factors_.draw(launch, step, begin);
  orthogonalise(launch, begin, Factor::q);
}

void LowRankReduction::owe(Launcher& launch, Index i, const VecView<const float>& part, float before) {
  const Index n = parameters_.trainable_size();
  launch(
      "owed gradients", SEEKSIM_SITE, memory_cost(3 * n, 2),
      [before](Lane lane, Vec<const float> values, Vec<const float> second, Vec<const float> kept, Vec<float> out) {
        kernels::owe(lane, {values, second, before, kept, {}, 0, 1}, out);
      },
      part.part(0, n), head_use(part), reads(residuals_.kept(i)), residuals_.next(i));
}

// What travels whole, which leaves no residual, the loss, and each matrix times Q.
void LowRankReduction::fill_first(Launcher& launch, Index i, const VecView<const float>& part, VecView<float> out) {
  const LowRankLayout& layout = factors_.layout();
  Index at = 0;
  for (const ShardInfo& run : layout.whole) {
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(2 * run.size),
        [](Lane lane, Vec<float> from, Vec<float> to) {
          kernels::copy<float>(lane, {from.data, from.n}, to);
          kernels::fill_bits(lane, from, 0);
        },
        residuals_.next(i).part(run.offset, run.size), out.part(at, run.size));
    at += run.size;
  }
  launch(
      "loss", SEEKSIM_SITE, memory_cost(2, 0),
      [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy(lane, x, y); },
      part.part(parameters_.loss_offset(), 1), out.part(at, 1));
  const VecView<float> begin{begin_.get(), 0, layout.q_size}, factors = out.part(at + 1, layout.p_size);
  for (const LowRankMatrix& m : layout.matrices) {
    launch(
        m.parameter->name, SEEKSIM_SITE, gemm_cost(m.rank, m.parameter->rows(), m.parameter->cols()),
        [](Lane lane, Mat<const float> q, Mat<const float> matrix, Mat<float> p) {
          kernels::gemm<float>(kernels::by_contract(lane), Trans::no, Trans::yes, q, matrix, p);
        },
        reads(factor(m, begin, Factor::q)), reads(owed(i, *m.parameter)), factor(m, factors, Factor::p));
  }
}

void LowRankReduction::fill_second(Launcher& launch, Index i, VecView<float> out) {
  for (const LowRankMatrix& m : factors_.layout().matrices) {
    launch(
        m.parameter->name, SEEKSIM_SITE, gemm_cost(m.rank, m.parameter->cols(), m.parameter->rows()),
        [](Lane lane, Mat<const float> p, Mat<const float> matrix, Mat<float> q) {
          kernels::gemm<float>(kernels::by_contract(lane), Trans::no, Trans::no, p, matrix, q);
        },
        reads(factor(m, p_factors(), Factor::p)), reads(owed(i, *m.parameter)), factor(m, out, Factor::q));
  }
}

void LowRankReduction::orthogonalise(Launcher& launch, VecView<float> factors, Factor which) {
  if (which == Factor::p && plan_.bug.is(Bug::factors_not_orthogonal)) return;
  for (const LowRankMatrix& m : factors_.layout().matrices) {
    const MatView<float> rows = factor(m, factors, which);
    launch(
        m.parameter->name, SEEKSIM_SITE, gemm_cost(m.rank, m.rank, rows.cols),
        [](Lane lane, Mat<float> x) { kernels::orthogonalise(lane, x); }, rows);
  }
}

void LowRankReduction::take_apart(Launcher& launch, Scales scales, VecView<float> sums, VecView<float> loss) {
  const LowRankLayout& layout = factors_.layout();
  Index at = 0;
  for (const ShardInfo& run : layout.whole) {
    copy_values(launch, "gradients", SEEKSIM_SITE, AnyVec(vec<float>(*first_, at, run.size)),
                AnyVec(sums.part(run.offset, run.size)));
    at += run.size;
  }
  launch(
      "loss", SEEKSIM_SITE, memory_cost(2),
      [factor = scales.at_loss](Lane lane, Vec<const float> x, Vec<float> y) {
        kernels::copy(lane, x, y);
        kernels::scale(lane, y, factor);
      },
      vec<const float>(*first_, at, 1), loss);
  for (const LowRankMatrix& m : layout.matrices) {
    const ParameterInfo& p = *m.parameter;
    const MatView<float> out{sums.buffer, sums.offset + p.offset, p.rows(), p.cols(), p.cols()};
    launch(
        p.name, SEEKSIM_SITE, gemm_cost(p.rows(), p.cols(), m.rank),
        [](Lane lane, Mat<const float> left, Mat<const float> right, Mat<float> product) {
          kernels::gemm<float>(kernels::by_contract(lane), Trans::yes, Trans::no, left, right, product);
        },
        reads(factor(m, p_factors(), Factor::p)), reads(factor(m, factors_.next(), Factor::q)), out);
  }
}

// Each group counts the same share of what all get as sent by it.
void LowRankReduction::keep(Launcher& launch, Index i, const VecView<const float>& part, float before,
                            VecView<float> sums) {
  const Index n = parameters_.trainable_size();
  const int groups = plan_.definition.compression.groups;
  const auto share = static_cast<float>(1.0 / groups);
  const float taken = plan_.bug.is(Bug::residual_of_whole_sum) ? 1.0F : share;
  const VecView<float> rest = residuals_.next(i);
  for (const LowRankMatrix& m : factors_.layout().matrices) {
    const ParameterInfo& p = *m.parameter;
    launch(
        "residuals", SEEKSIM_SITE, memory_cost(3 * p.size),
        [taken](Lane lane, Vec<const float> sum, Vec<float> left) { kernels::take_share(lane, sum, taken, left); },
        reads(sums.part(p.offset, p.size)), rest.part(p.offset, p.size));
  }
  if (plan_.bug.is(Bug::residual_dropped)) {
    launch(
        "residuals", SEEKSIM_SITE, memory_cost(n, 0),
        [](Lane lane, Vec<float> left) { kernels::fill_bits(lane, left, 0); }, rest);
  }
  const VecView<std::int64_t> count = vec<std::int64_t>(*counts_, i, 1);
  launch(
      "unconserved elements", SEEKSIM_SITE, {}, [](Lane lane, Vec<std::int64_t> c) { kernels::clear(lane, c); }, count);
  for (const LowRankMatrix& m : factors_.layout().matrices) {
    const ParameterInfo& p = *m.parameter;
    const VecView<const float> use = head_use(part), kept = reads(residuals_.kept(i));
    const bool tied = p.offset == 0 && use.n > 0;
    launch(
        "unconserved elements", SEEKSIM_SITE, memory_cost(4 * p.size, 2),
        [before, share](Lane lane, Vec<const float> values, Vec<const float> second, Vec<const float> old,
                        Vec<const float> sum, Vec<const float> left, Vec<std::int64_t> c) {
          kernels::count_share_unconserved(lane, {values, second, before, old, {}, 0, 1}, sum, share, left, c);
        },
        part.part(p.offset, p.size), tied ? use : VecView<const float>{},
        kept.n > 0 ? kept.part(p.offset, p.size) : kept, reads(sums.part(p.offset, p.size)),
        reads(rest.part(p.offset, p.size)), count);
  }
}

}  // namespace seeksim::runtime
