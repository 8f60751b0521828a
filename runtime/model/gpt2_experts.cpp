// Layers of experts, in place of the mlp. Shapes stand beside tensors: E experts, k slots a token (kernels/experts.h).
// Where a token's rows go is known to the device alone; nothing that the host enqueues depends on it.
#include "kernels/experts.h"

#include <algorithm>

#include "kernels/host_access.h"
#include "kernels/pointwise.h"
#include "kernels/slabs.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::RowOf;

// Of the contract: counted by sample, or by aligned groups of them, of which every micro-batch has whole ones.
template <class S>
kernels::Router Gpt2<S>::router_of(Index samples) const {
  const bool of_all = bug_.is(Bug::experts_count_micro_batch) && samples > 0;
  const Index tokens = (of_all ? samples : experts_.plan.samples) * s_.T;
  const bool of_one = bug_.is(Bug::capacity_of_one_sample);
  const bool undivided = experts_.plan.sigmoid && bug_.is(Bug::sigmoid_gates_undivided);
  const auto once = static_cast<float>(experts_.plan.scale),
             scale = bug_.is(Bug::gates_scaled_twice) ? once * once : once;
  return {.tokens = tokens,
          .experts = int(s_.E),
          .choices = int(s_.k),
          .capacity = experts_.plan.capacity(of_one ? s_.T : tokens),
          .normalized = experts_.plan.normalized && !undivided,
          .balance = static_cast<float>(experts_.plan.balance * double(s_.E)),
          .z = static_cast<float>(experts_.plan.z),
          .sigmoid = experts_.plan.sigmoid,
          .scale = scale};
}

template <class S>
RouteViews Gpt2<S>::routes(Index samples, int l) const {
  const RouteStore& kept = store(l).routes;
  const Index first = inner_slot(l) * samples_max_, row = first * s_.T, rows = samples * s_.T;
  return {.probs = mat<float>(*kept.probs, row * s_.E, rows, s_.E),
          .slots = {kept.chosen.get(), row * s_.k, rows * s_.k},
          .gates = vec<float>(*kept.gates, row * s_.k, rows * s_.k),
          .shares = mat<float>(*kept.shares, first * s_.E, rows / router_of(samples).tokens, s_.E),
          .spreads = vec<float>(*kept.spreads, row, rows)};
}

// Logits of the router are fp32 in every precision: a rounding would decide where a token goes.
template <class S>
void Gpt2<S>::route(const Pass& p, int l, MatView<const S> x) {
  const Index n = p.batch.samples, rows = n * s_.T;
  const ParameterInfo& w = parameters_.layer(l, LayerPart::router_weight);
  const MatView<float> logits = mat<float>(*work_->experts.logits, 0, rows, s_.E);  // (R, E)
  product<S, float>(p.launch, w.name, SEEKSIM_SITE, Trans::no, Trans::yes, x, weight(p, w), logits, 0);
  const RouteViews to = routes(n, l);
  // What is computed again must not be written while it may still be on its way.
  const bool again = experts_.travel && !piece_.heads && p.launch.last().phase == Phase::recompute;
  const VecView<float> of_tokens = again ? vec<float>(*work_->experts.losses, 0, rows)
                                         : vec<float>(*experts_.losses, (l - experts_.first) * rows, rows);
  const Op& op = p.launch.last();
  VecView<std::int32_t> counts;  // of choices, where they are asked for
  if (p.batch.choices != nullptr && op.phase == Phase::forward)
    counts = {p.batch.choices, (op.micro_batch * s_.L + l) * 2 * s_.E, 2 * s_.E};
  p.launch(
      "router", SEEKSIM_SITE, memory_cost(2 * rows * s_.E, 10),
      [router = router_of(n)](Lane lane, Mat<const float> in, Mat<float> probs, Vec<std::int32_t> slots,
                              Vec<float> gates, Mat<float> shares, Vec<float> spreads, Vec<float> losses,
                              Vec<std::int32_t> choices) {
        kernels::route(lane, router, in, {probs, slots, gates, shares, spreads, losses});
        if (choices.n > 0) kernels::count_choices(lane, slots, choices);
      },
      reads(logits), to.probs, to.slots, to.gates, to.shares, to.spreads, of_tokens, counts);
}

