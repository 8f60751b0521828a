#include "harness/run/first_logits.h"

#include <map>
#include <string_view>

#include "harness/input/problem.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "harness/simulate/value_watch.h"
#include "runtime/files/safetensors.h"

namespace seeksim::harness {
namespace {

using runtime::Op;
using runtime::Range;

// Keeps what the head's product writes in the first step, by micro-batch. The loss works in the same memory afterwards.
class LogitSink final : public ValueSink {
 public:
  void completed(int, const Op& op, runtime::TimeNs, std::span<const Range> ranges) override {
    if (op.step != 0 || op.phase != runtime::Phase::forward || is(op.tensor, "logits")) return;
    for (const Range& range : ranges) {
      if (range.write && range.buffer != nullptr && is(range.buffer->name, "logits"))
        by_micro_batch_[op.micro_batch] = floats_of(range);
    }
  }
  std::vector<float> all() const {
    std::vector<float> values;
    for (const auto& [micro_batch, part] : by_micro_batch_) values.insert(values.end(), part.begin(), part.end());
    return values;
  }

 private:
  static bool is(const char* name, std::string_view other) { return name != nullptr && name == other; }
  static std::vector<float> floats_of(const Range& range) {
    runtime::TensorBytes tensor;
    tensor.dtype = runtime::dtype_of(range.type);
    tensor.shape = {runtime::Index((range.hi - range.lo) / size_of(range.type))};
    tensor.bytes.assign(reinterpret_cast<const char*>(range.buffer->data) + range.lo, range.hi - range.lo);
    return runtime::to_floats(tensor).values;
  }

  std::map<std::int64_t, std::vector<float>> by_micro_batch_;
};

}  // namespace

runtime::NamedTensor first_logits(const Scenario& scenario) {
  Scenario one = one_rank(scenario);
  const runtime::Definition& definition = one.train.definition;
  one.train.definition.steps = 1;
  LogitSink sink;
  SimulationOptions options;
  options.sink = &sink;
  Simulation(one, options).run();
  runtime::NamedTensor logits;
  logits.name = "logits";
  logits.shape = {definition.global_batch, definition.model.context, definition.model.vocab};
  logits.values = sink.all();
  if (logits.values.size() != std::size_t(definition.global_batch * definition.model.context * definition.model.vocab))
    throw BadInput("--save-logits", "the first step of this run keeps no logits of the whole batch",
                   "Leave out what changes them (quirks), and what computes none (numerics: shapes).");
  return logits;
}

}  // namespace seeksim::harness
