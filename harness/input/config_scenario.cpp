#include "harness/input/config_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace seeksim::harness {
namespace {

// 0 where it is no whole number: left out, "auto", or wrong, which the loader tells.
std::int64_t whole(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// With all three sizes of a batch there is one number that fits. Else a node, or what divides the batch.
std::int64_t ranks_of(const Json& config) {
  constexpr std::int64_t kMost = 64, kNode = 8;
  const std::int64_t train = whole(config, "train_batch_size"),
                     micro = std::max<std::int64_t>(1, whole(config, "train_micro_batch_size_per_gpu")),
                     steps = std::max<std::int64_t>(1, whole(config, "gradient_accumulation_steps"));
  if (train < 1 || micro > train || steps > train / micro) return kNode;
  const std::int64_t groups = train / (micro * steps);
  if (train % (micro * steps) == 0 && config.contains("gradient_accumulation_steps") &&
      config.contains("train_micro_batch_size_per_gpu"))
    return std::min(groups, kMost);
  for (std::int64_t ranks = kNode; ranks > 1; ranks /= 2)
    if (train % (micro * steps * ranks) == 0) return ranks;
  return 1;
}

}  // namespace

bool is_deepspeed_config(const Json& json) {
  if (!json.is_object()) return false;
  for (const char* key : {"model", "world", "deepspeed", "torch", "steps", "checks", "policies", "name"})
    if (json.contains(key)) return false;
  return std::any_of(json.begin(), json.end(), [](const auto&) { return true; }) &&
         (json.contains("zero_optimization") || json.contains("train_batch_size") ||
          json.contains("train_micro_batch_size_per_gpu"));
}

std::string scenario_around(const Json& config, const std::string& file) {
  const Json scenario = {{"name", std::filesystem::path(file).stem().string()},
                         {"model", {{"layers", 2}, {"width", 64}, {"heads", 4}, {"context", 32}, {"vocab", 256}}},
                         {"data", {{"synthetic", true}}},
                         {"world", {{"nodes", 1}, {"ranks_per_node", ranks_of(config)}}},
                         {"deepspeed", file},
                         {"steps", 4},
                         {"checks", {"golden:bitwise", "ranks_agree"}}};
  return scenario.dump(2);
}

std::string note_of_config(const std::string& scenario, const std::string& file) {
  const Json json = Json::parse(scenario);
  return fmt::format(
      "{0} is a DeepSpeed config, not a scenario: a small GPT-2 trains with it here, {1} steps on {2} simulated ranks. "
      "--set model.layers=N, --set world.ranks_per_node=N and --set steps=N change that, and --set deepspeed.KEY=VALUE "
      "the config. For faults and checks write a scenario around it: {{\"model\": {3}, \"data\": {{\"synthetic\": "
      "true}}, \"world\": {4}, \"deepspeed\": \"{0}\", \"steps\": {1}, \"faults\": [], \"checks\": "
      "[\"golden:bitwise\"]}}",
      file, json.at("steps").dump(), json.at("world").at("ranks_per_node").dump(), json.at("model").dump(),
      json.at("world").dump());
}

}  // namespace seeksim::harness
