// What a model holds on the device: its own activations, those that micro-batches in flight share, and the slots of
// the residual stream. Shapes stand beside the members in gpt2.h.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/check.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/layout/family.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/rotary_angles.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

template <class S>
Gpt2<S>::Gpt2(Device& device, const TrainPlan& plan, const Parameters& parameters, std::size_t piece, Index samples_max,
              std::shared_ptr<Gpt2Workspace> workspace, TensorAxis* tensor, ExpertGroup* group, ContextGroup* context)
    : s_(plan.definition.model),
      llama_(plan.definition.model.llama()),
      fused_(plan.definition.model.fused_attention),
      tensor_(tensor),
      group_(group),
      way_(s_, plan.definition.model.segmented_gradients, parameters.part(), tensor, context),
      parameters_(parameters),
      piece_(parameters.pieces()[piece]),
      eps_(static_cast<float>(plan.definition.model.norm_eps)),
      samples_max_(samples_max),
      stages_(plan.layout.parallel.pipeline),
      drop_{.embedding = kernels::dropout_of(plan.definition.model.dropout.embedding),
            .attention = kernels::dropout_of(plan.definition.model.dropout.attention),
            .residual = kernels::dropout_of(plan.definition.model.dropout.residual)},
      bug_(plan.bug),
      experts_{.plan = plan.definition.model.experts,
               .travel = plan.definition.model.experts.has_losses() && !(piece_.embeds && piece_.heads),
               .first = plan.definition.model.experts.has_losses() ? s_.first_routed : first_routed(),
               .losses = {}},
      work_(std::move(workspace)) {
  if (bug_.mutant == Mutant::dropout_scale_missing)
    drop_.embedding.factor = drop_.attention.factor = drop_.residual.factor = 1;
  SEEKSIM_CHECK((std::is_same_v<S, float>) || !plan.definition.model.logit_scale,
                "logit_scale is for fp32 only, not %s", std::string(name(element_type<S>())).c_str());
  const Index R = samples_max * way_.rows, Rs = samples_max * way_.tokens, C = s_.C;
  const bool defers = plan.layout.parallel.defers();
  SEEKSIM_CHECK(s_.E == 0 || context == nullptr, "experts in a model that is cut, %d ways",
                plan.layout.parallel.ways());
  SEEKSIM_CHECK(s_.E == 0 || tensor == nullptr || (experts_.plan.slabs && !defers), "experts without slabs, %d ways",
                tensor != nullptr ? tensor->ways() : 1);
  lay_out_slots(device, plan);
  make_ids(device);
  x_ = stored(device, "residual stream", count_.residual * Rs * C);
  if (count_.layers.layers > 0) kept_ = make_layers(device, count_.layers);
  if (s_.E > 0) experts_.losses = floats(device, "router losses", std::max(0, piece_.end - experts_.first) * R);
  if (piece_.heads) {
    head_.norm = stored(device, "ln_f", Rs * C), head_.rstd = floats(device, "ln_f rstd", Rs);
    if (!llama_) head_.mean = floats(device, "ln_f mean", Rs);
    head_.logits = stored(device, "logits", R * way_.V);
    if (parameters.logit_scale() != nullptr) {
      head_.raw_logits = stored(device, "logits before their scale", R * way_.V),
      head_.logit_dots = floats(device, "logit dots", R);
    }
    head_.token_losses = floats(device, "token losses", R),
    head_.sample_losses = floats(device, "sample losses", samples_max);
  }
  dx_ = stored(device, "d residual", (defers ? piece_.layers() + 1 : 1) * Rs * C);
  if (defers) deferred_ = make_deferred(device);
  if (!work_->branch) make_workspace(device, defers);
  if (plan.definition.fp8.on() && !work_->fp8.a)
    work_->fp8 = make_fp8_work(device, plan, parameters, samples_max * way_.rows);
  if (work_->angles && !work_->angles_at_home) keep_angles(device, plan.definition.model.rope_theta);
}

template <class S>
BufferPtr Gpt2<S>::stored(Device& device, const char* name, Index n) const {
  return device.allocate(static_cast<std::size_t>(std::max<Index>(n, 1)) * sizeof(S), MemoryTag::activations, name);
}
template <class S>
BufferPtr Gpt2<S>::floats(Device& device, const char* name, Index n) const {
  return device.allocate(static_cast<std::size_t>(std::max<Index>(n, 1)) * sizeof(float), MemoryTag::activations, name);
}

