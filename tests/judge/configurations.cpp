#include "tests/judge/configurations.h"

#include <map>

#include "harness/loading/load.h"

namespace seeksim::harness::testing {
namespace {

// Twelve samples a step, of which a golden's second micro-batch has four; a rate that warms up and falls to 0; a norm
// that is clipped.
constexpr const char* kText = R"({
  "name": "judged", "training_seed": 7,
  "model": {"family": "gpt2", "layers": 2, "width": 16, "heads": 2, "context": 8, "vocab": 32},
  "data": {"synthetic": true},
  "world": {"nodes": 1, "ranks_per_node": 2},
  "deepspeed": {
    "train_batch_size": 12, "gradient_clipping": 0.05,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01, "warmup_num_steps": 3,
                             "total_num_steps": 6}}},
  "steps": 6})";

// The first steps overflow: hysteresis tolerates one, then the scale is halved until they do not, and grows again.
const std::vector<std::string> kFp16 = {
    R"(deepspeed.fp16={"enabled":true,"initial_scale_power":23,"loss_scale_window":2,"hysteresis":2})", "steps=14"};

const std::map<std::string, std::vector<std::string>>& changes() {
  static const std::map<std::string, std::vector<std::string>> kChanges = {
      {"gpt2", {}},
      {"loose", {"deepspeed.gradient_clipping=100"}},
      {"dropout", {R"(model.dropout={"embedding":0.1,"attention":0.2,"residual":0.3})"}},
      {"frozen", {R"(model.frozen=["wpe.weight","h.0.ln_1.*"])"}},
      {"fp16", kFp16},
      {"fp16_torch",
       {R"(deepspeed.fp16={"enabled":true})", R"(grad_scaler={"init_scale":8388608,"growth_interval":2})", "steps=10"}},
      {"lion", {R"(deepspeed.optimizer={"type":"Lion","params":{"lr":0.01,"betas":[0.9,0.99],"weight_decay":0.1}})"}},
      {"sgd",
       {R"(deepspeed.optimizer={"type":"SGD","params":{"lr":0.01,"momentum":0.9,"dampening":0.2,"weight_decay":0.1}})"}},
      {"muon",
       {R"(deepspeed.optimizer={"type":"Muon","params":{"muon_lr":0.02,"adam_lr":0.005,"weight_decay":0.1}})",
        "deepspeed.scheduler={}"}},
      {"bf16", {R"(deepspeed.bf16={"enabled":true})"}},
      {"llama", {"model.family=llama", "model.heads=4", "model.kv_heads=2"}},
      {"experts",
       {"model.family=llama", "model.ffn=12", "model.experts=4", "model.experts_per_token=2", "model.capacity_factor=1",
        "model.aux_loss=0.5", "model.z_loss=0.02"}},
      {"routing_groups",
       {"model.family=llama", "model.ffn=12", "model.experts=4", "model.experts_per_token=2",
        "model.capacity_factor=0.75", "model.aux_loss=0.5", "model.routing_samples=2"}},
      {"deepseek",
       {"model.family=llama", "model.ffn=12", "model.experts=4", "model.experts_per_token=2", "model.gate=sigmoid",
        "model.gate_scale=2.5", "model.shared_experts=1", "model.dense_layers=1", "model.aux_loss=0.5",
        "model.z_loss=0.02"}},
  };
  return kChanges;
}

}  // namespace

Scenario configuration(const std::string& name, const std::vector<std::string>& sets) {
  LoadOptions options;
  options.sets = changes().at(name);
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return load_scenario_text(kText, name + ".json", options);
}

std::vector<std::string> configuration_names() {
  std::vector<std::string> names;
  for (const auto& [name, sets] : changes()) names.push_back(name);
  return names;
}

}  // namespace seeksim::harness::testing