template <class S>
VecView<float> Gpt2<S>::router_losses(Index samples, int end) const {
  if (!experts_.travel) return {};
  return vec<float>(*experts_.losses, 0, std::max(0, end - s_.first_routed) * samples * s_.T);
}

template <class S>
void Gpt2<S>::expert_product(const Pass& p, const char* site, const ParameterInfo& w, VecView<const std::int32_t> slots,
                             MatView<const S> x, RowOf of, Trans tw, Index segment, MatView<S> y) {
  p.launch(
      w.name, site, gemm_cost(y.rows, y.cols, x.cols),
      [k = int(s_.k), of, tw, segment](Lane lane, Vec<const std::int32_t> chosen, Mat<const S> rows, Mat<const S> all,
                                       Mat<S> out) {
        kernels::expert_product<S>(lane, chosen, k, rows, of, all, tw, segment, out);
      },
      slots, x, weight(p, w), y);
}

template <class S>
void Gpt2<S>::row_expert_product(const Pass& p, const char* site, const ParameterInfo& w,
                                 VecView<const std::int32_t> slots, MatView<const S> x, Index segment, Index of_token,
                                 MatView<S> y, VecView<const float> gates) {
  if (tensor_ == nullptr) return expert_product(p, site, w, slots, x, RowOf::slot, Trans::no, segment, y);
  const MatView<float> node = tensor_->expert_node(x.rows);
  p.launch(
      w.name, site, gemm_cost(node.rows, node.cols, x.cols),
      [k = int(s_.k), segment](Lane lane, Vec<const std::int32_t> chosen, Mat<const S> rows, Mat<const S> all,
                               Mat<float> out) {
        kernels::expert_product<S, float>(lane, chosen, k, rows, RowOf::slot, all, Trans::no, segment, out);
      },
      slots, x, weight(p, w), node);
  if (gates.n > 0 && bug_.is(Bug::gates_before_ways_sum, p.launch.last().rank))
    p.launch(
        "gates", site, memory_cost(2 * node.rows * node.cols),
        [](Lane lane, Vec<const float> of_slots, Mat<float> rows) {
          for (Index s = 0; s < rows.rows; ++s)
            kernels::change_on_host(lane, Vec<float>{rows.row(s), rows.cols}, [gate = of_slots[s]](Vec<float> row) {
              for (Index c = 0; c < row.n; ++c) row.data[c] *= gate;
            });
        },
        gates, node);
  tensor_->sum_expert_nodes<S>(p.launch, w.name, site, x.rows, of_token, y);
}

template <class S>
OwnSlots Gpt2<S>::own_slots(Index samples) const {
  const Index all = samples * s_.T * s_.k;
  if (!splits_tokens()) return {.count = 1, .first = 0, .size = all, .step = all};
  return {.count = samples,
          .first = way_.first_token * s_.k,
          .size = way_.tokens * s_.k,
          .step = s_.T * s_.k,
          .apart = group_ == nullptr};
}

// dgates = the sum over ways of what each has of its own slabs.
template <class S>
void Gpt2<S>::sum_gate_nodes(const Pass& p, VecView<float> dgates) {
  if (tensor_ == nullptr || p.launch.muted()) return;
  tensor_->gather_values(p.launch, "d gates", SEEKSIM_SITE, dgates.n);
  MatView<const float> nodes = tensor_->values(dgates.n, 0, dgates.n);
  if (bug_.is(Bug::gate_gradient_of_own_slabs)) nodes = nodes.row_range(tensor_->way(), 1);
  p.launch(
      "d gates", SEEKSIM_SITE, memory_cost(tensor_->ways() * dgates.n),
      [](Lane lane, Mat<const float> of_ways, Vec<float> sums) {
        kernels::add_ways<float>(lane, of_ways, {}, {sums.data, 1, sums.n, sums.n});
      },
      nodes, dgates);
}

template <class S>
void Gpt2<S>::experts_up(const Pass& p, int l, MatView<const S> x) {
  if (group_ != nullptr) return group_up(p, l, x);
  const Index n = p.batch.samples;
  expert_product(p, SEEKSIM_SITE, parameters_.layer(l, LayerPart::c_fc_weight), reads(routes(n, l).slots), x,
                 RowOf::token, Trans::yes, 0, inside(store(l).fc, n, way_.U, inner_slot(l)));  // (R k, U)
}