template <class S>
void Gpt2<S>::make_ids(Device& device) {
  const auto ids = [&](const char* name, Index of_sample) {
    return device.allocate(std::size_t(samples_max_ * of_sample) * sizeof(std::int32_t), MemoryTag::data, name);
  };
  if (piece_.embeds) ids_.inputs = ids("inputs", s_.T);
  if (piece_.heads) ids_.targets = ids("targets", s_.T);
  if (way_.context == nullptr) return;
  if (piece_.embeds) ids_.own_inputs = ids("inputs of own tokens", way_.rows);
  if (piece_.heads) ids_.own_targets = ids("targets of own tokens", way_.rows);
}

template <class S>
LayerStore Gpt2<S>::make_layers(Device& device, const StoreSlots& of) const {
  const Index slots = of.layers;
  const Index R = slots * samples_max_ * way_.rows, Rt = slots * samples_max_ * s_.T,
              Rs = slots * samples_max_ * way_.tokens, C = s_.C, F = way_.F;
  LayerStore store;
  store.mid = stored(device, "residual stream after attention", Rs * C);
  store.ln1 = stored(device, "ln_1", Rs * C), store.ln2 = stored(device, "ln_2", Rs * C);
  store.att = stored(device, "attention", R * way_.A);
  store.rstd1 = floats(device, "ln_1 rstd", Rs), store.rstd2 = floats(device, "ln_2 rstd", Rs);
  if (!llama_) store.mean1 = floats(device, "ln_1 mean", Rs), store.mean2 = floats(device, "ln_2 mean", Rs);
  store.qkv = stored(device, "qkv", R * way_.Q);
  if (fused_)
    store.stats = floats(device, "attention statistics", slots * samples_max_ * way_.attending_rows(s_.T) * way_.H * 2);
  else
    store.probs = stored(device, "attention probabilities", Rt * way_.H * s_.T);
  if (fused_ && way_.by_heads()) store.heads = stored(device, "attention by heads", Rt * way_.attended);
  const Index inside = (s_.E > 0 ? of.routed : slots) * inside_rows_max();
  if (inside > 0)
    store.fc = stored(device, "mlp.c_fc", inside * way_.U), store.gelu = stored(device, "gelu", inside * F);
  if (s_.E == 0) return store;
  if (of.routed > 0) store.routes = make_routes(device, of.routed);
  if (of.routed > 0 && group_ != nullptr) store.arrivals = make_arrivals(device, of.routed);
  const auto mlp = [&](const char* fc, const char* active, Index layers, const MlpShape& shape) {
    const Index rows = layers * samples_max_ * way_.rows;
    if (rows * shape.F == 0) return MlpStore{};
    return MlpStore{stored(device, fc, rows * shape.U), stored(device, active, rows * shape.F)};
  };
  store.shared = mlp("shared expert's c_fc", "shared expert's gelu", of.routed, way_.shared);
  store.dense = mlp("dense mlp.c_fc", "dense gelu", of.dense, way_.dense);
  return store;
}

template <class S>
RouteStore Gpt2<S>::make_routes(Device& device, Index slots) const {
  const Index samples = slots * samples_max_, R = samples * s_.T;
  RouteStore store;
  store.probs = floats(device, "router probabilities", R * s_.E);
  store.chosen =
      device.allocate(std::size_t(R * s_.k) * sizeof(std::int32_t), MemoryTag::activations, "experts chosen");
  store.gates = floats(device, "gates", R * s_.k), store.spreads = floats(device, "router spreads", R);
  store.shares = floats(device, "experts' shares", samples * s_.E);
  return store;
}

template <class S>
ExpertWork Gpt2<S>::make_expert_work(Device& device, bool defers) const {
  const Index R = samples_max_ * s_.T;
  ExpertWork work;
  work.logits = floats(device, "router logits", R * s_.E);
  if (!defers) work.dlogits = stored(device, "d router logits", R * s_.E);
  if (experts_.travel && !piece_.heads) work.losses = floats(device, "router losses once more", R);
  work.rows = stored(device, "rows of experts", inside_rows_max() * s_.C);
  work.dgates = floats(device, "d gates", R * s_.k);
  if (way_.shared.F > 0) work.shared = stored(device, "rows of the shared expert", R * s_.C);
  if (bug_.is(Bug::arrivals_of_last_micro_batch) && group_ != nullptr)
    work.arrivals = make_arrivals(device, piece_.layers());
  return work;
}

