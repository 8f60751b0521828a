#include "harness/loading/features/evaluation.h"

#include <fmt/format.h>

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Definition;
using runtime::EvaluationPlan;
using runtime::Layout;
using runtime::TrainPlan;

template <class Member>
Binding<Scenario> of_evaluation(Member member) {
  return at(&Scenario::train, &TrainPlan::definition, &Definition::evaluation, member);
}

bool has_micro_batch(const Scenario& scenario) { return scenario.train.layout.evaluation_micro_batch > 0; }

void check_held_out_bytes(const Reader& data, const Scenario& scenario) {
  const Definition& d = scenario.train.definition;
  const std::int64_t held = d.data.held_out_bytes, sample = d.model.context + 1,
                     size = std::int64_t(d.data.bytes.size());
  if (!data.has("held_out_bytes") || size == 0) {  // none, or the text cannot be read
    if (held > 0 && !data.has("text"))
      data.problem("held_out_bytes", "only a text has an end that can be held out",
                   "Remove it: synthetic held-out samples are drawn from a stream of their own.");
    return;
  }
  if (size - held < sample)
    data.problem(
        "held_out_bytes",
        fmt::format("{} of {} bytes are held out; training needs at least context + 1 = {}", held, size, sample),
        "Hold out fewer.");
}

}  // namespace

bool has_evaluation(const Scenario& scenario) { return scenario.train.definition.evaluation.on(); }

const Keys<Scenario>& evaluation_keys() {
  static const Keys<Scenario> keys = {
      {"every_steps", of_evaluation(&EvaluationPlan::every_steps), integer(0, 1'000'000'000), kBits,
       "After so many committed steps each time (Hugging Face's eval_steps, Megatron's eval_interval), and once after "
       "the last step. 0: only then."},
      {"samples", of_evaluation(&EvaluationPlan::samples), integer(1, 1'000'000).required(), kBits,
       "Held-out samples of an evaluation, of all ranks together, the same ones each time. Of a text they follow each "
       "other in its last data.held_out_bytes; synthetic ones are drawn from a stream of their own."},
      {"micro_batch", at(&Scenario::train, &TrainPlan::layout, &Layout::evaluation_micro_batch).when(has_micro_batch),
       integer(1, 1'000'000).unset(), kNoBit,
       "Samples of a micro-batch at most, as per_device_eval_batch_size. Never changes a bit. Unset: as in training."},
  };
  return keys;
}

void read_evaluation(const Reader& top, Scenario& scenario) {
  const Reader data = top.child("data");
  check_held_out_bytes(data, scenario);
  evaluation_keys().read(top.child("evaluation"), scenario);
  if (!has_evaluation(scenario)) return;
  const Definition& d = scenario.train.definition;
  if (!d.data.tokens.empty() || data.has("batches"))
    top.findings().add("/evaluation", "not supported: an evaluation where the batches are given",
                       "Train on a text or on synthetic tokens.");
  if (d.model.own != nullptr)
    top.findings().add("/evaluation", "not supported: an evaluation of a model family of one's own",
                       "Leave one of the two out.");
  if (!d.data.bytes.empty() && d.data.held_out_bytes < d.model.context + 1)
    top.findings().add("/evaluation",
                       fmt::format("data.held_out_bytes is {}; a held-out sample takes context + 1 = {} bytes that no "
                                   "step reads",
                                   d.data.held_out_bytes, d.model.context + 1),
                       "Set data.held_out_bytes to as much or more.");
}

}  // namespace seeksim::harness
