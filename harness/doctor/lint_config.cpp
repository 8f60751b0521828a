// What a ds_config.json and a hostfile really ask for.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <sstream>

#include "harness/doctor/lint.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

class ConfigLint {
 public:
  ConfigLint(const Json& config, const std::string& file, std::int64_t gpus)
      : config_(config), file_(file), gpus_(std::min(gpus, std::int64_t(kMost))) {}

  std::vector<Advice> advice() {
    if (!config_.is_object()) {
      say(Weight::wrong, "", "an object is expected", "");
      return std::move(found_);
    }
    misspelt();
    batch();
    precision();
    zero();
    offload();
    optimizer();
    filled_by_others();
    return std::move(found_);
  }

 private:
  void say(Weight weight, std::string path, std::string what, std::string next) {
    found_.push_back({weight, {file_, std::move(path), std::move(what), std::move(next)}});
  }
  const Json& at(const char* pointer) const {
    static const Json nothing;
    const Json::json_pointer p(pointer);
    return config_.contains(p) ? config_.at(p) : nothing;
  }
  bool has(const char* pointer) const { return config_.contains(Json::json_pointer(pointer)); }
  bool on(const char* pointer) const { return at(pointer) == true; }
  double number(const char* pointer, double standard) const {
    return at(pointer).is_number() ? at(pointer).get<double>() : standard;
  }
  // At most two millions, which nobody means: so the product of three of them does not wrap.
  static constexpr double kMost = 2e6;
  std::int64_t whole(const char* pointer) const { return std::int64_t(std::clamp(number(pointer, 0), -kMost, kMost)); }
  int stage() const { return int(whole("/zero_optimization/stage")); }

  // DeepSpeed reads what it knows from the top level and says nothing of the rest.
  void misspelt() {
    static const std::vector<std::string> known = {"train_batch_size",
                                                   "train_micro_batch_size_per_gpu",
                                                   "gradient_accumulation_steps",
                                                   "optimizer",
                                                   "scheduler",
                                                   "fp16",
                                                   "bf16",
                                                   "amp",
                                                   "gradient_clipping",
                                                   "prescale_gradients",
                                                   "gradient_predivide_factor",
                                                   "gradient_allreduce_op",
                                                   "sparse_gradients",
                                                   "communication_data_type",
                                                   "seq_parallel_communication_data_type",
                                                   "zero_optimization",
                                                   "zero_allow_untested_optimizer",
                                                   "zero_force_ds_cpu_optimizer",
                                                   "data_types",
                                                   "aio",
                                                   "activation_checkpointing",
                                                   "checkpoint",
                                                   "pipeline",
                                                   "steps_per_print",
                                                   "wall_clock_breakdown",
                                                   "memory_breakdown",
                                                   "dump_state",
                                                   "flops_profiler",
                                                   "comms_logger",
                                                   "tensorboard",
                                                   "wandb",
                                                   "csv_monitor",
                                                   "comet",
                                                   "elasticity",
                                                   "data_efficiency",
                                                   "curriculum_learning",
                                                   "progressive_layer_drop",
                                                   "eigenvalue",
                                                   "sparse_attention",
                                                   "compression_training",
                                                   "quantize_training",
                                                   "hybrid_engine",
                                                   "autotuning",
                                                   "nebula",
                                                   "dataloader_drop_last",
                                                   "disable_allgather",
                                                   "use_node_local_storage",
                                                   "load_universal_checkpoint",
                                                   "managed_gradient_accumulation",
                                                   "torch_autocast",
                                                   "tensor_parallel",
                                                   "compile",
                                                   "timers",
                                                   "graph_harvesting",
                                                   "use_data_before_expert_parallel_"};
    for (const auto& [key, value] : config_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string meant = slip_of(key, known);
      const bool slip = !meant.empty();
      say(slip ? Weight::wrong : Weight::doubtful, key,
          "seeksim does not know this key, and DeepSpeed silently ignores unknown keys at the top level",
          slip ? fmt::format("Did you mean \"{}\"?", meant) : "Does it belong in a section?");
    }
  }