template <class S>
void Gpt2<S>::experts_down(const Pass& p, int l, MatView<S> branch) {
  const Index n = p.batch.samples;
  const RouteViews to = routes(n, l);
  const MatView<S> rows = group_ != nullptr ? slot_rows(n) : inside(work_->experts.rows, n, s_.C);  // (R k, C)
  if (group_ != nullptr)
    group_down(p, l);
  else
    row_expert_product(p, SEEKSIM_SITE, parameters_.layer(l, LayerPart::mlp_proj_weight), reads(to.slots),
                       inside(store(l).gelu, n, way_.F, inner_slot(l)), s_.mlp_segment(), s_.k, own_rows(rows, n),
                       reads(to.gates));
  p.launch(
      "experts", SEEKSIM_SITE, memory_cost(rows.rows * rows.cols + branch.rows * branch.cols),
      [own = own_slots(n)](Lane lane, Vec<const std::int32_t> slots, Vec<const float> gates, Mat<const S> y,
                           Mat<S> out) {
        const Index tokens = out.rows / own.count;
        for (Index i = 0; i < own.count; ++i)
          kernels::expert_combine<S>(lane, {slots.data + own.slot(i), own.size}, {gates.data + own.slot(i), own.size},
                                     {y.row(own.row(i)), own.size, y.cols, y.stride},
                                     {out.row(i * tokens), tokens, out.cols, out.stride});
      },
      reads(to.slots), reads(to.gates), reads(own_rows(rows, n)), branch);
}

// Layer by layer from the model's first one on, whatever stage they are on.
template <class S>
void Gpt2<S>::add_router_losses(Launcher& launch, Index samples) {
  const Index rows = samples * s_.T;
  const int first = bug_.is(Bug::router_losses_of_last_stage) ? first_routed() - experts_.first : 0;
  const MatView<const float> more{experts_.losses.get(), first * rows, std::max(0, piece_.end - experts_.first - first),
                                  rows, rows};  // (layers, R)
  launch(
      "router losses", SEEKSIM_SITE, memory_cost((more.rows + 2) * rows),
      [](Lane lane, Mat<const float> of_layers, Vec<float> losses) {
        kernels::add_token_losses(lane, of_layers, losses);
      },
      more, row_values(head_.token_losses, samples));
}

template <class S>
void Gpt2<S>::expert_grad(const Pass& p, const ParameterInfo& w, VecView<const std::int32_t> slots, MatView<const S> a,
                          MatView<const S> b, RowOf b_of) {
  if (w.frozen) return;
  const Index T = s_.T, k = s_.k, of_token = b_of == RowOf::token ? 1 : k;
  for (Index block = 0; block < Index(p.blocks.size()); ++block) {
    const Index first = p.blocks[block].first * T, rows = p.blocks[block].count * T;
    const VecView<float> dw = p.sink->open(block, w.offset, w.size);
    p.launch(
        w.name, SEEKSIM_SITE, gemm_cost(a.cols, b.cols, rows * k),
        [T, k, b_of](Lane lane, Vec<const std::int32_t> chosen, Mat<const S> left, Mat<const S> right, Mat<float> sum) {
          kernels::expert_weight_grad<S>(lane, chosen, int(k), T, left, right, b_of, sum);
        },
        slots.part(first * k, rows * k), a.row_range(first * k, rows * k),
        b.row_range(first * of_token, rows * of_token),
        MatView<float>{dw.buffer, dw.offset, w.rows(), w.cols(), w.cols()});
    if (tensor_ != nullptr && bug_.is(Bug::slabs_to_next_expert, p.launch.last().rank)) shift_experts(p, w, dw);
  }
  p.sink->close(w.offset, w.size);
}

// Of the gradients of both losses, which begin on the stage of their layer.
template <class S>
float Gpt2<S>::router_loss_scale(const Pass& p) const {
  if (bug_.is(Bug::router_losses_left_behind) && !piece_.heads) return 0;
  return p.batch.loss_scale / (bug_.is(Bug::router_losses_by_stages) ? float(stages_) : 1.0f);
}

// A planted bug: each expert gets the gradient of the one before.
template <class S>
void Gpt2<S>::shift_experts(const Pass& p, const ParameterInfo& w, VecView<float> dw) {
  p.launch(
      w.name, SEEKSIM_SITE, memory_cost(2 * dw.n),
      [each = w.of_expert](Lane lane, Vec<float> all) {
        kernels::change_on_host(lane, all, [each](Vec<float> values) {
          std::rotate(values.data, values.data + values.n - each, values.data + values.n);
        });
      },
      dw);
}