template <class S>
ArrivalStore Gpt2<S>::make_arrivals(Device& device, Index slots) const {
  const Index rows = slots * group_->rows_max();
  const auto numbers = [&](const char* name) {
    return device.allocate(std::size_t(rows) * sizeof(std::int32_t), MemoryTag::activations, name);
  };
  ArrivalStore store;
  store.sources = numbers("slots of packed rows"), store.experts = numbers("experts of rows that arrived");
  store.rows = stored(device, "rows that arrived", rows * s_.C);
  return store;
}

template <class S>
GroupWork Gpt2<S>::make_group_work(Device& device) const {
  const Index rows = group_->rows_max();
  GroupWork work;
  work.slots = stored(device, "rows of slots", samples_max_ * s_.T * s_.k * s_.C);
  work.packed = stored(device, "packed rows", rows * s_.C);
  work.packed_experts =
      device.allocate(std::size_t(rows) * sizeof(std::int32_t), MemoryTag::activations, "experts of packed rows");
  work.packed_values = floats(device, "packed gates", rows);
  work.gates = floats(device, "gates that arrived", rows), work.dgates = floats(device, "d gates to send", rows);
  return work;
}

template <class S>
void Gpt2<S>::make_workspace(Device& device, bool defers) const {
  const Index R = samples_max_ * way_.rows, Rs = samples_max_ * way_.tokens, C = s_.C;
  Gpt2Workspace& work = *work_;
  if (count_.shared_residual > 0)
    work.residual = stored(device, "residual stream inside a segment", count_.shared_residual * Rs * C);
  if (count_.shared_layers.layers > 0) work.layers = make_layers(device, count_.shared_layers);
  work.branch = stored(device, "branch", std::max(Rs * C, R * way_.A));
  if (!defers) work.dmid = stored(device, "d residual after attention", Rs * C);
  if (splits_tokens()) work.gathered = stored(device, "rows of all ways", R * C);
  if (way_.context != nullptr) work.context.losses = floats(device, "losses of all tokens", samples_max_ * s_.T);
  if (way_.by_heads()) {
    const Index Rt = samples_max_ * s_.T;
    work.context.heads = stored(device, "rows by heads", Rt * way_.attended);
    work.context.dqkv = stored(device, "d qkv by heads", Rt * way_.attended_q);
  }
  const std::vector<const ParameterInfo*>& frozen = parameters_.frozen();
  const bool has_frozen_vector =
      std::any_of(frozen.begin(), frozen.end(), [](const ParameterInfo* p) { return p->shape.size() == 1; });
  if (has_frozen_vector) work.unused = floats(device, "gradient of a frozen bias", C);
  if (s_.L == 0) return;
  if (!defers || way_.by_heads()) work.dqkv = stored(device, "d qkv", R * way_.Q);
  // Of the widest mlp of the model, or of its experts.
  const auto widest = [&](Index of_slot, Index dense, Index shared) {
    if (s_.E == 0) return inside_rows_max() * of_slot;
    return std::max({inside_rows_max() * of_slot, s_.first_routed > 0 ? R * dense : 0, R * shared});
  };
  work.dgelu = stored(device, "d gelu", widest(way_.F, way_.dense.F, way_.shared.F));
  if (!defers) work.dfc = stored(device, "d mlp.c_fc", widest(way_.U, way_.dense.U, way_.shared.U));
  if (s_.E > 0) work.experts = make_expert_work(device, defers);
  if (group_ != nullptr) work.group = make_group_work(device);
  if (llama_) work.angles = floats(device, "rotary angles", s_.T * s_.D);
  if (fused_) return;
  work.scratch = device.allocate(std::size_t(2 * s_.T * s_.T) * sizeof(float), MemoryTag::scratch, "attention scratch");
}

