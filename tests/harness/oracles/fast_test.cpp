// "numerics": "fast" in a scenario: what needs exact bits is refused by name, the comparison with the contract is
// judged unasked, names what is over its bound, and is red where it saw nothing or had other operands than the
// contract's.
#include "harness/loading/features/fast.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"
#include "runtime/rules/bugs.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string fast_text_of(const std::string& more = "") {
  return R"({ "name": "s", "numerics": "fast", )" + more + R"(
  "model": { "family": "gpt2", "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 64 },
  "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 2 },
  "deepspeed": { "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
                 "optimizer": { "type": "AdamW", "params": { "lr": 1e-3 } } },
  "steps": 2 })";
}

Json report_of(const std::vector<std::string>& sets, const std::string& text = fast_text_of(), int status = 0) {
  TemporaryFolder folder;
  std::vector<std::string> call = {"run", folder.write("s.json", text), "--report", folder.file("report.json")};
  for (const std::string& set : sets) {
    if (!set.starts_with("--")) call.emplace_back("--set");
    call.push_back(set);
  }
  const Ran ran = seeksim(call);
  EXPECT_EQ(ran.status, status) << ran.out << ran.err;
  return Json::parse(read_all(folder.file("report.json")));
}

Json check_in(const Json& report, const std::string& name) {
  for (const Json& check : report["checks"])
    if (check["name"] == name) return check;
  return nullptr;
}

TEST(FastScenario, RefusesWhatNeedsExactBits) {
  EXPECT_EQ(problems_of(fast_text_of()), "");
  EXPECT_EQ(problems_of(fast_text_of(), {"tf32=true"}), "");
  for (const char* check : {"golden:bitwise", "golden:gradients"}) {
    const std::string wrong = problems_of(fast_text_of(), {std::string("checks=[\"") + check + "\"]"});
    EXPECT_NE(wrong.find("there are no exact bits in a run of fast arithmetic"), std::string::npos) << wrong;
    EXPECT_NE(wrong.find("within_bounds"), std::string::npos) << "the way out";
  }
  EXPECT_NE(problems_of(fast_text_of(), {"bug=lost_partial_sum"}).find("is caught by golden"), std::string::npos);
  EXPECT_NE(problems_of(fast_text_of(), {"tf32=true", "deepspeed.bf16.enabled=true"}).find("fp32 operands"),
            std::string::npos);
  EXPECT_NE(problems_of(fast_text_of(), {"bug=fast_ring_in_bf16", "world.ranks_per_node=1"}).find("several ranks"),
            std::string::npos);
}

TEST(FastScenario, WhatIsFastIsRefusedInAnExactOne) {
  EXPECT_NE(problems_of(fast_text_of(), {"numerics=exact", "tf32=true"}).find("only vendors' products"),
            std::string::npos);
  EXPECT_NE(problems_of(fast_text_of(), {"numerics=exact", "bug=fast_leaves_out_last_k"}).find("fast arithmetic"),
            std::string::npos);
  EXPECT_NE(problems_of(fast_text_of(), {"numerics=exact", "checks=[\"within_bounds\"]"}).find("fast arithmetic"),
            std::string::npos);
}

TEST(FastScenario, RoundTripsToJson) {
  const Scenario scenario = load_scenario_text(fast_text_of("\"tf32\": true,"), "s.json");
  EXPECT_TRUE(is_fast(scenario));
  EXPECT_TRUE(scenario.train.tf32);
  const Scenario again = load_scenario_text(to_json(scenario).dump(), "s.json");
  EXPECT_TRUE(is_fast(again));
  EXPECT_TRUE(again.train.tf32);
}

TEST(FastScenario, TheTeacherAndTheGoldenAreExact) {
  const Scenario scenario =
      load_scenario_text(fast_text_of(), "s.json", {{"bug=fast_accumulates_in_bf16"}, "", nullptr, "", nullptr});
  EXPECT_EQ(teacher(scenario).train.numerics, runtime::Numerics::exact);
  EXPECT_TRUE(teacher(scenario).train.bug.is(runtime::Bug::none));
  EXPECT_EQ(teacher(scenario).world.ranks(), scenario.world.ranks());
  EXPECT_EQ(one_rank(scenario).train.numerics, runtime::Numerics::exact);
  EXPECT_EQ(fast_way(scenario.train).slip, kernels::FastSlip::sums_in_bf16);
}

TEST(FastScenario, IsJudgedUnaskedAndToldInTheReport) {
  const Json report = report_of({});
  EXPECT_EQ(report["numerics"], "fast");
  const Json check = check_in(report, "within_bounds");
  ASSERT_TRUE(check.is_object()) << report["checks"];
  EXPECT_TRUE(check["ok"].get<bool>()) << check;
  const Json& fast = report["fast"];
  EXPECT_TRUE(fast["operands_are_canonical"].get<bool>());
  EXPECT_TRUE(fast["first_over"].is_null());
  for (const char* kind : {"products", "sums"}) {
    EXPECT_GT(fast[kind]["ops"], 0) << kind;
    EXPECT_GT(fast[kind]["elements"], fast[kind]["ops"]) << kind;
    EXPECT_EQ(fast[kind]["over"], 0) << kind;
    EXPECT_LE(fast[kind]["worst_ratio"], 1) << kind;
    EXPECT_FALSE(fast[kind]["worst_op"].get<std::string>().empty()) << kind;
  }
  // Per step: 1 layer of 4 products forward and 8 backward, and 3 of the head, for each of 2 ranks' 2 samples.
  EXPECT_EQ(fast["products"]["ops"], 2 * 4 * (4 + 8 + 3));
  // It runs by itself: other bits, the same training.
  ASSERT_EQ(report["loss"].size(), 2u);
  ASSERT_EQ(fast["loss_by_contract"].size(), 2u);
  EXPECT_NE(report["params_digest"], report_of({"numerics=exact"})["params_digest"]);
  for (std::size_t step = 0; step < 2; ++step)
    EXPECT_NEAR(report["loss"][step].get<double>(), fast["loss_by_contract"][step].get<double>(), 1e-4);
}

