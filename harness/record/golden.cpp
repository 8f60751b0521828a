#include "harness/record/golden.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <limits>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/scenario/variants.h"
#include "harness/scenario/written.h"
#include "runtime/files/bounded_json.h"
#include "runtime/layout/parameters.h"
#include "runtime/plan/optimizer_kinds.h"
#include "runtime/rules/quirks.h"

namespace seeksim::harness {

extern const char* const kBuildCommit;
extern const char* const kBuildInfo;

namespace {

std::string hash_text(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }
std::string content_hash(const std::string& bytes) { return hash_text(XXH3_128bits(bytes.data(), bytes.size())); }

// JSON numbers cannot be NaN or infinite.
Json number(float value) {
  if (value != value) return "NaN";
  if (value - value != 0) return value > 0 ? "Infinity" : "-Infinity";
  return double(value);
}

float to_float(const Json& value) {
  if (value.is_number()) return float(value.get<double>());
  const std::string word = value.get<std::string>();
  if (word == "Infinity") return std::numeric_limits<float>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<float>::infinity();
  if (word != "NaN") throw std::runtime_error("a number was expected, found " + in_quotes(word));
  return std::numeric_limits<float>::quiet_NaN();
}

std::int64_t whole(const Json& json, const char* key) {
  const auto n = runtime::whole_number<std::int64_t>(json.at(key));
  if (!n) throw std::runtime_error(fmt::format("{} is no whole number: {}", key, json.at(key).dump()));
  return *n;
}

std::uint64_t from_hex(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) {
    throw std::runtime_error("16 hexadecimal digits were expected, found " + in_quotes(text));
  }
  return value;
}

// Only of what is not plain fp32, so that keys of plain runs stay what they were.
Json precision_fields(const runtime::Definition& d) {
  const runtime::LossScalerPlan& s = d.scaler;
  return {{"compute", std::string(name(d.precision.compute))},
          {"gradients", std::string(name(d.precision.gradients))},
          {"master_weights", d.precision.master_weights},
          {"scaler",
           {int(s.kind), s.loss_scale, s.initial_scale_power, s.loss_scale_window, s.hysteresis,
            s.consecutive_hysteresis, s.min_loss_scale, s.raise_error_at_min_scale, s.init_scale, s.growth_factor,
            s.backoff_factor, s.growth_interval, s.enabled}}};
}

// Likewise.
Json compression_fields(const runtime::CompressionPlan& c) {
  const bool largest = c.method == runtime::Compression::top;
  Json fields = {{"method", int(c.method)},
                 {"groups", c.groups},
                 {"error_feedback", c.error_feedback},
                 {"top", largest ? Json(c.top) : Json(nullptr)}};
  if (c.of_momentum()) fields.update({{"optimizer", int(c.optimizer)}, {"start_step", c.start_step}});
  if (c.in_factors()) fields.update({{"rank", c.rank}, {"warm_start", c.warm_start}, {"start_step", c.start_step}});
  return fields;
}

// Likewise.
Json local_sgd_fields(const runtime::LocalSgdPlan& l) {
  Json fields = {{"workers", l.workers}, {"every", l.every}, {"outer", int(l.outer.type)}};
  if (l.outer.type != runtime::OuterRule::average) fields.update({{"lr", l.outer.lr}, {"momentum", l.outer.momentum}});
  return fields;
}

// Likewise.
Json staleness_fields(const runtime::StalenessPlan& s) {
  const bool drawn = s.delays == runtime::Delays::drawn;
  return {{"workers", s.workers},
          {"bound", s.bound},
          {"delays", int(s.delays)},
          {"of_workers", s.of_workers},
          {"seed", drawn ? Json(s.seed) : Json(nullptr)}};
}

// Likewise.
Json fp8_fields(const runtime::Fp8Plan& f) {
  return {
      {"scaling", int(f.scaling)},    {"format", int(f.format)}, {"history", f.keeps_state() ? f.amax_history_len : 0},
      {"most_recent", f.most_recent}, {"margin", f.margin},      {"power_2_scale", f.power_2_scale}};
}

// Likewise.
Json experts_fields(const runtime::ModelPlan& m) {
  const runtime::ExpertsPlan& x = m.experts;
  Json fields = {{"count", x.count},           {"per_token", x.per_token}, {"capacity_factor", x.capacity_factor},
                 {"normalized", x.normalized}, {"balance", x.balance},     {"z", x.z}};
  if (x.deepseek())
    fields.update({{"sigmoid", x.sigmoid}, {"scale", x.scale}, {"shared", x.shared}, {"dense", x.dense_layers}});
  if (x.samples > 1) fields["samples"] = x.samples;
  if (x.dense_layers > 0) fields["dense_ffn"] = m.dense_hidden();
  return fields;
}

// Of the numbers those that its kind has. The order of fields is part of a key.
Json optimizer_fields(const runtime::OptimizerPlan& o) {
  const bool sgd = o.type == "SGD";
  Json fields = {{"type", o.type}, {"lr", o.lr}};
  if (sgd) fields.update({{"momentum", o.momentum}, {"dampening", o.dampening}, {"nesterov", o.nesterov}});
  if (!sgd) fields.update({{"beta1", o.betas[0]}, {"beta2", o.betas[1]}});
  if (!sgd && o.type != "Lion") fields["eps"] = o.eps;
  fields.update({{"weight_decay", o.weight_decay}, {"decay_all", o.decay_all}});
  if (o.type == "Muon") fields.update({{"momentum", o.momentum}, {"adamw_rate", o.adamw_rate}});
  if (runtime::keeps_mean(o)) fields["ema_decay"] = o.ema_decay;
  if (!o.bias_correction) fields["bias_correction"] = false;
  return fields;
}

// What is there only where it is used: keys of other trainings stay as they are.
void add_samples(Json& fields, const runtime::Definition& d) {
  if (const runtime::SamplerPlan& s = d.data.sampler; s.on())
    fields["sampler"] = {{"order", int(s.order)}, {"seed", s.seed}, {"samples", s.samples}, {"drop_last", s.drop_last}};
  if (d.data.packing.on()) fields["packing"] = d.data.packing.separator;
  if (const runtime::CurriculumPlan& c = d.curriculum; c.on())
    fields["curriculum"] = {{"schedule", int(c.schedule)},    {"min", c.min_difficulty},   {"max", c.max_difficulty},
                            {"total", c.total_step},          {"each", c.difficulty_step}, {"root", c.root_degree},
                            {"difficulties", c.difficulties}, {"max_steps", c.max_steps}};
}

}  // namespace