  void batch() {
    const std::int64_t train = whole("/train_batch_size"), micro = whole("/train_micro_batch_size_per_gpu"),
                       steps = whole("/gradient_accumulation_steps");
    if (!has("/train_batch_size") && !has("/train_micro_batch_size_per_gpu")) {
      say(Weight::wrong, "",
          "neither train_batch_size nor train_micro_batch_size_per_gpu is given: DeepSpeed refuses it",
          "Give one of them.");
    }
    for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
      const std::string pointer = std::string("/") + key;
      if (at(pointer.c_str()).is_number() && whole(pointer.c_str()) < 1)
        say(Weight::wrong, key, "has to be greater than 0", "");
    }
    if (train > 0 && micro > 0) {
      const std::int64_t share = micro * std::max<std::int64_t>(steps, 1);
      if (train % share != 0) {
        say(Weight::wrong, "train_batch_size",
            fmt::format(
                "is the batch of all GPUs together, and {} is no multiple of {} ({} a GPU and micro-batch x {}): "
                "no number of GPUs fits",
                train, share, micro, std::max<std::int64_t>(steps, 1)),
            fmt::format("For example {}.", (train / share + 1) * share));
      } else if (gpus_ > 0 && steps > 0 && train != share * gpus_) {
        say(Weight::wrong, "train_batch_size",
            fmt::format("{} is not {} x {} x {} GPUs = {}", train, micro, steps, gpus_, share * gpus_),
            fmt::format("Use {}, or leave one of the three out.", share * gpus_));
      }
    }
    if (steps > 1 && stage() == 2)
      say(Weight::note, "gradient_accumulation_steps",
          fmt::format("stage 2 reduces gradients after each of the {} micro-batches, not once a step", steps), "");
    if (steps > 1 && stage() == 3)
      say(Weight::note, "gradient_accumulation_steps",
          fmt::format("stage 3 gathers all parameters twice in each of the {} micro-batches", steps), "");
    if (on("/elasticity/enabled") &&
        (has("/train_batch_size") || has("/train_micro_batch_size_per_gpu") || has("/gradient_accumulation_steps")))
      say(Weight::wrong, "elasticity", "decides the batch, and DeepSpeed refuses batch keys next to it",
          "Remove them.");
  }

  void precision() {
    if (on("/fp16/enabled") && on("/bf16/enabled"))
      say(Weight::wrong, "fp16.enabled", "DeepSpeed refuses fp16 and bf16 together", "Choose one.");
    static const std::set<std::string> scaler = {"loss_scale", "initial_scale_power",    "loss_scale_window",
                                                 "hysteresis", "consecutive_hysteresis", "min_loss_scale"};
    for (const auto& [key, value] : at("/bf16").items()) {
      if (scaler.contains(key))
        say(Weight::wrong, "bf16." + key, "bf16 has no loss scale, and DeepSpeed refuses the key", "Remove it.");
    }
    if (on("/fp16/enabled") && number("/fp16/loss_scale", 0) > 0) {
      for (const char* key : {"initial_scale_power", "loss_scale_window", "hysteresis"}) {
        if (has((std::string("/fp16/") + key).c_str()))
          say(Weight::doubtful, std::string("fp16.") + key, "has no effect: a loss_scale other than 0 is fixed",
              "Set fp16.loss_scale to 0, which means dynamic.");
      }
    }
    if (on("/fp16/enabled") && number("/fp16/loss_scale", 0) == 0) {
      if (number("/fp16/loss_scale_window", 1000) <= 0 || number("/fp16/min_loss_scale", 1) <= 0)
        say(Weight::wrong, "fp16", "loss_scale_window and min_loss_scale have to be greater than 0", "");
      if (number("/fp16/min_loss_scale", 1) > 1 && stage() >= 1)
        say(Weight::doubtful, "fp16.min_loss_scale",
            "does not help: stages 1 to 3 raise an exception as soon as a step overflows at this scale", "Use 1.");
    }
    if (on("/bf16/enabled") && !has("/data_types/grad_accum_dtype"))
      say(Weight::note, "data_types.grad_accum_dtype", "is not given: gradients are accumulated in bf16",
          "Use \"fp32\" with many micro-batches.");
    const Json& type = at("/communication_data_type");
    static const std::vector<std::string> types = {"fp16", "bf16", "fp32"};
    if (type.is_string() && std::find(types.begin(), types.end(), type.get<std::string>()) == types.end())
      say(Weight::wrong, "communication_data_type", "DeepSpeed knows fp16, bf16 and fp32",
          did_you_mean(type.get<std::string>(), types));
    if (!has("/gradient_clipping"))
      say(Weight::doubtful, "gradient_clipping",
          "is not given, and DeepSpeed's default changed from 0 (off) to 1.0 in June 2026: versions train differently",
          "Set the value that you want.");
  }

  void zero() {
    const int level = stage();
    if (level < 0 || level > 3) say(Weight::wrong, "zero_optimization.stage", "goes from 0 to 3", "");
    for (const auto& [key, value] : at("/zero_optimization").items()) {
      if (key.rfind("stage3_", 0) == 0 && level < 3)
        say(Weight::doubtful, "zero_optimization." + key, fmt::format("decides nothing at stage {}", level),
            "Remove it, or use stage 3.");
    }
    const double bytes = on("/fp16/enabled") || on("/bf16/enabled") ? 2 : 4;
    for (const char* key : {"reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size"}) {
      const double elements = number((std::string("/zero_optimization/") + key).c_str(), 0);
      if (elements <= 5e8) continue;
      const bool twice = on("/zero_optimization/overlap_comm") || level == 3;
      say(Weight::doubtful, std::string("zero_optimization.") + key,
          fmt::format("counts elements, not bytes: {:.3g} GB of each GPU's memory{}", elements * bytes / 1e9,
                      twice ? fmt::format(", and as much again with overlap_comm") : ""),
          "5e8 is the default; 5e7 costs little speed.");
    }
    const bool scatters = !has("/zero_optimization/reduce_scatter") || on("/zero_optimization/reduce_scatter");
    if (level >= 2 && scatters && on("/prescale_gradients"))
      say(Weight::wrong, "prescale_gradients", fmt::format("is refused at stage {} with reduce_scatter", level),
          "Remove it.");
    if (level >= 2 && scatters && number("/gradient_predivide_factor", 1) != 1)
      say(Weight::wrong, "gradient_predivide_factor", fmt::format("is refused at stage {} with reduce_scatter", level),
          "Use 1.");
    if (level == 3 && at("/gradient_allreduce_op") == "sum")
      say(Weight::wrong, "gradient_allreduce_op", "stage 3 refuses \"sum\"", "Use \"mean\".");
  }

  void offload() {
    const auto goes_to = [&](const std::string& section) {
      const Json& device = at((section + "/device").c_str());
      return device.is_string() && device != "none" ? device.get<std::string>() : std::string();
    };
    const std::string optimizer = goes_to("/zero_optimization/offload_optimizer"),
                      parameters = goes_to("/zero_optimization/offload_param");
    if (!parameters.empty() && stage() < 3)
      say(Weight::wrong, "zero_optimization.offload_param",
          fmt::format("is ignored at stage {}: parameters stay where they are", stage()), "Use stage 3, or remove it.");
    if (!optimizer.empty() && stage() < 1)
      say(Weight::wrong, "zero_optimization.offload_optimizer", "is ignored at stage 0", "Use stage 1, 2 or 3.");
    for (const char* section : {"offload_optimizer", "offload_param"}) {
      const std::string pointer = std::string("/zero_optimization/") + section;
      if (goes_to(pointer) == "nvme" && !at((pointer + "/nvme_path").c_str()).is_string())
        say(Weight::wrong, std::string("zero_optimization.") + section, "nvme without nvme_path",
            "Give a folder on the NVMe disk.");
      for (const char* disk : {"/tmp", "/dev/shm"}) {
        const Json& path = at((pointer + "/nvme_path").c_str());
        if (path.is_string() && path.get<std::string>().rfind(disk, 0) == 0)
          say(Weight::doubtful, std::string("zero_optimization.") + section + ".nvme_path",
              fmt::format("{} is memory on many machines, and offloading was meant to save memory", disk),
              "Give a folder on a local disk.");
      }
    }
    if (number("/zero_optimization/offload_optimizer/ratio", 1) < 1 && stage() < 3)
      say(Weight::wrong, "zero_optimization.offload_optimizer.ratio", "partial offloading needs stage 3", "Use 1.");
  }

  void optimizer() {
    if (has("/optimizer/params/max_grad_norm"))
      say(Weight::wrong, "optimizer.params.max_grad_norm", "DeepSpeed refuses it there", "Set gradient_clipping.");
    if (at("/optimizer/type") == "Adam" && !has("/optimizer/params/adam_w_mode"))
      say(Weight::note, "optimizer.type", "\"Adam\" is AdamW in DeepSpeed (adam_w_mode is true)",
          "Set optimizer.params.adam_w_mode to false for L2 decay.");
    const Json& type = at("/optimizer/type");
    const bool adam = type.is_string() && type.get<std::string>().rfind("Adam", 0) == 0;
    if (adam && !has("/optimizer/params/weight_decay"))
      say(Weight::note, "optimizer.params.weight_decay", "is 0 in DeepSpeed's Adam, and 0.01 in PyTorch's AdamW", "");
    const Json& scheduler = at("/scheduler/type");
    if (scheduler.is_string() && scheduler.get<std::string>().rfind("Warmup", 0) == 0 &&
        number("/scheduler/params/warmup_min_lr", 0) == 0)
      say(Weight::note, "scheduler.params.warmup_min_lr",
          "the first two steps use this rate, so they do not update the weights", "");
    const double warm = number("/scheduler/params/warmup_num_steps", 1000),
                 all = number("/scheduler/params/total_num_steps", 0);
    if (all > 0 && warm >= all)
      say(Weight::wrong, "scheduler.params.warmup_num_steps",
          fmt::format("{:g} of {:g} steps: the rate never reaches its peak", warm, all), "Use fewer.");
  }

  // Values that only the Hugging Face Trainer fills in.
  void filled_by_others() {
    std::string keys;
    int n = 0;
    const Json flat = config_.flatten();
    for (const auto& [pointer, value] : flat.items()) {
      if (value != "auto") continue;
      if (++n <= 4) keys += (keys.empty() ? "" : ", ") + pointer.substr(1);
    }
    if (n > 4) keys += fmt::format(" and {} more", n - 4);
    if (n > 0)
      say(Weight::note, "", fmt::format("only the Hugging Face Trainer fills in \"auto\" ({})", keys),
          "DeepSpeed alone uses its default, or reports an error.");
  }

  const Json& config_;
  const std::string file_;
  std::int64_t gpus_;
  std::vector<Advice> found_;
};

}  // namespace

