// DeepSpeed: runtime/config.py, _set_batch_related_parameters and _batch_assertion.
#include "harness/loading/deepspeed/batch.h"

#include <fmt/format.h>

#include <optional>

namespace seeksim::harness {
namespace {

std::optional<std::int64_t> given(const Reader& section, const char* key) {
  const Json* value = section.find(key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kGas = "gradient_accumulation_steps";
constexpr std::int64_t kMost = 100'000'000;  // samples a step

// Zero or less: DeepSpeed's message, before anything is divided by it.
bool positive(const Reader& section, const char* key, const char* subject, std::optional<std::int64_t> value) {
  if (!value || (*value > 0 && *value <= kMost)) return true;
  section.problem(key,
                  *value > 0 ? fmt::format("{}: {} is more than any machine has", subject, *value)
                             : fmt::format("{}: {} has to be greater than 0", subject, *value),
                  "");
  return false;
}

struct Sizes {
  std::int64_t train = 0, micro = 0, gas = 0;
};

// The third of the sizes from two of them, rounded down.
Sizes derived(std::optional<std::int64_t> train, std::optional<std::int64_t> micro, std::optional<std::int64_t> gas,
              std::int64_t ranks) {
  if (train && micro) return {*train, *micro, gas.value_or(*train / *micro / ranks)};
  const std::int64_t steps = gas.value_or(1);
  if (train) return {*train, *train / ranks / steps, steps};
  const bool fits = double(*micro) * double(steps) * double(ranks) <= double(kMost);
  return {fits ? *micro * steps * ranks : kMost + 1, *micro, steps};
}

// True: the sizes fit the ranks.
bool fits(const Reader& section, const Sizes& s, std::int64_t ranks) {
  const char* const place = section.has(kTrain) ? kTrain : section.has(kMicro) ? kMicro : "";
  if (s.train > kMost || double(s.micro) * double(s.gas) * double(ranks) > double(kMost)) {
    section.problem(place,
                    fmt::format("{} x {} x {} ranks are more samples than any machine has", s.micro, s.gas, ranks), "");
    return false;
  }
  if (s.gas == 0) {
    section.problem(
        place,
        fmt::format("Gradient accumulation steps: 0 has to be greater than 0: {} samples are fewer than one "
                    "micro-batch of {} on each of {} ranks",
                    s.train, s.micro, ranks),
        fmt::format("For example {}.", s.micro * ranks));
    return false;
  }
  if (s.micro == 0) {
    const std::int64_t share = ranks * s.gas;
    section.problem(place,
                    fmt::format("Micro batch size per gpu: 0 has to be greater than 0: {} samples cannot be cut evenly "
                                "over {} ranks{}",
                                s.train, ranks, s.gas > 1 ? fmt::format(" x {} accumulation steps", s.gas) : ""),
                    fmt::format("For example {}.", (s.train / share + 1) * share));
    return false;
  }
  const std::int64_t right = s.micro * s.gas * ranks;
  if (s.train == right) return true;
  section.problem(place,
                  fmt::format("Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
                              "gradient_acc_step * world_size {} != {} * {} * {}",
                              s.train, s.micro, s.gas, ranks),
                  fmt::format("{} samples cannot be cut evenly over {} ranks in micro-batches of {} x {} accumulation "
                              "steps: {} would fit; or give two of the three.",
                              s.train, ranks, s.micro, s.gas, right));
  return false;
}

}  // namespace

void read_batch(const Reader& section, std::int64_t ranks, Scenario& scenario) {
  const std::optional<std::int64_t> train = given(section, kTrain), micro = given(section, kMicro),
                                    gas = given(section, kGas);
  if (!train && !micro) {
    const auto is_wrong = [&](const char* key) { return section.has(key) && !section.find(key)->is_null(); };
    if (is_wrong(kTrain) || is_wrong(kMicro)) return;  // of a wrong type: the schema said so
    section.problem("", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
                    "For example \"train_batch_size\": 32.");
    return;
  }
  const bool all_fine = positive(section, kTrain, "Train batch size", train) &
                        positive(section, kMicro, "Micro batch size per gpu", micro) &
                        positive(section, kGas, "Gradient accumulation steps", gas);
  if (!all_fine || ranks <= 0) return;
  if (scenario.by_samples && train) {
    const auto per = [](std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; };
    const std::int64_t share = per(*train, ranks);  // the largest share of any rank
    scenario.train.definition.global_batch = int(*train);
    scenario.train.layout.micro_batch = int(micro ? *micro : per(share, gas.value_or(1)));
    scenario.accumulation = int(per(share, scenario.train.layout.micro_batch));
    return;
  }
  const Sizes sizes = derived(train, micro, gas, ranks);
  if (!fits(section, sizes, ranks)) return;
  scenario.train.definition.global_batch = int(sizes.train);
  scenario.train.layout.micro_batch = int(sizes.micro);
  scenario.accumulation = int(sizes.gas);
}

}  // namespace seeksim::harness