std::string hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

Json key_fields(const runtime::Definition& d) {
  const runtime::ModelPlan& m = d.model;
  const runtime::OptimizerPlan& o = d.optimizer;
  const runtime::SchedulerPlan& s = d.scheduler;
  Json fields;
  fields["contract"] = kContract;
  fields["numerics"] = "exact";
  fields["training_seed"] = d.training_seed;
  fields["model"] = {{"family", m.family}, {"layers", m.layers},           {"width", m.width},
                     {"heads", m.heads},   {"context", m.context},         {"vocab", m.vocab},
                     {"tied", m.tied},     {"init_stddev", m.init_stddev}, {"norm_eps", m.norm_eps}};
  if (m.llama())
    fields["model"].update({{"kv_heads", m.key_heads()}, {"ffn", m.hidden()}, {"rope_theta", m.rope_theta}});
  if (m.experts.on()) fields["model"]["experts"] = experts_fields(m);
  if (m.experts.slabs) fields["model"]["expert_sums"] = "slabs";
  if (m.fused_attention) fields["model"]["attention"] = "fused";
  if (m.segmented_gradients) fields["model"]["gradient_sums"] = "segments";
  if (m.logit_scale) fields["model"]["logit_scale"] = true;
  if (m.dropout.any()) fields["model"]["dropout"] = dropout_json(m.dropout);
  if (!m.frozen.empty()) fields["model"]["frozen"] = runtime::frozen_names(m);
  // The text's content, not its name. A synthetic source has none.
  if (!d.data.tokens.empty()) {
    const XXH128_hash_t hash = XXH3_128bits(d.data.tokens.data(), d.data.tokens.size() * sizeof(d.data.tokens[0]));
    fields["data"] = "batches " + hash_text(hash);
  } else {
    fields["data"] = d.data.synthetic ? std::string("synthetic") : "text " + content_hash(d.data.bytes);
  }
  fields["optimizer"] = optimizer_fields(o);
  fields["scheduler"] = {{"type", s.type}};
  if (s.type == "table") {
    fields["scheduler"]["table"] = s.table;
  } else if (!s.type.empty()) {
    fields["scheduler"].update({{"warmup_min_lr", s.warmup_min_lr},
                                {"warmup_max_lr", s.warmup_max_lr},
                                {"warmup_num_steps", s.warmup_num_steps},
                                {"total_num_steps", s.total_num_steps},
                                {"warmup_type", s.warmup_type},
                                {"warmup_min_ratio", s.warmup_min_ratio},
                                {"cos_min_ratio", s.cos_min_ratio}});
  }
  add_samples(fields, d);
  if (d.data.held_out_bytes > 0) fields["held_out_bytes"] = d.data.held_out_bytes;
  if (d.evaluation.on())
    fields["evaluation"] = {{"every_steps", d.evaluation.every_steps}, {"samples", d.evaluation.samples}};
  fields["gradient_clipping"] = d.gradient_clipping;
  if (d.precision != runtime::PrecisionPlan{}) fields["precision"] = precision_fields(d);
  if (d.precision.stochastic_rounding) fields["precision"]["stochastic_rounding"] = true;
  if (d.compression.on()) fields["compression"] = compression_fields(d.compression);
  if (d.local_sgd.on()) fields["local_sgd"] = local_sgd_fields(d.local_sgd);
  if (d.staleness.on()) fields["staleness"] = staleness_fields(d.staleness);
  if (d.fp8.on()) fields["fp8"] = fp8_fields(d.fp8);
  if (d.quantised.on()) fields["quantised_weights"] = d.quantised.block;
  if (const runtime::QuantisedGradientsPlan& q = d.quantised_gradients; q.on())
    fields["quantised_gradients"] = {{"groups", q.groups},
                                     {"inner", q.inner},
                                     {"bits", q.bits},
                                     {"outer_bits", q.inner > 0 ? q.outer_bits : 0},
                                     {"block", q.block}};
  if (d.quirks.any()) fields["quirks"] = quirk_names(d.quirks);
  if (!d.skip_steps.empty()) fields["skip_steps"] = d.skip_steps;
  if (!d.drop_batches.empty()) fields["drop_batches"] = d.drop_batches;
  for (const runtime::Change& change : d.changes) {
    Json one = {{"step", change.step}};
    if (change.lr_scale) one["lr_scale"] = *change.lr_scale;
    if (change.gradient_clipping) one["gradient_clipping"] = *change.gradient_clipping;
    fields["changes"].push_back(std::move(one));
  }
  fields["global_batch"] = d.global_batch;
  fields["steps"] = d.steps;
  fields["initial_weights"] = d.initial_weights.empty() ? Json(nullptr) : Json(content_hash(d.initial_weights));
  return fields;
}