std::vector<Advice> lint_config(const Json& config, const std::string& file, std::int64_t gpus) {
  return ConfigLint(config, file, gpus).advice();
}

namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// As DeepSpeed's expression reads a line: ^(\S+)\s+slots=(\d+). By hand, since std::regex recurses for each character.
struct HostLine {
  std::string host;
  std::string slots;  // digits
};
std::optional<HostLine> host_line(const std::string& line) {
  constexpr std::string_view kSlots = "slots=";
  const auto host_end = std::find_if(line.begin(), line.end(), is_blank);
  const auto word = std::find_if_not(host_end, line.end(), is_blank);
  if (host_end == line.begin() || word == host_end) return std::nullopt;
  const std::string_view rest = std::string_view(line).substr(std::size_t(word - line.begin()));
  if (!rest.starts_with(kSlots)) return std::nullopt;
  const std::string_view number = rest.substr(kSlots.size());
  const auto digits = std::find_if_not(number.begin(), number.end(), is_digit) - number.begin();
  if (digits == 0) return std::nullopt;
  return HostLine{std::string(line.begin(), host_end), std::string(number.substr(0, std::size_t(digits)))};
}

}  // namespace

std::vector<Advice> lint_hostfile(std::string_view text, const std::string& file) {
  std::vector<Advice> found;
  std::set<std::string> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::string place = fmt::format("{}:{}", file, number);
    const std::optional<HostLine> entry = host_line(line);
    if (!entry) {
      found.push_back({Weight::wrong,
                       {place, "", fmt::format("{}: DeepSpeed reads only lines like \"host slots=8\"", in_quotes(line)),
                        "Write no blanks around = and no host:8."}});
    } else if (!hosts.insert(entry->host).second) {
      found.push_back(
          {Weight::wrong,
           {place, "", fmt::format("{} is there twice: DeepSpeed refuses it", in_quotes(entry->host)), ""}});
    } else if (entry->slots.find_first_not_of('0') == std::string::npos) {
      found.push_back({Weight::wrong, {place, "", "no slots", "As many as the host has GPUs."}});
    }
  }
  if (hosts.empty() && found.empty())
    found.push_back({Weight::wrong, {file, "", "is empty: DeepSpeed refuses it", "One line a host: host slots=8."}});
  return found;
}

}  // namespace seeksim::harness
