#include "harness/loading/deepspeed/not_built.h"

#include <fmt/format.h>

#include <functional>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

struct Row {
  const char* pointer;  // below the section
  std::function<bool(const Json&)> asks;
  const char* next;
};

bool is_true(const Json& value) { return value == true; }
bool is_not_fp32(const Json& value) { return value.is_string() && value != "fp32"; }
bool is_above_one(const Json& value) { return value.is_number() && value > 1; }
bool is_there(const Json& value) { return value.is_object() && !value.empty(); }
bool is_on(const Json& value) { return value.is_object() && value.value("enabled", Json(false)) == true; }
bool is_list(const Json& value) { return value.is_array() && !value.empty(); }
bool is_narrower(const Json& value) { return value == "fp16" || value == "bf16"; }

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"/zero_optimization/zenflow", is_there, "Remove it; this does not change results of plain ZeRO."},
      {"/zero_optimization/zero_quantized_nontrainable_weights", is_true, "Set it to false."},
      {"/torch_autocast", is_on, "Set enabled to false; bf16 and fp16 are supported."},
      {"/tensor_parallel/autotp_size", is_above_one, "Remove it; world.tensor splits a model."},
      {"/sequence_parallel_size", is_above_one, "Remove it; world.context cuts samples."},
      {"/expert_parallel", is_on, "Set enabled to false."},
      {"/data_efficiency", is_on, "Set enabled to false."},
      {"/hybrid_engine", is_on, "Set enabled to false."},
      {"/weight_quantization", is_there, "Remove it."},
      {"/datastates_ckpt", is_there, "Remove it; \"checkpoint\" of the scenario writes checkpoints."},
      {"/communication_data_type", is_not_fp32, "Use \"fp32\"; sums over ranks are fp32 here."},
      {"/data_types/param_dtype", is_narrower, "Remove it; bf16 and fp16 say how parameters are held."},
      {"/data_types/keep_in_fp32_modules", is_list, "Remove it."},
      {"/scheduler/params/last_batch_iteration", [](const Json& v) { return v.is_number() && v != -1; }, "Remove it."},
  };
  return table;
}

}  // namespace

void refuse_what_is_not_built(const Reader& section) {
  if (section.value() == nullptr) return;
  for (const Row& row : rows()) {
    const Json::json_pointer pointer(row.pointer);
    if (!section.value()->contains(pointer) || !row.asks(section.value()->at(pointer))) continue;
    const Json& value = section.value()->at(pointer);
    section.findings().add(
        section.pointer() + row.pointer,
        value.is_structured() ? std::string(kNotBuilt) : fmt::format("{}: {}", kNotBuilt, value.dump()), row.next);
  }
}

}  // namespace seeksim::harness