// From the gradient of the gates to that of the logits, and from both losses.
template <class S>
void Gpt2<S>::route_backward(const Pass& p, int l) {
  const Index n = p.batch.samples, rows = n * s_.T;
  const RouteViews to = routes(n, l);
  const VecView<float> dgates = vec<float>(*work_->experts.dgates, 0, rows * s_.k);
  const bool lost =
      bug_.mutant == Mutant::experts_router_gradient_lost || bug_.is(Bug::router_gradient_lost, p.launch.last().rank);
  if (lost)
    p.launch(
        "d gates", SEEKSIM_SITE, memory_cost(dgates.n),
        [](Lane lane, Vec<float> values) { kernels::fill_bits(lane, values, 0); }, dgates);
  p.launch(
      "router", SEEKSIM_SITE, memory_cost(3 * rows * s_.E, 6),
      [router = router_of(n), scale = router_loss_scale(p)](
          Lane lane, Mat<const float> probs, Vec<const std::int32_t> slots, Vec<const float> gates,
          Mat<const float> shares, Vec<const float> spreads, Vec<const float> d, Mat<S> dlogits) {
        kernels::route_backward<S>(lane, router, probs, slots, gates, shares, spreads, d, scale, dlogits);
      },
      reads(to.probs), reads(to.slots), reads(to.gates), reads(to.shares), reads(to.spreads), reads(dgates),
      dlogits(n, l));
}

// Through the experts, where all of them are here: gradients of the gates, of both products' weights, and of what comes
// out of the first product.
template <class S>
MatView<const S> Gpt2<S>::all_experts_backward(const Pass& p, int l, MatView<const S> dbranch) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const RouteViews to = routes(n, l);
  const VecView<const std::int32_t> slots = reads(to.slots);
  const LayerStore& kept = store(l);
  const MatView<S> active = inside(kept.gelu, n, way_.F, inner_slot(l)),
                   dactive = inside(work_->dgelu, n, way_.F);  // (R k, F)
  const VecView<float> dgates = vec<float>(*work_->experts.dgates, 0, slots.n);
  const MatView<S> rows = dslots(n, l), dup = dfc(n, l);  // (R k, C), (R k, U)

  expert_product(p, SEEKSIM_SITE, w(LayerPart::mlp_proj_weight), slots, dbranch, RowOf::token, Trans::yes, 0, dactive);
  p.launch(
      "experts", SEEKSIM_SITE, memory_cost(4 * dactive.rows * dactive.cols + 2 * rows.rows * rows.cols),
      [segment = gate_segment()](Lane lane, Vec<const std::int32_t> chosen, Vec<const float> gates, Mat<const S> dout,
                                 Mat<const S> x, Mat<S> dx, Vec<float> of_gates, Mat<S> dy) {
        kernels::expert_combine_backward<S>(lane, chosen, gates, dout, x, dx, of_gates, dy, segment);
      },
      slots, reads(to.gates), dbranch, reads(active), dactive, gate_nodes(dgates), rows);
  sum_gate_nodes(p, dgates);
  if (p.sink != nullptr) experts_down_grad(p, l);
  activate_backward(p, dactive, inside(kept.fc, n, way_.U, inner_slot(l)), dup, s_.mlp_segment());
  const MatView<const S> x =
      all_rows(p, w(LayerPart::c_fc_weight).name, SEEKSIM_SITE, stream(kept.ln2, n, slot(l)));  // dbranch was there
  if (p.sink != nullptr) experts_up_grad(p, l, x);
  return x;
}

template <class S>
void Gpt2<S>::experts_down_grad(const Pass& p, int l) {
  const Index n = p.batch.samples;
  const ParameterInfo& down = parameters_.layer(l, LayerPart::mlp_proj_weight);
  const MatView<const S> active = inside(store(l).gelu, n, way_.F, inner_slot(l));
  if (group_ != nullptr) return arrived_grad(p, down, reads(arrivals(l).experts), active, dslots(n, l));
  expert_grad(p, down, reads(routes(n, l).slots), active, dslots(n, l), RowOf::slot);
}