std::string golden_key(const runtime::Definition& definition) {
  const std::string text = key_fields(definition).dump();
  return hex(XXH3_64bits(text.data(), text.size()));
}

std::string golden_file_name(const Scenario& scenario, const std::string& key) {
  return fmt::format("{}-{}.json", scenario.name, key);
}

namespace {
// What a golden of this scenario has to have and does not; empty: nothing.
std::string lacks(const Golden& golden, const Scenario& scenario) {
  const std::vector<std::string> names = runtime::parameter_names(scenario.train.definition.model);
  const auto& tensors = golden.state.by_tensor;
  const bool same = std::equal(names.begin(), names.end(), tensors.begin(), tensors.end(),
                               [](const std::string& name, const auto& tensor) { return name == tensor.first; });
  if (!same) return fmt::format("its {} tensors are not the {} of the model", tensors.size(), names.size());
  const auto steps = std::size_t(std::max<std::int64_t>(0, scenario.train.definition.steps));
  return golden.loss.size() == steps ? "" : fmt::format("it has {} losses for {} steps", golden.loss.size(), steps);
}
}  // namespace

std::optional<Golden> stored_golden(const Scenario& scenario) {
  const std::string key = golden_key(one_rank(scenario).train.definition);
  const std::string ending = '-' + key + ".json";
  const std::size_t slash = scenario.file.rfind('/');
  const std::string beside = slash == std::string::npos ? "." : scenario.file.substr(0, slash);
  for (const std::string& folder :
       {top_folder() + "/golden", beside + "/golden", beside + "/../golden", beside + "/../../golden"}) {
    for (const std::string& name : list_folder(folder)) {
      if (name.size() <= ending.size() || name.compare(name.size() - ending.size(), ending.size(), ending) != 0)
        continue;
      const std::string file = folder + '/' + name;
      Golden golden = read_golden(read_file(file, kJsonBytesMax * 64), file);
      const std::string wrong = golden.key != key ? "its name and its key differ" : lacks(golden, scenario);
      if (wrong.empty()) return golden;
      throw BadInput(file, wrong, "Write it again: seeksim golden SCENARIO --write.");
    }
  }
  return std::nullopt;
}

