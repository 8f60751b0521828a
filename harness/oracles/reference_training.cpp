#include "harness/oracles/reference_training.h"

#include <algorithm>
#include <cmath>

#include "runtime/layout/parameters.h"
#include "runtime/samples/sampler.h"

namespace seeksim::harness {
namespace {

reference::Type type_of(runtime::ElementType type) {
  if (type == runtime::ElementType::bf16) return reference::Type::bf16;
  return type == runtime::ElementType::f16 ? reference::Type::f16 : reference::Type::f32;
}

// Frozen parameters by the names that files have: queries, keys and values, and gates and ups, are tensors of their own
// there, and so are each expert's w1, w2 and w3.
std::vector<std::string> frozen_in_files(const runtime::ModelPlan& plan) {
  const runtime::Parameters parameters(plan, false);
  std::vector<std::string> out;
  const auto put = [&](const std::string& name, const std::string& ours, std::initializer_list<const char*> theirs) {
    const std::size_t place = name.find(ours);
    if (place == std::string::npos) return;
    for (const char* other : theirs) out.push_back(std::string(name).replace(place, ours.size(), other));
  };
  for (const runtime::ParameterInfo* p : parameters.frozen()) {
    const std::string name = p->name;
    out.push_back(name);
    put(name, "qkv_proj", {"q_proj", "k_proj", "v_proj"});
    put(name, "gate_up_proj", {"gate_proj", "up_proj", "*.w1", "*.w3"});
    put(name, "down_proj", {"*.w2"});
    if (p->experts == 0 || !plan.experts.deepseek()) continue;
    put(name, "gate_up_proj", {"*.gate_proj", "*.up_proj"});
    put(name, "down_proj", {"*.down_proj"});
  }
  return out;
}

reference::Model model_of(const runtime::ModelPlan& plan) {
  reference::Model m;
  m.llama = plan.llama();
  m.L = plan.layers, m.C = plan.width, m.H = plan.heads, m.K = m.llama ? plan.key_heads() : plan.heads;
  m.T = plan.context, m.V = plan.vocab, m.F = plan.hidden();
  const runtime::ExpertsPlan& x = plan.experts;
  m.E = x.count, m.k = x.on() ? x.per_token : 1;
  m.counted = x.samples;
  m.capacity_factor = x.capacity_factor, m.gates_normalized = x.normalized, m.balance = x.balance, m.z = x.z;
  m.sigmoid = x.sigmoid, m.gate_scale = x.scale, m.shared = x.on() ? x.shared : 0;
  m.dense_layers = x.dense_layers, m.dense_F = plan.dense_hidden();
  m.tied = plan.tied;
  m.frozen = frozen_in_files(plan);
  m.init_stddev = plan.init_stddev, m.norm_eps = plan.norm_eps, m.rope_theta = plan.rope_theta;
  m.fused_attention = plan.fused_attention;
  m.drop_embedding = plan.dropout.embedding;
  m.drop_attention = plan.dropout.attention;
  m.drop_residual = plan.dropout.residual;
  return m;
}

reference::Scaler scaler_of(const runtime::LossScalerPlan& plan) {
  using Kind = reference::Scaler::Kind;
  reference::Scaler s;
  switch (plan.kind) {
    case runtime::LossScalerKind::none:
      break;
    case runtime::LossScalerKind::static_scale:
      s.kind = Kind::fixed, s.scale = plan.loss_scale;
      break;
    case runtime::LossScalerKind::dynamic:
      s.kind = Kind::deepspeed, s.scale = std::exp2(plan.initial_scale_power);
      s.window = plan.loss_scale_window, s.hysteresis = plan.hysteresis;
      s.consecutive = plan.consecutive_hysteresis, s.least = plan.min_loss_scale;
      break;
    case runtime::LossScalerKind::torch:
      if (!plan.enabled) break;
      s.kind = Kind::torch, s.scale = double(static_cast<float>(plan.init_scale));
      s.window = plan.growth_interval, s.growth = plan.growth_factor, s.backoff = plan.backoff_factor;
      break;
  }
  return s;
}

}  // namespace

std::string not_in_reference(const runtime::Definition& d) {
  if (d.model.own != nullptr || (d.model.family != "gpt2" && !d.model.llama()))
    return "the reference knows GPT-2 and Llama, not " + d.model.family;
  if (d.model.experts.on() && d.precision.compute != runtime::ElementType::f32)
    return "the reference knows experts in fp32 only: in 16 bits rounding decides where tokens go";
  if (d.data.packing.on() && d.precision.compute != runtime::ElementType::f32)
    return "the reference knows packed documents in fp32 only: in 16 bits equal documents round alike, and its bounds "
           "take roundings for independent";
  if (d.model.logit_scale) return "the reference knows no scale on the logits";
  if (d.compression.on()) return "the reference knows no compression of gradients";
  if (d.staleness.on()) return "the reference knows no gradients that come late (staleness)";
  if (d.local_sgd.on()) return "the reference knows no workers with weights of their own (local_sgd)";
  if (d.fp8.on()) return "the reference knows no casts to 8 bits";
  if (d.quantised.on()) return "the reference knows no quantised weights";
  if (d.quantised_gradients.on()) return "the reference knows no quantised gradients";
  if (d.quirks.without(runtime::Quirk::experts_by_micro_batch).any())
    return "the reference knows no quirks of other frameworks";
  return "";
}

reference::Training reference_training(const runtime::Definition& d) {
  reference::Training t;
  t.seed = d.training_seed;
  t.model = model_of(d.model);
  t.data.tokens = d.data.tokens;
  const std::size_t trained_on =
      d.data.bytes.size() - std::min(d.data.bytes.size(), std::size_t(d.data.held_out_bytes));
  if (!d.data.synthetic) t.data.text = d.data.bytes.substr(0, trained_on);
  t.data.separator = d.data.packing.separator;
  if (const runtime::SamplerPlan& s = d.data.sampler; s.on())
    t.data.sampler = {true, s.order == runtime::SampleOrder::shuffled, s.drop_last,
                      s.seed >= 0 ? std::uint64_t(s.seed) : d.training_seed, runtime::samples_of_data(d)};
  if (const runtime::CurriculumPlan& c = d.curriculum; c.on()) {
    using Schedule = runtime::CurriculumSchedule;
    t.curriculum = {true,
                    c.schedule == Schedule::fixed_discrete,
                    c.min_difficulty,
                    c.max_difficulty,
                    c.total_step,
                    c.difficulty_step,
                    c.schedule == Schedule::fixed_root ? c.root_degree : 1,
                    c.difficulties,
                    c.max_steps};
  }
  t.held_out.samples = d.evaluation.samples;
  if (!d.data.synthetic && d.evaluation.on()) t.held_out.text = d.data.bytes.substr(trained_on);
  const runtime::OptimizerPlan& o = d.optimizer;
  t.optimizer = {o.type != "Adam", o.lr,         o.betas[0],        o.betas[1],       o.eps,
                 o.weight_decay,   o.decay_all,  o.bias_correction, o.type == "Lion", o.type == "Muon",
                 o.momentum,       o.adamw_rate, o.type == "SGD",   o.dampening,      o.nesterov};
  const runtime::SchedulerPlan& s = d.scheduler;
  t.schedule = {s.type,
                s.warmup_min_lr,
                s.warmup_max_lr,
                s.warmup_num_steps,
                s.total_num_steps,
                s.warmup_type == "linear",
                s.warmup_min_ratio,
                s.cos_min_ratio,
                s.table};
  t.compute = type_of(d.precision.compute), t.gradients = type_of(d.precision.gradients);
  t.masters = d.precision.master_weights;
  t.rounds_at_random = d.precision.stochastic_rounding;
  t.scaler = scaler_of(d.scaler);
  t.clipping = d.gradient_clipping;
  for (const runtime::Change& c : d.changes) t.changes.push_back({c.step, c.lr_scale, c.gradient_clipping});
  t.batch = d.global_batch, t.steps = d.steps;
  t.drawn = d.initial_weights.empty();
  t.skipped_steps = d.skip_steps, t.dropped_batches = d.drop_batches;
  std::sort(t.dropped_batches.begin(), t.dropped_batches.end());
  return t;
}

}  // namespace seeksim::harness