template <class S>
void Gpt2<S>::experts_up_grad(const Pass& p, int l, MatView<const S> x) {
  const Index n = p.batch.samples;
  const ParameterInfo& up = parameters_.layer(l, LayerPart::c_fc_weight);
  if (group_ != nullptr) return arrived_grad(p, up, reads(arrivals(l).experts), dfc(n, l), arrivals(l).rows);
  expert_grad(p, up, reads(routes(n, l).slots), dfc(n, l), x, RowOf::token);
}

// Every tensor way has all rows and the whole router, and so the whole gradient of it.
template <class S>
void Gpt2<S>::router_grad(const Pass& p, int l, MatView<const S> x) {
  const ParameterInfo& router = parameters_.layer(l, LayerPart::router_weight);
  weight_grad(p, router, true, x, dlogits(p.batch.samples, l), router.offset);
}

template <class S>
typename Gpt2<S>::Mlp Gpt2<S>::shared_mlp(Index n, int l) const {
  const MlpStore& at = store(l).shared;
  const auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  return {w(LayerPart::shared_fc_weight), w(LayerPart::shared_proj_weight), act(at.fc, n, way_.shared.U, inner_slot(l)),
          act(at.gelu, n, way_.shared.F, inner_slot(l)), s_.shared};
}

template <class S>
void Gpt2<S>::shared_up(const Pass& p, int l, MatView<const S> x) {
  if (!experts_.plan.shared_in_layer(l)) return;
  const Mlp m = shared_mlp(p.batch.samples, l);
  column_product(p, SEEKSIM_SITE, m.up, nullptr, x, m.fc);
  activate(p, m.fc, m.active, m.whole.segment());
}

// To the sum of the experts.
template <class S>
void Gpt2<S>::shared_down(const Pass& p, int l, MatView<S> branch) {
  if (!experts_.plan.shared_in_layer(l)) return;
  const Index n = p.batch.samples;
  const Mlp m = shared_mlp(n, l);
  const MatView<S> rows = stream(work_->experts.shared, n);  // (Rs, C)
  row_product(p, SEEKSIM_SITE, m.down, m.active, nullptr, m.whole.segment(), rows);
  const auto scale = static_cast<float>(experts_.plan.scale);
  if (bug_.is(Bug::shared_expert_scaled))
    dropped(p.launch, SEEKSIM_SITE, {.threshold = 1, .factor = scale}, way_.tokens, rows, rows, 0);
  add_shared(p, SEEKSIM_SITE, branch);
}

template <class S>
void Gpt2<S>::add_shared(const Pass& p, const char* site, MatView<S> sum) {
  p.launch(
      "shared expert", site, memory_cost(3 * sum.rows * sum.cols, 1.0 / 3),
      [](Lane lane, Mat<const S> of_experts, Mat<const S> more, Mat<S> out) {
        kernels::add<S>(lane, of_experts, more, out);
      },
      reads(sum), reads(stream(work_->experts.shared, p.batch.samples)), sum);
}

// Before the experts' backward, with whose working memory it is done. Rows of all tokens, where ways have their own,
// lie where the result will: dbranch is where they usually do.
template <class S>
void Gpt2<S>::shared_backward(const Pass& p, int l, MatView<const S> dbranch) {
  if (!experts_.plan.shared_in_layer(l)) return;
  const Index n = p.batch.samples;
  const Mlp m = shared_mlp(n, l);
  const MatView<S> dactive = d_active(n, m), dup = act(work_->dfc, n, way_.shared.U);  // (R, F), (R, U)
  linear_grad(p, m.down, nullptr, false, m.active, dbranch, m.down.offset);
  row_product_backward(p, SEEKSIM_SITE, m.down, dbranch, dactive);
  activate_backward(p, dactive, m.fc, dup, m.whole.segment());
  MatView<const S> x = stream(store(l).ln2, n, slot(l));
  if (splits_tokens()) {
    const MatView<S> all = act(work_->experts.shared, n, s_.C);
    tensor_->gather_rows<S>(p.launch, m.up.name, SEEKSIM_SITE, n, x, all);
    x = all;
  }
  weight_grad(p, m.up, true, x, dup, m.up.offset);
  row_product(p, SEEKSIM_SITE, m.up, dup, nullptr, m.whole.up_segment(), stream(work_->experts.shared, n));
}

