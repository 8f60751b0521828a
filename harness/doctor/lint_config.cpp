// What a ds_config.json really asks for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/doctor/lint.h"
#include "harness/loading/deepspeed/config_alone.h"
#include "harness/loading/deepspeed/not_built.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

class ConfigLint {
 public:
  ConfigLint(Document document, const std::string& file, std::int64_t gpus, std::int64_t gpus_before)
      : file_(file),
        gpus_(std::clamp(gpus, std::int64_t(0), std::int64_t(kMost))),
        gpus_before_(std::clamp(gpus_before, std::int64_t(0), std::int64_t(kMost))),
        read_(read_config_alone(std::move(document), gpus_)),
        config_(read_.config) {}

  std::vector<Advice> advice() {
    if (!config_.is_object()) {
      say(Weight::wrong, "", "an object is expected", "");
      return std::move(found_);
    }
    reading();
    idle();
    batch();
    precision();
    zero();
    offload();
    optimizer();
    learning_rate();
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
  // A key that two slips of the finger make into a known one.
  static bool is_slip(const std::string& note) { return note.find("did you mean") != std::string::npos; }
  int stage() const { return int(whole("/zero_optimization/stage")); }

  // What run, plan and DeepSpeed refuse, and how the forms of the file were read: by the rows of keys that run has.
  void reading() {
    for (const Problem& problem : read_.problems) {
      if (!is_not_built(problem)) {
        found_.push_back({Weight::wrong, problem});
      } else {
        const bool theirs_too = problem.what.find("removed") == std::string::npos;
        found_.push_back({Weight::note,
                          {problem.place, problem.path,
                           problem.what + (theirs_too ? " (by seeksim; DeepSpeed takes it)" : ""), ""}});
      }
    }
    for (const std::string& note : read_.notes) say(is_slip(note) ? Weight::wrong : Weight::note, "", note, "");
  }

  // Sections that do nothing by themselves.
  void idle() {
    if (whole("/activation_checkpointing/number_checkpoints") > 0) {
      say(Weight::note, "activation_checkpointing.number_checkpoints",
          "recomputes nothing by itself: the model has to ask for it",
          "Call model.gradient_checkpointing_enable() of transformers, or deepspeed.checkpointing.checkpoint().");
    }
    if (at("/pipeline").is_object())
      say(Weight::note, "pipeline", "cuts no model by itself: that takes a PipelineModule",
          "In seeksim world.pipeline splits a model into stages.");
  }

  void batch() {
    const std::int64_t train = whole("/train_batch_size"), micro = whole("/train_micro_batch_size_per_gpu"),
                       steps = whole("/gradient_accumulation_steps"), share = micro * std::max<std::int64_t>(steps, 1);
    if (gpus_ == 0 && train > 0 && micro > 0 && steps >= 0 && train % share != 0) {
      say(Weight::wrong, "train_batch_size",
          fmt::format("is the batch of all GPUs together, and {} is no multiple of {} ({} a GPU and micro-batch x {}): "
                      "no number of GPUs fits",
                      train, share, micro, std::max<std::int64_t>(steps, 1)),
          fmt::format("For example {}.", (train / share + 1) * share));
    }
    if (steps > 1 && stage() == 2)
      say(Weight::note, "gradient_accumulation_steps",
          fmt::format("stage 2 reduces gradients after each of the {} micro-batches, not once a step", steps), "");
    if (steps > 1 && stage() == 3)
      say(Weight::note, "gradient_accumulation_steps",
          fmt::format("stage 3 gathers all parameters twice in each of the {} micro-batches", steps), "");
  }

  void precision() {
    if (on("/fp16/enabled") && number("/fp16/loss_scale", 0) > 0) {
      for (const char* key : {"initial_scale_power", "loss_scale_window", "hysteresis"}) {
        if (has((std::string("/fp16/") + key).c_str()))
          say(Weight::doubtful, std::string("fp16.") + key, "has no effect: a loss_scale other than 0 is fixed",
              "Set fp16.loss_scale to 0, which means dynamic.");
      }
    }
    if (on("/fp16/enabled") && number("/fp16/loss_scale", 0) == 0) {
      if (number("/fp16/min_loss_scale", 1) > 1 && stage() >= 1)
        say(Weight::doubtful, "fp16.min_loss_scale",
            "does not help: stages 1 to 3 raise an exception as soon as a step overflows at this scale", "Use 1.");
    }
    if (on("/bf16/enabled") && !has("/data_types/grad_accum_dtype"))
      say(Weight::note, "data_types.grad_accum_dtype", "is not given: gradients are accumulated in bf16",
          "Use \"fp32\" with many micro-batches.");
    if (!has("/gradient_clipping"))
      say(Weight::doubtful, "gradient_clipping",
          "is not given, and DeepSpeed's default changed from 0 (off) to 1.0 in June 2026: versions train differently",
          "Set the value that you want.");
  }

  void zero() {
    const int level = stage();
    const Json& section = at("/zero_optimization");
    if (!section.is_object()) return;
    for (const auto& [key, value] : section.items()) {
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
      for (const char* disk : {"/tmp", "/dev/shm"}) {
        const Json& path = at((pointer + "/nvme_path").c_str());
        if (path.is_string() && path.get<std::string>().rfind(disk, 0) == 0)
          say(Weight::doubtful, std::string("zero_optimization.") + section + ".nvme_path",
              fmt::format("{} is memory on many machines, and offloading was meant to save memory", disk),
              "Give a folder on a local disk.");
      }
    }
  }

  void optimizer() {
    if (at("/optimizer/type") == "Adam" && !has("/optimizer/params/adam_w_mode"))
      say(Weight::note, "optimizer.type", "\"Adam\" is AdamW in DeepSpeed (adam_w_mode is true)",
          "Set optimizer.params.adam_w_mode to false for L2 decay.");
    const Json& type = at("/optimizer/type");
    const bool adam = type.is_string() && type.get<std::string>().rfind("Adam", 0) == 0;
    if (adam && !has("/optimizer/params/weight_decay"))
      say(Weight::note, "optimizer.params.weight_decay", "is 0 in DeepSpeed's Adam, and 0.01 in PyTorch's AdamW", "");
    const Json& scheduler = at("/scheduler/type");
    const bool cosine = scheduler == "WarmupCosineLR";
    const std::string first = cosine ? "warmup_min_ratio" : "warmup_min_lr";
    const Json& least = at(("/scheduler/params/" + first).c_str());
    if (scheduler.is_string() && scheduler.get<std::string>().rfind("Warmup", 0) == 0 &&
        (least.is_null() || least == 0))
      say(Weight::note, "scheduler.type",
          fmt::format("the first two steps use {} (0{}), so they do not update the weights", first,
                      least.is_null() ? " by default" : ""),
          "");
    const double warm = number("/scheduler/params/warmup_num_steps", 1000),
                 all = number("/scheduler/params/total_num_steps", 0);
    if (all > 0 && warm >= all)
      say(Weight::wrong, "scheduler.params.warmup_num_steps",
          fmt::format("{:g} of {:g} steps: the rate never reaches its peak", warm, all), "Use fewer.");
  }

  // Rules of thumb: nothing here is refused by anybody.
  void learning_rate() {
    const Json& type = at("/optimizer/type");
    const bool adam = type.is_string() && (type.get<std::string>().rfind("Adam", 0) == 0 || type == "adam");
    const double rate = number("/optimizer/params/lr", 1e-3);
    if (adam && rate > 1e-2)
      say(Weight::doubtful, "optimizer.params.lr",
          fmt::format("{:g} is large for Adam, whose steps are about lr long whatever the gradient", rate),
          "Transformers are trained with 1e-5 to 1e-3.");
    if (adam && !has("/scheduler"))
      say(Weight::note, "scheduler", "is not given: no warm-up, unless the script has a schedule of its own",
          "Adam's first steps are as long as all others, and transformers often diverge without a warm-up.");
    const std::int64_t share =
        whole("/train_micro_batch_size_per_gpu") * std::max<std::int64_t>(whole("/gradient_accumulation_steps"), 1);
    if (gpus_before_ == 0 || gpus_ == 0 || gpus_ == gpus_before_ || share <= 0 || has("/train_batch_size")) return;
    const double times = double(gpus_) / double(gpus_before_);
    say(Weight::doubtful, "optimizer.params.lr",
        fmt::format(
            "is {:g} for {} samples a step as for {}: by the linear rule it would be {:.3g}, by the square-root "
            "rule (often used with Adam) {:.3g}",
            rate, share * gpus_, share * gpus_before_, rate * times, rate * std::sqrt(times)),
        fmt::format("Or keep the batch: \"train_batch_size\": {}.", share * gpus_before_));
  }

  const std::string file_;
  const std::int64_t gpus_, gpus_before_;
  const ConfigReading read_;
  const Json& config_;
  std::vector<Advice> found_;
};

}  // namespace

std::vector<Advice> lint_config(Document document, const std::string& file, std::int64_t gpus,
                                std::int64_t gpus_before) {
  return ConfigLint(std::move(document), file, gpus, gpus_before).advice();
}

}  // namespace seeksim::harness
