// The bugs that other frameworks had in offloading, planted one by one: for each the check that must notice it, in the
// smallest setting in which the bug can do anything. docs/zero-and-offload.md has the table with what each one was.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// Settings in which bugs are planted: deepspeed's zero_optimization, and what else a scenario says.
struct Offloading {
  const char* zero;
  const char* more = "";
  const char* deepspeed = "";
};

constexpr Offloading kCpu = {
    R"({ "stage": 2, "overlap_comm": true, "reduce_bucket_size": 1500, "offload_optimizer": { "device": "cpu" } })"};
constexpr Offloading kPinned = {
    R"({ "stage": 2, "overlap_comm": true, "reduce_bucket_size": 1500,
         "offload_optimizer": { "device": "cpu", "pin_memory": true } })"};
constexpr Offloading kCpu1 = {R"({ "stage": 1, "offload_optimizer": { "device": "cpu" } })"};
constexpr Offloading kNvme = {
    R"({ "stage": 2, "sub_group_size": 500, "offload_optimizer": { "device": "nvme", "nvme_path": "nvme",
         "buffer_count": 2, "pipeline_read": true, "pipeline_write": true } })"};
constexpr Offloading kShortReads = {kNvme.zero, R"("faults": [ { "kind": "nvme_short_read", "rank": 1, "step": 1 } ],
                   "recovery": { "policy": "rebuild_and_redo", "watchdog_s": 60 },)"};
constexpr Offloading kHostCheckpoints = {R"({ "stage": 1 })", R"("checkpointing": { "every": 1 },)",
                                         R"("activation_checkpointing": { "cpu_checkpointing": true },)"};

struct Row {
  const char* bug;
  Offloading setting;
  const char* check;
  const char* detail;
};

const Row kRows[] = {
    {"offload_miscounts_first_step", kCpu, "conservation", "step 0"},
    {"offload_keeps_first_gradients", kCpu, "conservation", "not every sample entered once"},
    {"overlapping_shards", kCpu1, "partition", "two owners"},
    {"offload_norm_leaves_one_out", kCpu, "golden:bitwise", "gradient norm of step 0"},
    {"offload_waits_elsewhere", kNvme, "no_races", "has to wait for the copy queue's event"},
    {"skip_wait:update_applied", kCpu, "no_races", "has to wait for the copy queue's event"},
    {"skip_wait:gradients_arrived", kPinned, "no_races", "the host queue has to wait for the copy queue's"},
    {"checkpoint_freed_early", kHostCheckpoints, "no_races", "is given back while the copy queue reads it in copy"},
    {"pinned_freed_early", kHostCheckpoints, "no_races", "is given back while the copy queue reads it in copy"},
    {"skip_wait:gradients_arrived", kCpu, "no_races", "the host queue has to wait for the copy queue's"},
    {"offload_drops_accumulation", kCpu, "conservation", "not every sample entered once"},
    {"offload_tail_squared", kCpu, "golden:bitwise", ""},
    {"swap_files_shared", kNvme, "no_recovery", ""},
    {"short_reads_taken", kShortReads, "golden:bitwise", ""},
    {"swap_forgets_place", kNvme, "golden:bitwise", ""},
};

// Widths that no vector's width divides: the model has an odd number of values.
Outcome run_with(const Offloading& setting, const std::string& bug) {
  const std::string text = fmt::format(
      R"({{ "name": "offload_bugs",
  "model": {{ "family": "gpt2", "layers": 4, "width": 14, "heads": 2, "context": 7, "vocab": 61 }},
  "data": {{ "synthetic": true }},
  "world": {{ "nodes": 2, "ranks_per_node": 2, "network": "ib" }},
  "deepspeed": {{ "train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
                 {} "zero_optimization": {}, "gradient_clipping": 0.5,
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 1e-2, "weight_decay": 0.1 }} }} }},
  "steps": 4, {} {} "checks": [ "golden:bitwise", "conservation", "no_recovery" ] }})",
      setting.deepspeed, setting.zero, setting.more, bug.empty() ? "" : fmt::format(R"("bug": "{}",)", bug));
  return run_scenario(load_scenario_text(text, "offload_bugs.json"), {}, [](std::string_view) {});
}

// What a check said; null where it was not made.
Json offload_check(const Outcome& outcome, const std::string& check) {
  for (const Json& one : outcome.report["checks"]) {
    if (one["name"] == check) return one;
  }
  return {};
}

TEST(OffloadBugs, NoneIsThereUnlessPlanted) {
  for (const Offloading& setting : {kCpu, kPinned, kCpu1, kNvme, kShortReads, kHostCheckpoints}) {
    const Outcome outcome = run_with(setting, "");
    EXPECT_EQ(outcome.status, ExitStatus::as_expected) << setting.zero << outcome.report["checks"].dump(2);
    EXPECT_TRUE(offload_check(outcome, "no_races").value("ok", false)) << setting.zero;
  }
}

class OffloadBug : public ::testing::TestWithParam<Row> {};

TEST_P(OffloadBug, TurnsItsCheckRed) {
  const Row& row = GetParam();
  const Outcome outcome = run_with(row.setting, row.bug);
  const Json check = offload_check(outcome, row.check);
  ASSERT_FALSE(check.is_null()) << row.check << " was not made";
  EXPECT_FALSE(check["ok"].get<bool>()) << row.bug << " goes unnoticed: " << check["detail"];
  EXPECT_TRUE(check.value("looked", true)) << check["detail"];
  std::string detail = check["detail"];
  for (const Json& race : outcome.report["races"]) detail += '\n' + race["text"].get<std::string>();
  EXPECT_NE(detail.find(row.detail), std::string::npos) << detail;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, OffloadBug, ::testing::ValuesIn(kRows), [](const auto& one) {
  std::string name = fmt::format("{}_{}", one.index, one.param.bug);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
});

TEST(OffloadBugs, AreInTheTableWithTheirCheck) {
  const std::string table = read_all("docs/zero-and-offload.md");
  for (const Row& row : kRows) {
    const std::size_t at = table.find(fmt::format("| `{}` |", row.bug));
    ASSERT_NE(at, std::string::npos) << row.bug;
    const std::string check = std::string(row.check).substr(0, std::string_view(row.check).find(':'));
    EXPECT_NE(table.substr(at, table.find('\n', at) - at).find(check), std::string::npos)
        << row.bug << ": " << row.check;
  }
}

}  // namespace
}  // namespace seeksim::harness
