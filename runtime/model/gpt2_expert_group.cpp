// Layers of experts that are divided among the ranks of a group (comm/expert_group.h). A rank packs the rows of its
// tokens for the ranks of their experts; there each row that arrives is a slot of its own, with one expert; what they
// make of it comes back to the slot that it came from. Sums over slots, the router and its losses stay where the tokens
// are. An expert's gradients are made where it is, block by block of the group's samples, each of them a node of the
// step's tree. P places of a sample at a rank; N rows packed, M arrived.
#include "kernels/experts.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"

namespace seeksim::runtime {

using kernels::RowOf;

namespace {

MatView<float> column(VecView<float> values) { return {values.buffer, values.offset, values.n, 1, 1}; }

VecView<std::int32_t> integers(const BufferPtr& buffer, Index first, Index n) { return {buffer.get(), first, n}; }

}  // namespace

template <class S>
typename Gpt2<S>::ArrivalViews Gpt2<S>::arrivals(int l) const {
  const bool of_last = bug_.is(Bug::arrivals_of_last_micro_batch);
  const ArrivalStore& kept = of_last ? work_->experts.arrivals : store(l).arrivals;
  const Index first = (of_last ? l - piece_.first : inner_slot(l)) * group_->rows_max();
  return {.sources = integers(kept.sources, first, group_->packed()),
          .experts = integers(kept.experts, first, group_->arrived()),
          .rows = mat<S>(*kept.rows, first * s_.C, group_->arrived(), s_.C)};
}

template <class S>
void Gpt2<S>::pack(const Pass& p, const char* site, VecView<const std::int32_t> sources, MatView<const S> x, RowOf of) {
  p.launch(
      "experts", site, memory_cost(2 * packed().rows * x.cols, 0),
      [k = int(s_.k), of](Lane lane, Vec<const std::int32_t> from, Mat<const S> rows, Mat<S> out) {
        kernels::expert_pack<S>(lane, from, k, rows, of, out);
      },
      sources, x, packed());
}

template <class S>
void Gpt2<S>::unpack(const Pass& p, const char* site, VecView<const std::int32_t> sources, Index samples) {
  p.launch(
      "experts", site, memory_cost(2 * packed().rows * s_.C, 0),
      [](Lane lane, Vec<const std::int32_t> from, Mat<const S> rows, Mat<S> out) {
        kernels::expert_unpack<S>(lane, from, rows, out);
      },
      sources, reads(packed()), slot_rows(samples));
}

// The rows of the tokens to their experts, and through the experts' first product.
template <class S>
void Gpt2<S>::group_up(const Pass& p, int l, MatView<const S> x) {
  const Index n = p.batch.samples;
  const ArrivalViews to = arrivals(l);
  const VecView<std::int32_t> packed_experts = integers(work_->group.packed_experts, 0, group_->packed());
  p.launch(
      "experts", SEEKSIM_SITE, memory_cost(n * s_.T * s_.k * group_->ranks() + 2 * to.sources.n),
      [k = int(s_.k), T = s_.T, own = group_->own_experts(), places = group_->places()](
          Lane lane, Vec<const std::int32_t> slots, Vec<std::int32_t> sources, Vec<std::int32_t> experts) {
        kernels::expert_places(lane, slots, k, T, own, places, sources, experts);
      },
      reads(routes(n, l).slots), to.sources, packed_experts);
  pack(p, SEEKSIM_SITE, reads(to.sources), x, RowOf::token);  // (N, C)
  const ExpertGroup::Rows rows[] = {{AnyVec(packed_experts), AnyVec(to.experts)}, {flat(packed()), flat(to.rows)}};
  group_->dispatch(p.launch, "rows to experts", SEEKSIM_SITE, rows);

  const ForTheGroup here(p.launch, group_);
  p.launch(
      "experts", SEEKSIM_SITE, memory_cost(2 * to.experts.n),
      [own = group_->own_experts()](Lane lane, Vec<std::int32_t> experts) {
        kernels::expert_accept(lane, own, experts);
      },
      to.experts);
  expert_product(p, SEEKSIM_SITE, parameters_.layer(l, LayerPart::c_fc_weight), reads(to.experts), to.rows, RowOf::slot,
                 Trans::yes, 0, inside(store(l).fc, n, way_.U, inner_slot(l)));  // (M, U)
}

// Through their second product, and back into the rows of the slots.
template <class S>
void Gpt2<S>::group_down(const Pass& p, int l) {
  const Index n = p.batch.samples;
  const ArrivalViews to = arrivals(l);
  const MatView<S> made = inside(work_->experts.rows, n, s_.C);  // (M, C)
  {
    const ForTheGroup here(p.launch, group_);
    row_expert_product(p, SEEKSIM_SITE, parameters_.layer(l, LayerPart::mlp_proj_weight), reads(to.experts),
                       inside(store(l).gelu, n, way_.F, inner_slot(l)), s_.mlp_segment(), 0, made);
  }
  const ExpertGroup::Rows rows[] = {{flat(packed()), flat(made)}};
  group_->give_back(p.launch, "rows from experts", SEEKSIM_SITE, rows);
  unpack(p, SEEKSIM_SITE, reads(to.sources), n);
}

// The gradient of a token's sum of experts, and its gates, to where they are: in the rows of the experts' work.
template <class S>
void Gpt2<S>::send_gradients(const Pass& p, int l, MatView<const S> dbranch) {
  const Index n = p.batch.samples;
  const ArrivalViews to = arrivals(l);
  pack(p, SEEKSIM_SITE, reads(to.sources), dbranch, RowOf::token);  // (N, C)
  const VecView<float> gates = vec<float>(*work_->group.packed_values, 0, group_->packed());
  p.launch(
      "gates", SEEKSIM_SITE, memory_cost(2 * gates.n, 0),
      [k = int(s_.k)](Lane lane, Vec<const std::int32_t> from, Mat<const float> all, Mat<float> out) {
        kernels::expert_pack<float>(lane, from, k, all, RowOf::slot, out);
      },
      reads(to.sources), reads(column(routes(n, l).gates)), column(gates));
  const ExpertGroup::Rows rows[] = {{flat(packed()), flat(dslots(n, l))},
                                    {AnyVec(gates), AnyVec(vec<float>(*work_->group.gates, 0, group_->arrived()))}};
  group_->dispatch(p.launch, "gradients to experts", SEEKSIM_SITE, rows);
}

// The gradients of gates that came back, to their slots.
template <class S>
void Gpt2<S>::gates_back(const Pass& p, VecView<const std::int32_t> sources, Index samples) {
  p.launch(
      "d gates", SEEKSIM_SITE, memory_cost(2 * sources.n, 0),
      [](Lane lane, Vec<const std::int32_t> from, Mat<const float> rows, Mat<float> out) {
        kernels::expert_unpack<float>(lane, from, rows, out);
      },
      sources, reads(column(vec<float>(*work_->group.packed_values, 0, sources.n))),
      column(vec<float>(*work_->experts.dgates, 0, samples * s_.T * s_.k)));
}

template <class S>
void Gpt2<S>::arrived_grad(const Pass& p, const ParameterInfo& w, VecView<const std::int32_t> experts,
                           MatView<const S> a, MatView<const S> b) {
  if (w.frozen) return;
  const ForTheGroup here(p.launch, group_);
  const Index P = group_->places();
  for (Index block = 0; block < Index(group_->blocks().size()); ++block) {
    const SampleRange& samples = group_->blocks()[std::size_t(block)];
    const Index first = samples.begin * P, rows = samples.size() * P;
    const VecView<float> dw = p.sink->open(block, w.offset, w.size);
    p.launch(
        w.name, SEEKSIM_SITE, gemm_cost(a.cols, b.cols, rows),
        [P](Lane lane, Vec<const std::int32_t> chosen, Mat<const S> left, Mat<const S> right, Mat<float> sum) {
          kernels::expert_weight_grad<S>(lane, chosen, 1, P, left, right, RowOf::slot, sum);
        },
        experts.part(first, rows), a.row_range(first, rows), b.row_range(first, rows),
        MatView<float>{dw.buffer, dw.offset, w.rows(), w.cols(), w.cols()});
    if (tensor_ != nullptr && bug_.is(Bug::slabs_to_next_expert, p.launch.last().rank)) shift_experts(p, w, dw);
  }
  p.sink->close(w.offset, w.size);
}

// Afterwards gradients of the gates and of what went into each slot are back here.
template <class S>
void Gpt2<S>::group_backward(const Pass& p, int l, MatView<const S> dbranch) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const ArrivalViews to = arrivals(l);
  const VecView<const std::int32_t> experts = reads(to.experts);
  const MatView<S> active = inside(store(l).gelu, n, way_.F, inner_slot(l)),
                   dactive = inside(work_->dgelu, n, way_.F);     // (M, F)
  const MatView<S> rows = dslots(n, l), dup = dfc(n, l);          // (M, C), (M, U)
  const MatView<S> drows = inside(work_->experts.rows, n, s_.C);  // (M, C)
  const VecView<float> dgates = vec<float>(*work_->group.dgates, 0, group_->arrived());
  send_gradients(p, l, dbranch);
  {
    const ForTheGroup here(p.launch, group_);
    const ParameterInfo &down = w(LayerPart::mlp_proj_weight), &up = w(LayerPart::c_fc_weight);
    expert_product(p, SEEKSIM_SITE, down, experts, rows, RowOf::slot, Trans::yes, 0, dactive);
    p.launch(
        "experts", SEEKSIM_SITE, memory_cost(4 * dactive.rows * dactive.cols + 2 * rows.rows * rows.cols),
        [segment = gate_segment()](Lane lane, Vec<const std::int32_t> chosen, Vec<const float> gates, Mat<const S> x,
                                   Mat<S> dx, Vec<float> of_gates, Mat<S> dy) {
          kernels::expert_combine_backward<S>(lane, chosen, gates, dy, x, dx, of_gates, dy, segment);
        },
        experts, vec<const float>(*work_->group.gates, 0, group_->arrived()), reads(active), dactive,
        gate_nodes(dgates), rows);
    sum_gate_nodes(p, dgates);
    if (p.sink != nullptr) experts_down_grad(p, l);
    activate_backward(p, dactive, inside(store(l).fc, n, way_.U, inner_slot(l)), dup, s_.mlp_segment());
    if (p.sink != nullptr) experts_up_grad(p, l, {});
    row_expert_product(p, SEEKSIM_SITE, up, experts, dup, s_.up_segment(), 0, drows);
  }
  const ExpertGroup::Rows back[] = {
      {flat(packed()), flat(drows)},
      {AnyVec(vec<float>(*work_->group.packed_values, 0, group_->packed())), AnyVec(dgates)}};
  group_->give_back(p.launch, "gradients from experts", SEEKSIM_SITE, back);
  unpack(p, SEEKSIM_SITE, reads(to.sources), n);
  gates_back(p, reads(to.sources), n);
}

#define SEEKSIM_INSTANTIATE(S)                                         \
  template void Gpt2<S>::group_up(const Pass&, int, MatView<const S>); \
  template void Gpt2<S>::group_down(const Pass&, int);                 \
  template void Gpt2<S>::group_backward(const Pass&, int, MatView<const S>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