Golden read_golden(const std::string& text, const std::string& file) {
  try {
    const Json json = parse_json(text, file).value;
    Golden golden;
    golden.stored = true;
    golden.origin = file;
    golden.key = json.at("key").get<std::string>();
    golden.state.params = from_hex(json.at("params_digest").get<std::string>());
    golden.state.optimizer = from_hex(json.at("optimizer_digest").get<std::string>());
    golden.state.data_position = whole(json, "data_position");
    golden.state.optimizer_steps = whole(json, "optimizer_steps");
    golden.state.loss_scale = json.at("loss_scale").get<double>();
    for (const auto& [name, digest] : json.at("tensors").items()) {
      golden.state.by_tensor.emplace_back(name, from_hex(digest.get<std::string>()));
    }
    for (const Json& one : json.value("gradients", Json::array()))
      golden.gradients.push_back(from_hex(one.get<std::string>()));
    for (const Json& one : json.value("evaluations", Json::array()))
      golden.evaluations.emplace_back(whole(one, "steps"), to_float(one.at("loss")));
    for (const Json& one : json.at("loss")) golden.loss.push_back(to_float(one));
    for (const Json& one : json.at("grad_norm")) golden.grad_norm.push_back(to_float(one));
    if (golden.loss.size() != golden.grad_norm.size())
      throw std::runtime_error(
          fmt::format("it has {} losses and {} gradient norms", golden.loss.size(), golden.grad_norm.size()));
    return golden;
  } catch (const BadInput&) {
    throw;
  } catch (const std::exception& error) {
    throw BadInput(file, fmt::format("this is no golden: {}", error.what()),
                   "Remove it, or write it again: seeksim golden SCENARIO --write.");
  }
}

Golden golden_of(const RunRecord& run, const std::string& key) {
  Golden golden;
  golden.key = key;
  golden.origin = fmt::format("one-rank run, {:.2f} s", run.wall_s);
  golden.state = run.state().value();
  golden.gradients = run.training.gradient_digests;
  for (const runtime::EvaluationRecord& one : run.training.evaluations)
    golden.evaluations.emplace_back(one.steps, one.loss);
  for (const runtime::StepRecord& step : run.steps) {
    golden.loss.push_back(step.loss);
    golden.grad_norm.push_back(step.grad_norm);
  }
  return golden;
}

Json to_json(const Golden& golden, const Scenario& scenario) {
  Json json;
  json["schema"] = "seeksim-golden-1";
  json["name"] = scenario.name;
  json["key"] = golden.key;
  json["made_by"] = {{"build", kBuildInfo}, {"commit", kBuildCommit}, {"run", "one rank, no faults"}};
  json["data"] = data_json(scenario);
  json["keyed_by"] = key_fields(scenario.train.definition);
  json["params_digest"] = hex(golden.state.params);
  json["optimizer_digest"] = hex(golden.state.optimizer);
  json["data_position"] = golden.state.data_position;
  json["optimizer_steps"] = golden.state.optimizer_steps;
  json["loss_scale"] = golden.state.loss_scale;
  json["loss"] = Json::array();
  json["grad_norm"] = Json::array();
  for (const float loss : golden.loss) json["loss"].push_back(number(loss));
  for (const float norm : golden.grad_norm) json["grad_norm"].push_back(number(norm));
  for (const auto& [steps, loss] : golden.evaluations)
    json["evaluations"].push_back({{"steps", steps}, {"loss", number(loss)}});
  for (const std::uint64_t digest : golden.gradients) json["gradients"].push_back(hex(digest));
  json["tensors"] = Json::object();
  for (const auto& [name, digest] : golden.state.by_tensor) json["tensors"][name] = hex(digest);
  return json;
}

std::string difference(const Golden& golden, const runtime::StateDigest& state) {
  const runtime::StateDigest& want = golden.state;
  if (state.data_position != want.data_position) {
    return fmt::format("data position {} instead of {}", state.data_position, want.data_position);
  }
  if (state.optimizer_steps != want.optimizer_steps) {
    return fmt::format("{} optimizer steps instead of {}", state.optimizer_steps, want.optimizer_steps);
  }
  if (state.loss_scale != want.loss_scale)
    return fmt::format("loss scale {} instead of {}", state.loss_scale, want.loss_scale);
  std::size_t differing = 0;
  std::string first;
  for (std::size_t i = 0; i < std::min(state.by_tensor.size(), want.by_tensor.size()); ++i) {
    if (state.by_tensor[i] == want.by_tensor[i]) continue;
    if (differing++ == 0) first = want.by_tensor[i].first;
  }
  if (state.by_tensor.size() != want.by_tensor.size())
    return fmt::format("{} tensors instead of {}", state.by_tensor.size(), want.by_tensor.size());
  if (differing > 0) {
    return fmt::format("{} of {} tensors differ, the first is {}", differing, want.by_tensor.size(), first);
  }
  if (state.params != want.params) return fmt::format("params {} instead of {}", hex(state.params), hex(want.params));
  if (state.optimizer != want.optimizer) {
    return fmt::format("optimizer state {} instead of {}", hex(state.optimizer), hex(want.optimizer));
  }
  return "";
}

}  // namespace seeksim::harness
