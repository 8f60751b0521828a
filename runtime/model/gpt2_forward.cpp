// The forward pass, in the order of GPT-2: x + attention(norm(x)), then x + mlp(norm(x)). Shapes stand beside tensors;
// R = samples * T rows.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/logit_scale.h"
#include "kernels/pointwise.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "kernels/swiglu.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/layout/family.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"
#include "runtime/model/rotary_angles.h"

namespace seeksim::runtime {

Gpt2Way::Gpt2Way(const ModelShape& shape, const ModelPart& part, const TensorAxis* tensor) {
  SEEKSIM_CHECK((part.ways > 1) == (tensor != nullptr), "%d ways", part.ways);
  const auto of = [&part](Index n) { return kernels::stretch_of_way(n, part.ways, part.way); };
  V = of(shape.V).size, first_vocabulary = of(shape.V).first;
  const kernels::Stretch keys = of(shape.K);
  H = keys.size * shape.G, first_head = keys.first * shape.G;
  A = H * shape.D, Q = keys.size * (shape.G + 2) * shape.D;
  F = of(shape.F).size, U = shape.U / shape.F * F;
  const kernels::Stretch stream = tensor != nullptr ? tensor->tokens() : kernels::Stretch{0, shape.T};
  tokens = stream.size, first_token = stream.first;
}

template <class S>
Gpt2<S>::Gpt2(Device& device, const TrainPlan& plan, const Parameters& parameters, std::size_t piece, Index samples_max,
              std::shared_ptr<Gpt2Workspace> workspace, TensorAxis* tensor)
    : s_(plan.definition.model),
      llama_(plan.definition.model.llama()),
      tensor_(tensor),
      way_(s_, parameters.part(), tensor),
      parameters_(parameters),
      piece_(parameters.pieces()[piece]),
      eps_(static_cast<float>(plan.definition.model.norm_eps)),
      samples_max_(samples_max),
      drop_embedding_(kernels::dropout_of(plan.definition.model.dropout.embedding)),
      drop_attention_(kernels::dropout_of(plan.definition.model.dropout.attention)),
      drop_residual_(kernels::dropout_of(plan.definition.model.dropout.residual)),
      bug_(plan.bug),
      work_(std::move(workspace)) {
  SEEKSIM_CHECK((std::is_same_v<S, float>) || !plan.definition.model.logit_scale,
                "logit_scale is for fp32 only, not %s", std::string(name(element_type<S>())).c_str());
  const Index R = samples_max * s_.T, Rs = samples_max * way_.tokens, C = s_.C;
  auto tokens = [&](const char* name) {
    return device.allocate(static_cast<std::size_t>(R) * sizeof(std::int32_t), MemoryTag::data, name);
  };
  const bool defers = plan.layout.parallel.defers();
  lay_out_slots(device, plan);
  if (piece_.embeds) inputs_ = tokens("inputs");
  if (piece_.heads) targets_ = tokens("targets");
  x_ = stored(device, "residual stream", residual_slots_ * Rs * C);
  if (layer_slots_ > 0) kept_ = make_layers(device, layer_slots_);
  if (piece_.heads) {
    lnf_ = stored(device, "ln_f", Rs * C), rstdf_ = floats(device, "ln_f rstd", Rs);
    if (!llama_) meanf_ = floats(device, "ln_f mean", Rs);
    logits_ = stored(device, "logits", R * way_.V);
    if (parameters.logit_scale() != nullptr) {
      raw_logits_ = stored(device, "logits before their scale", R * way_.V),
      logit_dots_ = floats(device, "logit dots", R);
    }
    token_losses_ = floats(device, "token losses", R), sample_losses_ = floats(device, "sample losses", samples_max);
  }
  dx_ = stored(device, "d residual", (defers ? piece_.layers() + 1 : 1) * Rs * C);
  if (defers) deferred_ = make_deferred(device);
  if (!work_->branch) make_workspace(device, defers);
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
LayerStore Gpt2<S>::make_layers(Device& device, Index slots) const {
  const Index R = slots * samples_max_ * s_.T, Rs = slots * samples_max_ * way_.tokens, C = s_.C, F = way_.F;
  LayerStore store;
  store.mid = stored(device, "residual stream after attention", Rs * C);
  store.ln1 = stored(device, "ln_1", Rs * C), store.ln2 = stored(device, "ln_2", Rs * C);
  store.att = stored(device, "attention", R * way_.A);
  store.rstd1 = floats(device, "ln_1 rstd", Rs), store.rstd2 = floats(device, "ln_2 rstd", Rs);
  if (!llama_) store.mean1 = floats(device, "ln_1 mean", Rs), store.mean2 = floats(device, "ln_2 mean", Rs);
  store.qkv = stored(device, "qkv", R * way_.Q);
  store.probs = stored(device, "attention probabilities", R * way_.H * s_.T);
  store.fc = stored(device, "mlp.c_fc", R * way_.U), store.gelu = stored(device, "gelu", R * F);
  return store;
}

template <class S>
void Gpt2<S>::make_workspace(Device& device, bool defers) const {
  const Index R = samples_max_ * s_.T, Rs = samples_max_ * way_.tokens, C = s_.C, F = way_.F;
  Gpt2Workspace& work = *work_;
  if (shared_residual_slots_ > 0)
    work.residual = stored(device, "residual stream inside a segment", shared_residual_slots_ * Rs * C);
  if (shared_layer_slots_ > 0) work.layers = make_layers(device, shared_layer_slots_);
  work.branch = stored(device, "branch", std::max(Rs * C, R * way_.A));
  if (!defers) work.dmid = stored(device, "d residual after attention", Rs * C);
  if (splits_tokens()) work.gathered = stored(device, "rows of all ways", R * C);
  const std::vector<const ParameterInfo*>& frozen = parameters_.frozen();
  const bool has_frozen_vector =
      std::any_of(frozen.begin(), frozen.end(), [](const ParameterInfo* p) { return p->shape.size() == 1; });
  if (has_frozen_vector) work.unused = floats(device, "gradient of a frozen bias", C);
  if (s_.L == 0) return;
  if (!defers) work.dqkv = stored(device, "d qkv", R * way_.Q);
  work.dgelu = stored(device, "d gelu", R * F);
  if (!defers) work.dfc = stored(device, "d mlp.c_fc", R * way_.U);
  if (llama_) work.angles = floats(device, "rotary angles", s_.T * s_.D);
  work.scratch = device.allocate(std::size_t(2 * s_.T * s_.T) * sizeof(float), MemoryTag::scratch, "attention scratch");
}

template <class S>
Gpt2Deferred Gpt2<S>::make_deferred(Device& device) const {
  const Index layers = std::max(piece_.layers(), 1), R = layers * samples_max_ * s_.T, C = s_.C;
  const Index Rs = layers * samples_max_ * way_.tokens;
  Gpt2Deferred kept;
  kept.dln1 = stored(device, "d ln_1", Rs * C), kept.dln2 = stored(device, "d ln_2", Rs * C);
  kept.dmid = stored(device, "d residual after attention", Rs * C);
  kept.dqkv = stored(device, "d qkv", R * way_.Q), kept.dfc = stored(device, "d mlp.c_fc", R * way_.U);
  if (drop_residual_.on()) {
    kept.dropped_att = stored(device, "d attention branch", Rs * C);
    kept.dropped_mlp = stored(device, "d mlp branch", Rs * C);
  }
  if (piece_.heads) kept.dlnf = stored(device, "d ln_f", samples_max_ * way_.tokens * C);
  return kept;
}

namespace {

template <class S>
void add(Launcher& launch, const char* tensor, const char* site, MatView<const S> a, MatView<const S> b, MatView<S> y) {
  launch(
      tensor, site, memory_cost(3 * a.rows * a.cols, 1.0 / 3),
      [](Lane lane, Mat<const S> left, Mat<const S> right, Mat<S> sum) { kernels::add<S>(lane, left, right, sum); }, a,
      b, y);
}

}  // namespace

// What arrives from another stage has a slot of its own and is no checkpoint: it may come at any time, also while a
// place of the checkpoints is in use.
template <class S>
void Gpt2<S>::lay_out_slots(Device& device, const TrainPlan& plan) {
  const CheckpointingPlan& checkpointing = plan.layout.checkpointing;
  segments_ = segments_of(piece_.first, piece_.end, checkpointing);
  int checkpoint = 0;
  for (const Segment& segment : segments_) {
    if (segment.recomputed) {
      shared_layer_slots_ = std::max(shared_layer_slots_, segment.layers());
      shared_residual_slots_ = std::max(shared_residual_slots_, segment.layers() - 1);
    }
    for (int l = segment.first; l < segment.end; ++l) {
      const int inside = l - segment.first;
      const bool arrives = l == piece_.first && !piece_.embeds;
      LayerSlots slots;
      slots.shared = segment.recomputed && !plan.bug.is(Bug::kept_activations);
      slots.activations = slots.shared ? inside : layer_slots_++;
      if (!segment.recomputed || arrives) {
        slots.residual = residual_slots_++;
      } else if (inside == 0) {
        slots.checkpoint = checkpoint++;
      } else {
        slots.residual_shared = true;
        slots.residual = inside - 1;
      }
      slots_.push_back(slots);
    }
  }
  LayerSlots last;
  last.residual = residual_slots_++;
  slots_.push_back(last);
  if (checkpoint > 0)
    checkpoints_.emplace(device, checkpoint, checkpoint_elements(samples_max_), element_type<S>(),
                         checkpointing.on_host, plan.bug);
}

template <class S>
void Gpt2<S>::residual_begins(const Pass& p, int l) {
  if (const int k = slots_of(l).checkpoint; k >= 0) checkpoints_->before_write(p.launch, k);
}
template <class S>
void Gpt2<S>::residual_ends(const Pass& p, int l) {
  if (const int k = slots_of(l).checkpoint; k >= 0)
    checkpoints_->written(p.launch, k, checkpoint_elements(p.batch.samples));
}

template <class S>
void Gpt2<S>::forward(Launcher& launch, Weights& weights, const Batch& batch) {
  const Pass p{launch, weights, batch, {}, nullptr};
  set_angles(p);
  if (piece_.embeds) embed(p);
  for (int l = piece_.first; l < piece_.end; ++l) {
    launch.layer(l);
    weights.fetch(1 + l);
    layer_forward(p, l);
    layer_output(p, l);
    weights.release(1 + l);
  }
  launch.layer(-1);
  if (piece_.heads) head_forward(p);
}

// The rows of all tokens, from ways that have their own; else the rows themselves.
template <class S>
MatView<const S> Gpt2<S>::all_rows(const Pass& p, const char* tensor, const char* site, MatView<const S> rows) {
  if (!splits_tokens()) return rows;
  const MatView<S> all = act(work_->gathered, p.batch.samples, s_.C);
  tensor_->gather_rows<S>(p.launch, tensor, site, p.batch.samples, rows, all);
  return all;
}

// out (Rs, C) = a w + bias, where ways have split what is summed over: each has a node of the sum.
template <class S>
void Gpt2<S>::row_product(const Pass& p, const char* site, const ParameterInfo& w, MatView<const S> a,
                          const ParameterInfo* bias, Index segment, MatView<S> out) {
  if (tensor_ == nullptr && bias == nullptr)
    return product<S, S>(p.launch, w.name, site, Trans::no, Trans::no, a, weight(p, w), out, segment);
  const VecView<const S> added = bias != nullptr ? vector(p, *bias) : VecView<const S>{};
  if (tensor_ == nullptr)
    return product_bias<S>(p.launch, w.name, site, Trans::no, Trans::no, a, weight(p, w), added, out, segment);
  product<S, float>(p.launch, w.name, site, Trans::no, Trans::no, a, weight(p, w), tensor_->node(p.batch.samples),
                    segment);
  tensor_->sum_nodes<S>(p.launch, w.name, site, p.batch.samples, added, out);
}

template <class S>
MatView<S> Gpt2<S>::dropped_rows(const Pass& p, const char* site, const kernels::Dropout& rate, DropoutSite place,
                                 int layer, MatView<S> x, MatView<S> y) {
  return dropped(p.launch, site, dropout_at(rate, place, dropout_layer(layer), p.batch), way_.tokens, x, y,
                 way_.first_token);
}

// Computed once, in memory of the host.
template <class S>
void Gpt2<S>::keep_angles(Device& device, double theta) const {
  const std::size_t bytes = std::size_t(s_.T * s_.D) * sizeof(float);
  BufferPtr& home = work_->angles_at_home;
  home = device.allocate_in(Space::host, bytes, MemoryTag::scratch, "rotary angles at home");
  if (home->data == nullptr) return;  // a run of shapes
  Op op;
  op.kind = OpKind::copy;
  op.bytes = bytes;
  op.tensor = home->name;
  op.site = SEEKSIM_SITE;
  device.host_touches(op, {home.get(), 0, bytes, true});
  const std::vector<float> angles = rotary_angles(s_.T, s_.D, theta);
  std::memcpy(home->data, angles.data(), bytes);
}

// Each time, since an abort may have left anything on the device.
template <class S>
void Gpt2<S>::set_angles(const Pass& p) {
  if (!work_->angles) return;
  const AnyVec home(work_->angles_at_home.get(), 0, s_.T * s_.D, ElementType::f32);
  copy_values(p.launch, "rotary angles", SEEKSIM_SITE, home, {work_->angles.get(), 0, s_.T * s_.D, ElementType::f32});
}

template <class S>
void Gpt2<S>::embed(const Pass& p) {
  p.weights.fetch(0);
  const Index n = p.batch.samples;
  const MatView<S> x0 = residual(n, 0);  // (Rs, C)
  residual_begins(p, 0);
  const MatView<S> rows = tensor_ == nullptr ? x0 : tensor_->embedded<S>(n);  // (R, C)
  const ParameterInfo& wte = parameters_.wte();
  const bool learned = positions() != nullptr;
  p.launch(
      wte.name, SEEKSIM_SITE, memory_cost(3 * rows.rows * rows.cols, 1.0 / 3),
      [T = s_.T, V = s_.V, first = way_.first_vocabulary, learned](Lane lane, Vec<const std::int32_t> tokens,
                                                                   Mat<const S> table, Mat<const S> places, Mat<S> x) {
        kernels::embedding_forward_slice<S>(lane, tokens, T, V, first, table, learned ? places : Mat<const S>{}, x);
      },
      reads(inputs(n)), weight(p, wte), weight(p, learned ? *positions() : wte), rows);
  if (tensor_ != nullptr) tensor_->select_rows<S>(p.launch, wte.name, SEEKSIM_SITE, n, reads(inputs(n)), x0);
  dropped_rows(p, SEEKSIM_SITE, drop_embedding_, DropoutSite::embedding, 0, x0, x0);
  residual_ends(p, 0);
  p.weights.release(0);
}

template <class S>
void Gpt2<S>::head_forward(const Pass& p) {
  const Index samples = p.batch.samples;
  p.weights.fetch(head_module());
  const MatView<S> normed = stream(lnf_, samples);  // (Rs, C)
  norm(p, SEEKSIM_SITE, norm_weight(), norm_bias(), residual(samples, s_.L), normed, stream_values(meanf_, samples, 0),
       stream_values(rstdf_, samples, 0));
  product<S, S>(p.launch, parameters_.head().name, SEEKSIM_SITE, Trans::no, Trans::yes,
                all_rows(p, norm_weight().name, SEEKSIM_SITE, normed), weight(p, parameters_.head()),
                raw_logits(samples),
                0);  // (R, V)
  scale_logits(p);
  p.weights.release(head_module());
}

template <class S>
void Gpt2<S>::scale_logits(const Pass& p) {
  const ParameterInfo* const scale = parameters_.logit_scale();
  if (scale == nullptr) return;
  if constexpr (std::is_same_v<S, float>) {
    p.launch(
        scale->name, SEEKSIM_SITE, memory_cost(2 * p.batch.samples * s_.T * way_.V, 0.5),
        [](Lane lane, Mat<const float> raw, Vec<const float> factor, Mat<float> logits) {
          kernels::logit_scale_forward(lane, raw, factor, logits);
        },
        reads(raw_logits(p.batch.samples)), vector(p, *scale), act(logits_, p.batch.samples, way_.V));
  }
}

template <class S>
void Gpt2<S>::layer_forward(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const int a = slot(l);
  const LayerStore& kept = store(l);
  const MatView<S> x = residual(n, l), mid = stream(kept.mid, n, a), branch = stream(work_->branch, n);  // (Rs, C)

  const MatView<S> ln1 = stream(kept.ln1, n, a), qkv = act(kept.qkv, n, way_.Q, a), att = act(kept.att, n, way_.A, a);
  norm(p, SEEKSIM_SITE, w(LayerPart::ln_1_weight), bias(l, LayerPart::ln_1_bias), x, ln1,
       stream_values(kept.mean1, n, a), stream_values(kept.rstd1, n, a));
  column_product(p, SEEKSIM_SITE, w(LayerPart::c_attn_weight), bias(l, LayerPart::c_attn_bias),
                 all_rows(p, w(LayerPart::ln_1_weight).name, SEEKSIM_SITE, ln1), qkv);  // (R, Q)
  rotate(p, false, qkv);
  const MatView<S> probs = attention_probs(kept, n, a);
  const kernels::AttentionShape shape = attention_shape(n);
  p.launch(
      "attention", SEEKSIM_SITE,
      {2.0 * double(n * s_.T * s_.T * way_.A), 4.0 * double(n * s_.T * (way_.Q + way_.A) + probs.rows * s_.T)},
      [shape, drop = dropout_at(drop_attention_, DropoutSite::attention, dropout_layer(l), p.batch)](
          Lane lane, Mat<const S> in, Mat<S> pr, Mat<S> y) {
        kernels::attention_forward<S>(lane, shape, in, pr, y, drop);
      },
      reads(qkv), probs, att);
  row_product(p, SEEKSIM_SITE, w(LayerPart::c_proj_weight), att, bias(l, LayerPart::c_proj_bias), s_.heads_segment(),
              branch);
  dropped_rows(p, SEEKSIM_SITE, drop_residual_, DropoutSite::attention_branch, l, branch, branch);
  add<S>(p.launch, "residual", SEEKSIM_SITE, x, branch, mid);

  const MatView<S> ln2 = stream(kept.ln2, n, a), fc = act(kept.fc, n, way_.U, a), gelu = act(kept.gelu, n, way_.F, a);
  norm(p, SEEKSIM_SITE, w(LayerPart::ln_2_weight), bias(l, LayerPart::ln_2_bias), mid, ln2,
       stream_values(kept.mean2, n, a), stream_values(kept.rstd2, n, a));
  column_product(p, SEEKSIM_SITE, w(LayerPart::c_fc_weight), bias(l, LayerPart::c_fc_bias),
                 all_rows(p, w(LayerPart::ln_2_weight).name, SEEKSIM_SITE, ln2), fc);  // (R, U)
  activate(p, fc, gelu);
}

template <class S>
void Gpt2<S>::norm(const Pass& p, const char* site, const ParameterInfo& gamma, const ParameterInfo* beta,
                   MatView<const S> x, MatView<S> y, VecView<float> mean, VecView<float> rstd) {
  const Cost cost = memory_cost(2 * x.rows * x.cols, 5);
  if (beta == nullptr) {
    p.launch(
        gamma.name, site, cost,
        [eps = eps_](Lane lane, Mat<const S> in, Vec<const S> g, Mat<S> out, Vec<float> r) {
          kernels::rms_norm_forward<S>(lane, in, g, eps, out, r);
        },
        x, vector(p, gamma), y, rstd);
    return;
  }
  p.launch(
      gamma.name, site, cost,
      [eps = eps_](Lane lane, Mat<const S> in, Vec<const S> g, Vec<const S> b, Mat<S> out, Vec<float> m, Vec<float> r) {
        kernels::layer_norm_forward<S>(lane, in, g, b, eps, out, m, r);
      },
      x, vector(p, gamma), vector(p, *beta), y, mean, rstd);
}

template <class S>
void Gpt2<S>::column_product(const Pass& p, const char* site, const ParameterInfo& w, const ParameterInfo* bias,
                             MatView<const S> x, MatView<S> y) {
  if (bias == nullptr) return product<S, S>(p.launch, w.name, site, Trans::no, Trans::yes, x, weight(p, w), y, 0);
  product_bias<S>(p.launch, w.name, site, Trans::no, Trans::yes, x, weight(p, w), vector(p, *bias), y, 0);
}

// Of queries and keys, in place; nothing where positions are learned.
template <class S>
void Gpt2<S>::rotate(const Pass& p, bool backward, MatView<S> qkv) {
  if (!work_->angles) return;
  p.launch(
      "rotary", SEEKSIM_SITE, memory_cost(2 * qkv.rows * qkv.cols, 2),
      [shape = attention_shape(p.batch.samples), backward](Lane lane, Mat<const float> angles, Mat<S> in_place) {
        (backward ? kernels::rotary_backward<S> : kernels::rotary_forward<S>)(lane, shape, angles, in_place);
      },
      reads(mat<float>(*work_->angles, 0, s_.T, s_.D)), qkv);
}

template <class S>
void Gpt2<S>::activate(const Pass& p, MatView<const S> fc, MatView<S> y) {
  if (llama_) {
    p.launch(
        "swiglu", SEEKSIM_SITE, memory_cost(fc.rows * (fc.cols + y.cols), 10),
        [slab = s_.mlp_segment()](Lane lane, Mat<const S> in, Mat<S> out) {
          kernels::swiglu_forward<S>(lane, slab, in, out);
        },
        fc, y);
    return;
  }
  p.launch(
      "gelu", SEEKSIM_SITE, memory_cost(2 * fc.rows * fc.cols, 10),
      [](Lane lane, Mat<const S> in, Mat<S> out) { kernels::gelu_forward<S>(lane, in, out); }, fc, y);
}

template <class S>
void Gpt2<S>::layer_output(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const MatView<S> gelu = act(store(l).gelu, n, way_.F, slot(l));                              // (R, F)
  const MatView<S> mid = stream(store(l).mid, n, slot(l)), branch = stream(work_->branch, n);  // (Rs, C)
  row_product(p, SEEKSIM_SITE, w(LayerPart::mlp_proj_weight), gelu, bias(l, LayerPart::mlp_proj_bias), s_.mlp_segment(),
              branch);
  dropped_rows(p, SEEKSIM_SITE, drop_residual_, DropoutSite::mlp_branch, l, branch, branch);
  residual_begins(p, l + 1);
  add<S>(p.launch, "residual", SEEKSIM_SITE, mid, branch, residual(n, l + 1));
  residual_ends(p, l + 1);
}

// The activations of a segment's layers once more, from its input: the same launches, and so the same bits. The output
// of the last layer is not among them. That layer's parameters stay fetched, for its backward.
template <class S>
void Gpt2<S>::recompute(const Pass& p, const Segment& segment) {
  const std::int32_t micro_batch = p.launch.last().micro_batch;
  Batch batch = p.batch;
  if (bug_.is(Bug::recompute_other_dropout)) ++batch.step;
  const Pass again{p.launch, p.weights, batch, {}, nullptr};
  p.launch.phase(Phase::recompute, micro_batch);
  for (int l = segment.first; l < segment.end; ++l) {
    p.launch.layer(l);
    p.weights.fetch(1 + l);
    layer_forward(again, l);
    if (l + 1 == segment.end) break;
    layer_output(again, l);
    p.weights.release(1 + l);
  }
  p.launch.phase(Phase::backward, micro_batch);
}

template <class S>
void Gpt2<S>::loss(Launcher& launch, Index samples, float scale) {
  const MatView<S> logits = act(logits_, samples, way_.V);  // (R, V)
  if (tensor_ != nullptr) {
    tensor_->cross_entropy<S>(launch, samples, logits, reads(targets(samples)), scale,
                              row_values(token_losses_, samples));
  } else {
    launch(
        "logits", SEEKSIM_SITE, memory_cost(2 * logits.rows * logits.cols, 6),
        [scale](Lane lane, Mat<S> in_place, Vec<const std::int32_t> target, Vec<float> losses) {
          kernels::softmax_cross_entropy<S>(lane, in_place, target, scale, losses, in_place);
        },
        logits, reads(targets(samples)), row_values(token_losses_, samples));
  }
  launch(
      "losses", SEEKSIM_SITE, memory_cost(logits.rows),
      [T = s_.T](Lane lane, Vec<const float> tokens, Vec<float> sums) {
        kernels::sample_losses(lane, tokens, T, sums);
      },
      reads(row_values(token_losses_, samples)), vec<float>(*sample_losses_, 0, samples));
}

#define SEEKSIM_INSTANTIATE(S)                                                                                   \
  template void Gpt2<S>::rotate(const Pass&, bool, MatView<S>);                                                  \
  template void Gpt2<S>::recompute(const Pass&, const Segment&);                                                 \
  template MatView<const S> Gpt2<S>::all_rows(const Pass&, const char*, const char*, MatView<const S>);          \
  template void Gpt2<S>::row_product(const Pass&, const char*, const ParameterInfo&, MatView<const S>,           \
                                     const ParameterInfo*, Index, MatView<S>);                                   \
  template MatView<S> Gpt2<S>::dropped_rows(const Pass&, const char*, const kernels::Dropout&, DropoutSite, int, \
                                            MatView<S>, MatView<S>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

std::vector<std::unique_ptr<Model>> make_models(Device& device, const TrainPlan& plan, const Parameters& parameters,
                                                std::size_t piece, Index samples_max, int count, TensorAxis* tensor) {
  if (const auto& own = plan.definition.model.own)
    return own->models(device, plan, parameters, piece, samples_max, count, tensor);
  std::vector<std::unique_ptr<Model>> models;
  with_float_type(plan.definition.precision.compute, [&](auto like) {
    const auto workspace = std::make_shared<Gpt2Workspace>();
    for (int i = 0; i < count; ++i) {
      models.push_back(
          std::make_unique<Gpt2<decltype(like)>>(device, plan, parameters, piece, samples_max, workspace, tensor));
    }
  });
  return models;
}

}  // namespace seeksim::runtime