template <class S>
Gpt2Deferred Gpt2<S>::make_deferred(Device& device) const {
  const Index layers = std::max(piece_.layers(), 1), R = layers * samples_max_ * way_.rows, C = s_.C;
  const Index Rs = layers * samples_max_ * way_.tokens;
  Gpt2Deferred kept;
  kept.dln1 = stored(device, "d ln_1", Rs * C), kept.dln2 = stored(device, "d ln_2", Rs * C);
  kept.dmid = stored(device, "d residual after attention", Rs * C);
  kept.dqkv = stored(device, "d qkv", R * way_.Q);
  kept.dfc = stored(device, "d mlp.c_fc", layers * inside_rows_max() * way_.U);
  if (s_.E > 0) {
    kept.dslots = stored(device, "d rows of experts", layers * inside_rows_max() * s_.C);
    kept.dlogits = stored(device, "d router logits", R * s_.E);
  }
  if (drop_.residual.on()) {
    kept.dropped_att = stored(device, "d attention branch", Rs * C);
    kept.dropped_mlp = stored(device, "d mlp branch", Rs * C);
  }
  if (piece_.heads) kept.dlnf = stored(device, "d ln_f", samples_max_ * way_.tokens * C);
  return kept;
}

// What arrives from another stage has a slot of its own and is no checkpoint: it may come at any time, also while a
// place of the checkpoints is in use.
template <class S>
void Gpt2<S>::lay_out_slots(Device& device, const TrainPlan& plan) {
  const CheckpointingPlan& checkpointing = plan.layout.checkpointing;
  segments_ = segments_of(piece_.first, piece_.end, checkpointing);
  int checkpoint = 0;
  for (const Segment& segment : segments_) {
    if (segment.recomputed) count_.shared_residual = std::max(count_.shared_residual, segment.layers() - 1);
    StoreSlots inside_segment;
    for (int l = segment.first; l < segment.end; ++l) {
      const int inside = l - segment.first;
      const bool arrives = l == piece_.first && !piece_.embeds;
      LayerSlots slots;
      slots.shared = segment.recomputed && !plan.bug.is(Bug::kept_activations);
      StoreSlots& of = slots.shared ? inside_segment : count_.layers;
      slots.activations = of.layers++;
      slots.inner = s_.routed(l) ? of.routed++ : of.dense++;
      if (!segment.recomputed || arrives) {
        slots.residual = count_.residual++;
      } else if (inside == 0) {
        slots.checkpoint = checkpoint++;
      } else {
        slots.residual_shared = true;
        slots.residual = inside - 1;
      }
      slots_.push_back(slots);
    }
    StoreSlots& shared = count_.shared_layers;
    shared = {std::max(shared.layers, inside_segment.layers), std::max(shared.routed, inside_segment.routed),
              std::max(shared.dense, inside_segment.dense)};
  }
  LayerSlots last;
  last.residual = count_.residual++;
  slots_.push_back(last);
  if (checkpoint > 0)
    checkpoints_.emplace(device, checkpoint, checkpoint_elements(samples_max_), element_type<S>(),
                         checkpointing.on_host, plan.bug);
}

// Computed once, in memory of the host.
template <class S>
void Gpt2<S>::keep_angles(Device& device, double theta) const {
  const std::size_t bytes = std::size_t(s_.T * s_.D) * sizeof(float);
  BufferPtr& home = work_->angles_at_home;
  home = device.allocate_in(Space::host, bytes, MemoryTag::scratch, "rotary angles at home");
  Op op;
  op.kind = OpKind::copy;
  op.bytes = bytes;
  op.tensor = home->name;
  op.site = SEEKSIM_SITE;
  device.host_touches(op, {home.get(), 0, bytes, true});
  if (home->data == nullptr) return;  // a run of shapes
  const std::vector<float> angles = rotary_angles(s_.T, s_.D, theta);
  std::memcpy(home->data, angles.data(), bytes);
}

std::vector<std::unique_ptr<Model>> make_models(Device& device, const TrainPlan& plan, const Parameters& parameters,
                                                std::size_t piece, Index samples_max, int count, TensorAxis* tensor,
                                                ExpertGroup* group, ContextGroup* context) {
  if (const auto& own = plan.definition.model.own)
    return own->models(device, plan, parameters, piece, samples_max, count, tensor);
  std::vector<std::unique_ptr<Model>> models;
  with_float_type(plan.definition.precision.compute, [&](auto like) {
    const auto workspace = std::make_shared<Gpt2Workspace>();
    for (int i = 0; i < count; ++i) {
      models.push_back(std::make_unique<Gpt2<decltype(like)>>(device, plan, parameters, piece, samples_max, workspace,
                                                              tensor, group, context));
    }
  });
  return models;
}

}  // namespace seeksim::runtime
