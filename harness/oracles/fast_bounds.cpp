#include "harness/oracles/fast_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/scenario/variants.h"
#include "runtime/launch/numeric_audit.h"

namespace seeksim::harness {
namespace {

using runtime::AuditReport;
using runtime::AuditTally;

double largest_difference(const std::vector<runtime::StepRecord>& steps, const std::vector<float>& exact,
                          std::size_t& at) {
  double largest = 0;
  for (std::size_t i = 0; i < std::min(steps.size(), exact.size()); ++i) {
    const double off = std::abs(double(steps[i].loss) - double(exact[i]));
    if (!(off > largest)) continue;
    largest = off;
    at = i;
  }
  return largest;
}

Json tally_json(const AuditTally& tally) {
  Json json = {{"ops", tally.ops}, {"elements", tally.elements}, {"over", tally.over}};
  // Infinite where one side alone is finite, for which JSON has no number.
  json["worst_ratio"] = std::isfinite(tally.worst) ? Json(tally.worst) : Json("Infinity");
  json["worst_op"] = tally.ops > 0 ? Json(describe(tally.worst_op)) : Json(nullptr);
  return json;
}

Json first_json(const runtime::OverBound& over) {
  return {{"what", over.what},
          {"step", over.op.step},
          {"micro_batch", over.op.micro_batch},
          {"rank", over.op.rank},
          {"layer", over.op.layer},
          {"tensor", over.op.tensor},
          {"phase", std::string(name(over.op.phase))},
          {"element", {over.at.row, over.at.column}},
          {"shape", {over.rows, over.columns}},
          {"text", describe(over)}};
}

const AuditTally& worst_of(const AuditReport& audit) {
  return audit.sums.ops > 0 && audit.sums.worst > audit.products.worst ? audit.sums : audit.products;
}

std::string counted(const AuditReport& audit) {
  const AuditTally& worst = worst_of(audit);
  return fmt::format("{} products and {} sums over ranks, {} elements; the worst uses {:.3g} of its bound: {}",
                     audit.products.ops, audit.sums.ops, audit.elements(), worst.worst, describe(worst.worst_op));
}

}  // namespace

FastComparison compare_fast(const RunRecord& run, const std::string& backend, const Golden& golden) {
  FastComparison comparison{run.numbers.audit.value_or(FastAudit{}), {}, backend, {}};
  for (const runtime::StepRecord& step : run.steps) comparison.loss.push_back(step.loss);
  const std::optional<runtime::StateDigest> state = run.state();
  comparison.not_canonical = state ? difference(golden, *state) : "it did not finish";
  return comparison;
}

Finding within_bounds(const Evidence& evidence, const std::string&) {
  if (evidence.fast == nullptr) return blind("no run beside this one was made by the contract");
  const FastComparison& seen = *evidence.fast;
  const AuditReport& audit = seen.audit.report;
  if (audit.products.ops == 0) return blind("no product was compared");
  if (audit.sums.ops == 0 && data_size(evidence.scenario) > 1) return blind("no sum over ranks was compared");
  if (audit.first)
    return bad(fmt::format("first over its bound: {}; {} of {} elements are over in all", describe(*audit.first),
                           audit.over(), audit.elements()));
  if (!seen.not_canonical.empty())
    return bad("the operands were not the canonical run's: against the golden, " + seen.not_canonical);
  return good(counted(audit));
}

std::string fast_text(const Evidence& evidence) {
  if (evidence.fast == nullptr) return "";
  const FastComparison& seen = *evidence.fast;
  std::size_t at = 0;
  const double largest = largest_difference(evidence.run.steps, seen.loss, at);
  std::string text = "  fast      " + counted(seen.audit.report) + '\n';
  if (seen.backend != "sim") {
    const char* const sums = seen.backend == "nccl" ? "; sums over replicas are NCCL's" : "";
    text += fmt::format("  fast      compared on these processes, each its own operations{}\n", sums);
  }
  if (seen.audit.products_through_host > 0) {
    text +=
        fmt::format("  fast      {} of these products went through the host: the device has no library's for them\n",
                    seen.audit.products_through_host);
  }
  if (evidence.run.steps.empty() || seen.loss.empty()) return text;
  return text + fmt::format(
                    "  fast      loss {:.7g} after the last step, the contract's {:.7g}; largest difference {:.3g} in "
                    "step {} (reported, not checked)\n",
                    evidence.run.steps.back().loss, seen.loss.back(), largest, at);
}

Json fast_json(const Evidence& evidence) {
  const FastComparison& seen = *evidence.fast;
  Json json;
  json["tf32"] = evidence.scenario.train.tf32;
  json["compared_on"] = seen.backend;
  json["products"] = tally_json(seen.audit.report.products);
  json["sums"] = tally_json(seen.audit.report.sums);
  json["products_through_host"] = seen.audit.products_through_host;
  json["first_over"] = seen.audit.report.first ? first_json(*seen.audit.report.first) : Json(nullptr);
  json["operands_are_canonical"] = seen.not_canonical.empty();
  json["loss_by_contract"] = Json::array();
  for (const float loss : seen.loss)
    json["loss_by_contract"].push_back(std::isfinite(loss) ? Json(loss) : Json(nullptr));
  return json;
}

}  // namespace seeksim::harness
