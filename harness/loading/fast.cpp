#include "harness/loading/fast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

using runtime::AuditReport;
using runtime::AuditTally;
using runtime::Bug;

constexpr const char* kNoExactBits = "there are no exact bits in a run of fast arithmetic";
constexpr const char* kInstead =
    "Remove it: within_bounds is judged in every such run; or use \"numerics\": \"exact\".";

bool is_fast_bug(const runtime::PlantedBug& bug) {
  return bug.is(Bug::fast_leaves_out_last_k) || bug.is(Bug::fast_accumulates_in_bf16) || bug.is(Bug::fast_ring_in_bf16);
}

void refuse_bug(const Reader& top, const Scenario& scenario) {
  const runtime::PlantedBug& bug = scenario.train.bug;
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    if (bug.is(info.bug) && std::string(info.caught) == "golden")
      top.problem("bug", fmt::format("{} is caught by {}, and {}", info.name, info.caught, kNoExactBits),
                  "Use \"numerics\": \"exact\".");
  }
  if (bug.is(Bug::fast_ring_in_bf16) && data_size(scenario) < 2)
    top.problem("bug", "fast_ring_in_bf16 needs a ring of several ranks", "Use a world with several replicas.");
}

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

void read_fast(const Reader& top, const std::string& numerics, Scenario& scenario) {
  const bool tf32 = top.flag("tf32", false);
  if (numerics != "fast") {
    const char* const next = "Use \"numerics\": \"fast\", or remove it.";
    if (tf32) top.problem("tf32", "only vendors' products take operands in TF32", next);
    if (is_fast_bug(scenario.train.bug))
      top.problem("bug", runtime::text(scenario.train.bug) + " is a mistake of fast arithmetic", next);
    for (const CheckSpec& check : scenario.checks)
      if (check.name == "within_bounds") top.problem("checks", "within_bounds judges fast arithmetic", next);
    return;
  }
  scenario.train.numerics = runtime::Numerics::fast;
  scenario.train.tf32 = tf32;
  if (tf32 && scenario.train.definition.precision.compute != runtime::ElementType::f32)
    top.problem("tf32", "it is for products of fp32 operands, and the model is in 16 bits", "Remove one of the two.");
  for (const CheckSpec& check : scenario.checks)
    if (check.name == "golden") top.problem("checks", fmt::format("{}: {}", check.text(), kNoExactBits), kInstead);
  if (scenario.planned.any())
    top.problem("fault_plan", "its runs are judged by exact bits", "Use \"numerics\": \"exact\".");
  refuse_bug(top, scenario);
  scenario.notes.push_back(
      "a run of fast arithmetic: products and sums over ranks are bounded, not exact; all else is the contract's");
}

RunArithmetic::RunArithmetic(const Scenario& scenario, const std::optional<kernels::FastWay>& audit) {
  if (!audit && !is_fast(scenario)) return;
  fast_ = std::make_unique<kernels::FastArithmetic>(audit ? *audit : fast_way(scenario.train));
  if (audit) audit_ = std::make_unique<runtime::NumericAudit>(*fast_, audit->tf32);
}

runtime::LibrarySums RunArithmetic::library_sums() const {
  return audit_ ? runtime::LibrarySums::beside : fast_ ? runtime::LibrarySums::instead : runtime::LibrarySums::none;
}

std::optional<FastAudit> RunArithmetic::audited() const {
  if (!audit_) return std::nullopt;
  return FastAudit{audit_->report(), fast_->products_through_host()};
}

FastComparison compare_fast(const RunRecord& run, const std::string& backend, const Golden& golden) {
  FastComparison comparison{run.audit.value_or(FastAudit{}), {}, backend, {}};
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
    return bad(fmt::format("first over its bound: {}; in all {} of {} elements are over", describe(*audit.first),
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
                    "  fast      loss {:.7g} after the last step, the contract's {:.7g}; furthest apart by {:.3g} "
                    "in step {} (told, not judged)\n",
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