// dln (R, C) from dbranch (R, C), which may lie in the same place.
template <class S>
void Gpt2<S>::experts_backward(const Pass& p, int l, MatView<const S> dbranch, MatView<S> dln) {
  const Index n = p.batch.samples;
  const VecView<const std::int32_t> slots = reads(routes(n, l).slots);
  const ParameterInfo& router = parameters_.layer(l, LayerPart::router_weight);
  shared_backward(p, l, dbranch);
  MatView<const S> x;
  if (group_ != nullptr) {
    group_backward(p, l, dbranch);
    x = all_rows(p, router.name, SEEKSIM_SITE, stream(store(l).ln2, n, slot(l)));
  } else {
    x = all_experts_backward(p, l, dbranch);
  }

  const MatView<S> drouter = dmid(n, l);  // (Rs, C)
  const OwnSlots own = own_slots(n);
  const Index tokens = own.size / s_.k;
  route_backward(p, l);
  if (p.sink != nullptr) router_grad(p, l, x);
  for (Index i = 0; i < own.count; ++i)
    product<S, S>(p.launch, router.name, SEEKSIM_SITE, Trans::no, Trans::no,
                  dlogits(n, l).row_range(own.slot(i) / s_.k, tokens), weight(p, router),
                  drouter.row_range(i * tokens, tokens), 0);
  const MatView<S> rows = group_ != nullptr ? slot_rows(n) : inside(work_->experts.rows, n, s_.C);  // (R k, C)
  if (group_ == nullptr)
    row_expert_product(p, SEEKSIM_SITE, parameters_.layer(l, LayerPart::c_fc_weight), slots, dfc(n, l), s_.up_segment(),
                       s_.k, own_rows(rows, n));
  p.launch(
      "experts", SEEKSIM_SITE, memory_cost(rows.rows * rows.cols + 2 * dln.rows * dln.cols),
      [own, tokens](Lane lane, Vec<const std::int32_t> chosen, Mat<const S> dx, Mat<const S> of_router, Mat<S> out) {
        for (Index i = 0; i < own.count; ++i)
          kernels::expert_collect<S>(lane, {chosen.data + own.slot(i), own.size},
                                     {dx.row(own.row(i)), own.size, dx.cols, dx.stride},
                                     {of_router.row(i * tokens), tokens, of_router.cols, of_router.stride},
                                     {out.row(i * tokens), tokens, out.cols, out.stride});
      },
      slots, reads(own_rows(rows, n)), reads(drouter), dln);
  const bool lost = bug_.is(Bug::shared_gradient_lost, p.launch.last().rank);
  if (experts_.plan.shared_in_layer(l) && !lost) add_shared(p, SEEKSIM_SITE, dln);
}

#define SEEKSIM_INSTANTIATE(S)                                                                                       \
  template RouteViews Gpt2<S>::routes(Index, int) const;                                                             \
  template void Gpt2<S>::expert_product(const Pass&, const char*, const ParameterInfo&, VecView<const std::int32_t>, \
                                        MatView<const S>, RowOf, Trans, Index, MatView<S>);                          \
  template void Gpt2<S>::row_expert_product(const Pass&, const char*, const ParameterInfo&,                          \
                                            VecView<const std::int32_t>, MatView<const S>, Index, Index, MatView<S>, \
                                            VecView<const float>);                                                   \
  template void Gpt2<S>::sum_gate_nodes(const Pass&, VecView<float>);                                                \
  template void Gpt2<S>::shift_experts(const Pass&, const ParameterInfo&, VecView<float>);                           \
  template void Gpt2<S>::route(const Pass&, int, MatView<const S>);                                                  \
  template void Gpt2<S>::experts_up(const Pass&, int, MatView<const S>);                                             \
  template void Gpt2<S>::experts_down(const Pass&, int, MatView<S>);                                                 \
  template void Gpt2<S>::shared_up(const Pass&, int, MatView<const S>);                                              \
  template void Gpt2<S>::shared_down(const Pass&, int, MatView<S>);                                                  \
  template void Gpt2<S>::add_router_losses(Launcher&, Index);                                                        \
  template VecView<float> Gpt2<S>::router_losses(Index, int) const;                                                  \
  template void Gpt2<S>::experts_down_grad(const Pass&, int);                                                        \
  template void Gpt2<S>::experts_up_grad(const Pass&, int, MatView<const S>);                                        \
  template void Gpt2<S>::router_grad(const Pass&, int, MatView<const S>);                                            \
  template void Gpt2<S>::experts_backward(const Pass&, int, MatView<const S>, MatView<S>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