TEST(FastScenario, TheFirstOverItsBoundIsNamed) {
  const Json report = report_of({"bug=fast_leaves_out_last_k"}, fast_text_of(), 1);
  const Json check = check_in(report, "within_bounds");
  EXPECT_FALSE(check["ok"].get<bool>());
  EXPECT_TRUE(check.value("looked", true));
  const Json& first = report["fast"]["first_over"];
  EXPECT_EQ(first["what"], "product");
  EXPECT_EQ(first["step"], 0);
  EXPECT_EQ(first["layer"], 0);
  EXPECT_EQ(first["phase"], "forward");
  EXPECT_GE(first["rank"], 0);
  EXPECT_GE(first["micro_batch"], 0);
  EXPECT_EQ(first["element"].size(), 2u);
  EXPECT_FALSE(first["tensor"].get<std::string>().empty());
  const std::string text = check["detail"];
  for (const char* part : {"step 0", "layer 0", "element (", "the contract's is", "the bound"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  EXPECT_EQ(report["fast"]["sums"]["over"], 0) << "teacher forcing: what comes later is not blamed";
}

TEST(FastScenario, EachSlipTurnsItRedInEveryPrecision) {
  for (const char* type :
       {"deepspeed.zero_optimization.stage=2", "deepspeed.bf16.enabled=true", "deepspeed.fp16.enabled=true"}) {
    for (const char* bug : {"fast_leaves_out_last_k", "fast_accumulates_in_bf16", "fast_ring_in_bf16"}) {
      const Json report = report_of({type, std::string("bug=") + bug}, fast_text_of(), 1);
      EXPECT_FALSE(check_in(report, "within_bounds")["ok"].get<bool>()) << type << ", " << bug;
    }
  }
}

TEST(FastScenario, IsNotExplored) {
  TemporaryFolder folder;
  const Ran ran = seeksim({"explore", folder.write("s.json", fast_text_of()), "--budget", "1s"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("judged by exact bits"), std::string::npos) << ran.err;
}

// Its kernels for GPUs, and copies there and back where a vendor's library would be.
TEST(FastScenario, RunsOnTheEmulatedDevice) {
  const Json report = report_of({"--device=emulated", "steps=1"});
  EXPECT_TRUE(check_in(report, "within_bounds")["ok"].get<bool>());
  const Json host = report_of({"steps=1"});
  EXPECT_EQ(report["fast"]["products"], host["fast"]["products"]) << "the same operands and order";
  EXPECT_EQ(report["fast"]["products_through_host"], report["fast"]["products"]["ops"]) << "it has none, and says so";
  EXPECT_EQ(host["fast"]["products_through_host"], 0);
}

TEST(FastScenario, FaultsOnlyStrikeTheFreeRun) {
  const Json report = report_of({R"(faults=[{"kind":"rank_crash","rank":1,"step":1}])"},
                                fast_text_of(R"("recovery": { "policy": "rebuild_and_redo" },)"));
  EXPECT_TRUE(check_in(report, "within_bounds")["ok"].get<bool>());
  EXPECT_EQ(report["recoveries"].size(), 1u);
}

// ---- the check itself, of comparisons made by hand
// --------------------------------------------------------------------

FastComparison sound() {
  FastComparison seen;
  seen.audit.report.products = {10, 100, 0, 0.25, {}};
  seen.audit.report.sums = {4, 40, 0, 0.5, {}};
  seen.loss = {3, 2};
  return seen;
}

CheckResult judged(const FastComparison* seen) {
  static const Scenario scenario = load_scenario_text(fast_text_of(), "s.json");
  static const RunRecord run = good_run(2);
  Evidence evidence{scenario, run, nullptr, std::nullopt, {}};
  evidence.fast = seen;
  return judge(CheckSpec{"within_bounds", ""}, evidence);
}

TEST(WithinBounds, IsRedWhereItSawNothing) {
  EXPECT_FALSE(judged(nullptr).looked);
  FastComparison seen = sound();
  EXPECT_TRUE(judged(&seen).ok) << judged(&seen).detail;
  seen.audit.report.sums.ops = 0;
  EXPECT_FALSE(judged(&seen).ok) << "two ranks, and no sum was compared";
  EXPECT_FALSE(judged(&seen).looked);
  seen = sound();
  seen.audit.report.products.ops = 0;
  EXPECT_FALSE(judged(&seen).looked);
}

TEST(WithinBounds, IsRedWhereTheOperandsWereNotTheContracts) {
  FastComparison seen = sound();
  seen.not_canonical = "3 of 20 tensors differ";
  EXPECT_FALSE(judged(&seen).ok);
  EXPECT_NE(judged(&seen).detail.find("operands were not the canonical run's"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
