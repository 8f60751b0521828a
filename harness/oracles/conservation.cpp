#include "harness/oracles/conservation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/comm/gradient_tree.h"
#include "runtime/model/edited_gradients.h"
#include "runtime/model/weights.h"

namespace seeksim::harness {
namespace {

using runtime::Index;

Index sum_of_tags(std::int64_t step, Index samples, Index element) {
  Index sum = 0;
  for (Index sample = 0; sample < samples; ++sample) sum += runtime::gradient_tag(step, sample, element);
  return sum;
}

}  // namespace

TagJudge::TagJudge(const runtime::TrainPlan& plan)
    : plan_(plan),
      parameters_(plan.definition.model, plan.definition.optimizer.decay_all),
      at_root_(runtime::LossScale(Index(plan.definition.global_batch) * plan.definition.model.context).at_root) {}

// The sums are integers below 2^24, and are multiplied once; the two uses of a tied parameter are added after that.
void TagJudge::expect(std::int64_t step) {
  const Index samples = plan_.definition.global_batch;
  std::vector<float> flat(std::size_t(parameters_.trainable_size()));
  for (Index i = 0; i < parameters_.trainable_size(); ++i) {
    flat[std::size_t(i)] = float(sum_of_tags(step, samples, i)) * at_root_;
    if (!parameters_.shares_head() || i >= parameters_.wte().size) continue;
    flat[std::size_t(i)] += float(sum_of_tags(step, samples, parameters_.head_gradient_offset() + i)) * at_root_;
  }
  expected_ = runtime::gradients_to_hugging_face(parameters_, plan_.definition.model, flat);
  expected_step_ = step;
}

// Which sample, missing or counted once more, would make the sum what it is.
std::string TagJudge::explain(const std::string& name, std::size_t at, float got) const {
  const Index samples = plan_.definition.global_batch;
  std::vector<float> places(std::size_t(parameters_.trainable_size()));  // fp32 numbers elements exactly up to 2^24
  if (parameters_.trainable_size() > Index(1) << 24) return "";
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = float(i);
  Index element = -1;
  for (const runtime::NamedTensor& tensor :
       runtime::gradients_to_hugging_face(parameters_, plan_.definition.model, places)) {
    if (tensor.name == name) element = Index(tensor.values[at]);
  }
  if (element < 0) return "";
  const auto same = [got](float sum) { return std::bit_cast<std::uint32_t>(sum) == std::bit_cast<std::uint32_t>(got); };
  const Index all = sum_of_tags(expected_step_, samples, element);
  std::string lost, twice;
  for (Index sample = 0; sample < samples; ++sample) {
    const Index tag = runtime::gradient_tag(expected_step_, sample, element);
    if (same(float(all - tag) * at_root_)) lost += fmt::format("{}{}", lost.empty() ? "" : " or ", sample);
    if (same(float(all + tag) * at_root_)) twice += fmt::format("{}{}", twice.empty() ? "" : " or ", sample);
  }
  std::string text =
      fmt::format("; the tags in it add up to {:.6g} instead of {}", double(got) / double(at_root_), all);
  if (!lost.empty()) text += ", as if sample " + lost + " were missing";
  if (!twice.empty()) text += ", as if sample " + twice + " were counted twice";
  if (lost.empty() && twice.empty()) text += "; no single sample explains this";
  return text;
}

void TagJudge::look(int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
  if (!result_.wrong.empty() || gradients.empty()) return;
  if (step != expected_step_) expect(step);
  result_.steps = std::max(result_.steps, step + 1);
  // Those with one use first: what is wrong with them can be explained.
  const runtime::NamedTensor* worst = nullptr;
  std::size_t worst_at = 0;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const runtime::NamedTensor& got = gradients[t];
    for (std::size_t i = 0; i < got.values.size(); ++i, ++result_.elements) {
      if (std::bit_cast<std::uint32_t>(got.values[i]) == std::bit_cast<std::uint32_t>(expected_[t].values[i])) continue;
      const bool explained = worst != nullptr && worst->name.find("wte") == std::string::npos;
      if (explained) break;
      worst = &got;
      worst_at = i;
      break;
    }
  }
  if (worst == nullptr) return;
  result_.wrong = fmt::format("step {}, rank {}, element {} of {}: not every sample entered once{}", step, rank,
                              worst_at, worst->name, explain(worst->name, worst_at, worst->values[worst_at]));
}

Scenario tagged(const Scenario& scenario) {
  Scenario other = scenario;
  // Tags are sums in fp32, whatever the model computes in.
  other.train.definition.precision = {};
  other.train.definition.scaler = {};
  other.checks.clear();
  other.expect = {};
  other.world.verify = false;
  other.train.tagged_gradients = true;
  std::int64_t steps = 2;
  for (const faults::Rule& rule : scenario.faults)
    steps = std::max(steps, rule.when.step ? *rule.when.step + 2 : scenario.train.definition.steps);
  other.train.definition.steps = std::min(steps, scenario.train.definition.steps);
  return other;
}

}  // namespace seeksim::harness
