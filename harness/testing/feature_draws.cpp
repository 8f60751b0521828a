#include "harness/testing/feature_draws.h"

#include <algorithm>

namespace seeksim::property {

namespace {

// A set of samples that a few steps go through more than once, or do not come to the end of.
void draw_sampler(Json& s) {
  Json& sampler = s["data"]["sampler"];
  const int batch = s["deepspeed"].value("train_batch_size", 1);
  sampler = {{"order", any_of<std::string>({"sequential", "shuffled"})}, {"samples", batch + between(0, 2 * batch)}};
  if (sampler["order"] == "shuffled" && one_in(2)) sampler["seed"] = between(0, 1000);
  if (one_in(2)) sampler["drop_last"] = true;
}

void draw_curriculum(Json& s) {
  const int context = s["model"]["context"], most = between(1, context);
  s["curriculum"] = {{"min_difficulty", between(1, most)}, {"max_difficulty", most}, {"schedule_type", "fixed_root"}};
  s["curriculum"]["schedule_config"] = {{"total_curriculum_step", between(1, 4)},
                                        {"difficulty_step", between(1, 3)},
                                        {"root_degree", any_of<int>({1, 2, 3})}};
}

// Documents of a few tokens: of a text, words. Attention drops nothing there.
void draw_packing(Json& s) {
  s["data"]["packing"] = {{"separator", s["data"].contains("text") ? 32 : 0}};
  Json& dropout = s["model"]["dropout"];
  if (dropout.is_number()) dropout = {{"embedding", dropout}, {"residual", dropout}};
  if (dropout.is_object()) dropout["attention"] = 0;
  if (dropout.is_null()) s["model"].erase("dropout");
}

// It counts samples by tags, which compression would round.
void remove_conservation(Json& s) {
  Json checks = Json::array();
  for (const Json& check : s["checks"])
    if (check != "conservation") checks.push_back(check);
  s["checks"] = checks;
}

}  // namespace

void draw_deepseek(Json& model) {
  if (one_in(2)) model["gate"] = "sigmoid";
  if (one_in(3)) model["gate_scale"] = any_of<double>({0.5, 2.5});
  if (one_in(2)) model["shared_experts"] = between(1, 2);
  const int layers = model["layers"];
  if (layers > 1 && one_in(2)) model["dense_layers"] = between(1, layers - 1);
  if (model.contains("dense_layers") && one_in(2)) model["dense_ffn"] = between(1, 30);
}

void remove_experts(Json& model) {
  for (const char* key :
       {"experts", "experts_per_token", "capacity_factor", "normalize_gates", "aux_loss", "z_loss", "gate",
        "gate_scale", "shared_experts", "dense_layers", "dense_ffn", "expert_sums", "routing_samples"})
    model.erase(key);
}

void draw_compression(Json& s) {
  const int groups = between(1, 6), samples = any_of<int>({1, 2, 4});
  s["compression"] = {{"method", any_of<std::string>({"fp16", "bf16", "int8", "sign", "top"})},
                      {"groups", groups},
                      {"error_feedback", !one_in(4)},
                      {"top", any_of<int>({1, 16, 1024})}};
  s["deepspeed"]["train_batch_size"] = groups * samples;
}

void draw_momentum(Json& s) {
  const int groups = between(1, 6), samples = any_of<int>({1, 2, 4});
  s["compression"] = {{"method", "sign"},
                      {"groups", groups},
                      {"error_feedback", !one_in(4)},
                      {"optimizer", "onebit_adam"},
                      {"start_step", between(1, 3)}};
  Json& deepspeed = s["deepspeed"];
  deepspeed["train_batch_size"] = groups * samples;
  deepspeed["gradient_clipping"] = 0;
  deepspeed["optimizer"]["type"] = "AdamW";
  deepspeed["optimizer"]["params"]["lr"] = 1e-3;  // without error feedback a larger one may diverge up to infinity
  for (const char* of_others : {"momentum", "dampening", "nesterov"}) deepspeed["optimizer"]["params"].erase(of_others);
  deepspeed["data_types"] = {{"grad_accum_dtype", "fp32"}};
  if (deepspeed.contains("bf16")) deepspeed["bf16"].erase("bf16_master_weights_and_grads");
  s["steps"] = between(2, 6);
  remove_conservation(s);
}

void draw_factors(Json& s) {
  const int groups = between(1, 6), samples = any_of<int>({1, 2, 4});
  s["compression"] = {{"method", "power"},     {"groups", groups},         {"error_feedback", !one_in(4)},
                      {"rank", between(1, 3)}, {"warm_start", !one_in(3)}, {"start_step", between(0, 2)}};
  s["deepspeed"]["train_batch_size"] = groups * samples;
  s["steps"] = between(2, 6);
  remove_experts(s["model"]);
  remove_conservation(s);
}

void draw_local_sgd(Json& s, int ranks) {
  const int workers = ranks * between(1, 3), samples = any_of<int>({1, 2, 4});
  s["local_sgd"] = {{"workers", workers}, {"every", between(1, 3)}};
  s["local_sgd"]["outer"] = {{"type", any_of<std::string>({"average", "sgd", "nesterov"})}};
  if (s["local_sgd"]["outer"]["type"] != "average")
    s["local_sgd"]["outer"].update(
        {{"lr", any_of<double>({0.3, 0.7, 1})}, {"momentum", any_of<double>({0, 0.5, 0.9})}});
  s["deepspeed"]["train_batch_size"] = workers * samples;
  if (s["deepspeed"].contains("bf16")) s["deepspeed"]["bf16"].erase("bf16_master_weights_and_grads");
  s["steps"] = between(1, 6);
}

void draw_staleness(Json& s) {
  const int workers = between(1, 6), samples = any_of<int>({1, 2, 4}), bound = between(0, 3);
  Json& late = s["staleness"];
  late = {
      {"workers", workers}, {"bound", bound}, {"delays", any_of<std::string>({"most", "drawn", "listed", "skewed"})}};
  if (late["delays"] == "listed")
    for (int worker = 0; worker < workers; ++worker) late["of_workers"].push_back(between(0, bound));
  s["deepspeed"]["train_batch_size"] = workers * samples;
  s["steps"] = between(1, 6);
}

void draw_buckets(Json& s) {
  if (s["deepspeed"]["zero_optimization"]["stage"] != 0 || s["world"].value("expert", 1) > 1) return;
  for (const char* other : {"compression", "local_sgd", "staleness"})
    if (s.contains(other)) return;
  const auto mib = [] { return between(1, 3000) * 4.0 / (1 << 20); };
  s["ddp"] = {{"bucket_cap_mb", mib()}, {"first_bucket_mb", mib()}};
}

void draw_fp8(Json& s) {
  const Json& world = s["world"];
  const bool cut = world.value("tensor", 1) > 1 || world.value("context", 1) > 1;
  const std::string scaling = any_of<std::string>({"delayed", "delayed", "mx", cut ? "mx" : "current"});
  s["fp8"] = {{"scaling", scaling}, {"format", any_of<std::string>({"hybrid", "e4m3"})}};
  if (scaling != "mx") s["fp8"].update({{"margin", between(0, 2)}, {"power_2_scale", one_in(2)}});
  if (scaling == "delayed")
    s["fp8"].update(
        {{"amax_history_len", between(1, 3)}, {"amax_compute_algo", any_of<std::string>({"max", "most_recent"})}});
  remove_experts(s["model"]);
}

void draw_quantised(Json& s) {
  s["deepspeed"]["zero_optimization"]["zero_quantized_weights"] = true;
  s["quantized_weights_block"] = any_of<int>({1, 8, 64, 256, 1024});
  remove_experts(s["model"]);
}

void draw_quantised_gradients(Json& s) {
  const int inner = any_of<int>({1, 2, 4, 8}), groups = inner * between(1, 4), samples = any_of<int>({1, 2, 4});
  s["deepspeed"]["zero_optimization"]["zero_quantized_gradients"] = true;
  s["deepspeed"]["train_batch_size"] = groups * samples;
  s["deepspeed"]["train_micro_batch_size_per_gpu"] = samples * between(1, 3);
  s["quantized_gradients"] = {{"groups", groups},
                              {"inner", inner},
                              {"bits", any_of<int>({4, 8})},
                              {"outer_bits", any_of<int>({4, 8})},
                              {"block", any_of<int>({1, 8, 64, 256, 1024})}};
  Json& checks = s["checks"];
  checks.erase(std::remove(checks.begin(), checks.end(), "conservation"), checks.end());
  remove_experts(s["model"]);
}

namespace {

void draw_evaluation(Json& s) {
  s["evaluation"] = {{"every_steps", between(0, 2)}, {"samples", between(1, 9)}, {"micro_batch", between(1, 4)}};
  if (s["data"].contains("text")) s["data"]["held_out_bytes"] = s["model"]["context"].get<int>() + between(1, 500);
}

void draw_routing(Json& s) {
  if (!s["model"].contains("experts") || !one_in(3)) return;
  for (const char* apart : {"compression", "local_sgd", "staleness"})
    if (s.contains(apart)) return;
  const int together = between(2, 4);
  s["model"]["routing_samples"] = together;
  s["deepspeed"]["train_batch_size"] = together * between(1, 5);
  s["deepspeed"]["train_micro_batch_size_per_gpu"] = together * between(1, 2);
  if (s.contains("evaluation"))
    s["evaluation"].update({{"samples", together * between(1, 3)}, {"micro_batch", together * between(1, 2)}});
}

}  // namespace

void draw_held_out(Json& s, bool may) {
  if (may && one_in(3)) draw_evaluation(s);
  draw_routing(s);
}

void draw_samples(Json& s, bool alike) {
  if (one_in(3)) draw_sampler(s);
  const auto& checks = s["checks"];
  const bool tags = std::find(checks.begin(), checks.end(), "conservation") != checks.end();
  if (alike || tags || s["model"].contains("experts")) return;
  if (one_in(3)) draw_curriculum(s);
  if (one_in(3)) draw_packing(s);
}

void draw_restarts(Json& s, int ranks, int steps) {
  s["checkpoint"] = {{"path", "checkpoints"}, {"every_steps", between(1, 2)}, {"async", one_in(2)}};
  s["recovery"] = {{"policy", "stop"}, {"watchdog_s", 60}, {"restarts", 3}, {"restart_s", 10}};
  s["faults"] = Json::array();
  for (int n = between(1, 2); n > 0; --n)
    s["faults"].push_back({{"kind", "rank_crash"},
                           {"rank", between(0, ranks - 1)},
                           {"step", between(0, steps - 1)},
                           {"op", "vote"},
                           {"mode", any_of<std::string>({"before", "after"})}});
}

}  // namespace seeksim::property
