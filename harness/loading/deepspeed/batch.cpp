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

bool positive(const Reader& section, const char* key, const char* subject, std::optional<std::int64_t> value) {
  if (!value) return true;
  if (*value > 0 && *value <= 100'000'000) return true;
  section.problem(section.has(key) ? key : "",
                  *value > 0 ? fmt::format("{}: {} is more than any machine has", subject, *value)
                             : fmt::format("{}: {} has to be greater than 0", subject, *value),
                  section.has(key) ? "" : "It follows from the other two sizes and the number of ranks.");
  return false;
}

}  // namespace

void read_batch(const Reader& section, std::int64_t ranks, Scenario& scenario) {
  constexpr const char* kTrain = "train_batch_size";
  constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
  constexpr const char* kGas = "gradient_accumulation_steps";
  std::optional<std::int64_t> train = given(section, kTrain), micro = given(section, kMicro),
                              gas = given(section, kGas);
  if (!train && !micro) {
    if (section.has(kTrain) || section.has(kMicro)) return;  // of a wrong type: the schema said so
    section.problem("", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
                    "For example \"train_batch_size\": 32.");
    return;
  }
  // Zero or less: DeepSpeed's message, before anything is divided by it.
  const auto fine = [&](const char* key, const char* subject, std::optional<std::int64_t> value) {
    return positive(section, key, subject, value);
  };
  const bool all_fine = fine(kTrain, "Train batch size", train) & fine(kMicro, "Micro batch size per gpu", micro) &
                        fine(kGas, "Gradient accumulation steps", gas);
  if (!all_fine || ranks <= 0) return;
  if (scenario.by_samples && train) {
    const auto per = [](std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; };
    const std::int64_t share = per(*train, ranks);  // the largest share of any rank
    scenario.train.definition.global_batch = int(*train);
    scenario.train.layout.micro_batch = int(micro ? *micro : per(share, gas.value_or(1)));
    scenario.accumulation = int(per(share, scenario.train.layout.micro_batch));
    return;
  }
  if (train && micro) {
    if (!gas) gas = *train / *micro / ranks;
  } else if (train) {
    if (!gas) gas = 1;
    micro = *train / ranks / *gas;
  } else {
    if (!gas) gas = 1;
    train = *micro * *gas * ranks;
  }
  if (!(fine(kTrain, "Train batch size", train) & fine(kMicro, "Micro batch size per gpu", micro) &
        fine(kGas, "Gradient accumulation steps", gas))) {
    return;
  }
  if (*train != *micro * *gas * ranks) {
    section.problem(
        section.has(kTrain) ? kTrain : "",
        fmt::format("Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
                    "gradient_acc_step * world_size {} != {} * {} * {}",
                    *train, *micro, *gas, ranks),
        fmt::format("With {} ranks and these micro-batches, {} would fit; or give two of the three.", ranks,
                    *micro * *gas * ranks));
    return;
  }
  scenario.train.definition.global_batch = int(*train);
  scenario.train.layout.micro_batch = int(*micro);
  scenario.accumulation = int(*gas);
}

}  // namespace seeksim::harness
