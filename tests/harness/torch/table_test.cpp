// Tables of equalities: what their files say, what is refused, and which cells are red.
#include "harness/torch/table/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "tests/support/paths.h"

namespace seeksim::harness::torch {
namespace {

const char* const kTable = R"({
  "script": "train.py", "arguments": ["--steps", 3],
  "axes": [{"name": "layout", "values": ["ddp", "zero1", "zero2"]},
           {"name": "np", "values": [2, 3]},
           {"name": "accumulation", "values": [1, 4]}],
  "cannot": [{"when": {"layout": "zero1", "np": 3}, "why": "no"}],
  "expect": [{"when": {"accumulation": 4, "layout": ["zero2"]}, "grade": "reassociated", "why": "order"},
             {"when": {"np": 3}, "grade": "rounding", "why": "thirds"}]
})";

Cell cell(const std::string& layout, const std::string& np, const std::string& accumulation) {
  return {{"layout", layout}, {"np", np}, {"accumulation", accumulation}};
}

// What is wrong with a table in which `from` is replaced by `to`.
std::string refused(const std::string& from, const std::string& to) {
  std::string text = kTable;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    table_of(text, "t.json");
  } catch (const BadInput& wrong) {
    return wrong.problems().front().what + ' ' + wrong.problems().front().next;
  }
  return "";
}

TEST(TorchTable, TheFirstRuleThatCoversACellCountsAndWithoutOneItIsBits) {
  const Table table = table_of(kTable, "d/t.json");
  EXPECT_EQ(table.rows().size(), 4u);
  EXPECT_EQ(table.expected_of(cell("zero1", "2", "4")).grade, Grade::bits);
  EXPECT_EQ(table.expected_of(cell("zero2", "2", "4")).grade, Grade::reassociated);
  EXPECT_EQ(table.expected_of(cell("zero2", "3", "4")).why, "order");
  EXPECT_EQ(table.expected_of(cell("zero2", "3", "1")).grade, Grade::rounding);
  EXPECT_EQ(table.cannot_run(cell("zero1", "3", "1")), "no");
  EXPECT_EQ(table.cannot_run(cell("zero1", "2", "1")), "");
  EXPECT_EQ(command_of(table, cell("zero1", "2", "4")),
            (std::vector<std::string>{"d/train.py", "--steps", "3", "--layout", "zero1", "--accumulation", "4"}));
  EXPECT_EQ(ranks_of(cell("zero1", "3", "4")), 3);
  EXPECT_EQ(folder_name(table, cell("zero1", "3", "4")), "layout-zero1_np-3_accumulation-4");
}

TEST(TorchTable, AGradeWithoutAReasonIsRefused) {
  EXPECT_EQ(refused(R"(, "why": "thirds")", ""), "a reason is missing Say in a sentence why.");
  EXPECT_EQ(refused(R"(, "why": "no")", ""), "a reason is missing Say in a sentence why.");
  EXPECT_NE(refused("\"rounding\"", "\"near\"").find("no grade"), std::string::npos);
  EXPECT_NE(refused(R"({"np": 3}, "grade")", R"({"np": 5}, "grade")").find("np has no value"), std::string::npos);
  EXPECT_NE(refused(R"({"np": 3}, "grade")", R"({"ranks": 3}, "grade")").find("there is no axis"), std::string::npos);
  EXPECT_NE(refused("[2, 3]", "[2, 2]").find("each once"), std::string::npos);
  EXPECT_NE(refused("[2, 3]", "[2, 99]").find("from 1 to 64"), std::string::npos);
  EXPECT_NE(refused("\"script\": \"train.py\",", "").find("which script"), std::string::npos);
}

TEST(TorchTable, WhatMeasuresRoundingHasToBeAValueOfAnAxis) {
  const auto with = [](const std::string& value) { return R"("rounding_by": )" + value + R"(, "script": "train.py")"; };
  EXPECT_EQ(refused(R"("script": "train.py")", with(R"({"accumulation": 1})")), "");
  EXPECT_NE(refused(R"("script": "train.py")", with(R"({"accumulation": 2})")).find("there is no"), std::string::npos);
  EXPECT_NE(refused(R"("script": "train.py")", with(R"({"precision": "fp32"})")).find("there is no"),
            std::string::npos);
  EXPECT_NE(refused(R"("script": "train.py")", with("\"fp32\"")).find("name an axis"), std::string::npos);
}

TEST(TorchTable, OnlyKeepsWhatAllAreHeldAgainst) {
  Table table = table_of(kTable, "t.json");
  keep_only(table, "layout=zero2");
  keep_only(table, "np=3");
  EXPECT_EQ(table.axes[0].values, (std::vector<std::string>{"ddp", "zero2"}));
  EXPECT_EQ(table.axes[1].values, (std::vector<std::string>{"3"}));
  EXPECT_THROW(keep_only(table, "np=7"), BadInput);
  EXPECT_THROW(keep_only(table, "ranks=2"), BadInput);
  EXPECT_THROW(keep_only(table, "np"), BadInput);
}

CellResult found(Grade grade, Grade expected) {
  CellResult result;
  result.cell = cell("zero2", "2", "4");
  result.expected = expected;
  RunComparison comparison;
  comparison.grade = grade;
  comparison.weight_distance = grade == Grade::bits ? 0 : 3e-7;
  result.found = comparison;
  result.state = state_of(result);
  return result;
}

TEST(TorchTable, ACellIsRedWhereItIsFartherAwayOrNothingWasRun) {
  using State = CellResult::State;
  EXPECT_EQ(found(Grade::bits, Grade::bits).state, State::as_expected);
  EXPECT_EQ(found(Grade::bits, Grade::reassociated).state, State::nearer);
  EXPECT_EQ(found(Grade::reassociated, Grade::bits).state, State::red);
  EXPECT_EQ(found(Grade::different, Grade::rounding).state, State::red);
  EXPECT_EQ(state_of(CellResult()), State::red);
  CellResult failed = found(Grade::bits, Grade::bits);
  failed.problem = "recorded: rank 0 left no record";
  EXPECT_EQ(state_of(failed), State::red);
  CellResult longer = found(Grade::bits, Grade::bits);
  longer.found->only_in_b = 3;  // the other run used weights that this one did not
  EXPECT_EQ(state_of(longer), State::red);
}

TEST(TorchTable, TheTextHasARowForEachSettingAndSaysWhatIsRed) {
  Table table = table_of(kTable, "t.json");
  keep_only(table, "layout=zero2");
  const std::string text = table_text(table, {found(Grade::reassociated, Grade::bits)});
  EXPECT_EQ(text, "| np | accumulation | zero2 |\n| --- | --- | --- |\n| 2 | 4 | **RED** 3.0e-07 |\n");
  EXPECT_NE(table_text(table, {found(Grade::bits, Grade::reassociated)}).find("bits ≤ reassociated"),
            std::string::npos);
  const Json json = table_json(table, {found(Grade::reassociated, Grade::bits)}, "2.15.0");
  EXPECT_EQ(json["cells"][0]["state"], "red");
  EXPECT_EQ(json["cells"][0]["grade"], "reassociated");
}

TEST(TorchTable, TheTreesOwnTableLoadsAndEveryGradeBelowBitsHasAReason) {
  const Table table = load_table(paths::source_dir() + "/examples/pytorch/layouts.table.json");
  EXPECT_EQ(table.rows().size(), 72u);
  EXPECT_EQ(table.compared().values.size(), 8u);
  for (const Rule& rule : table.expect) EXPECT_FALSE(rule.why.empty());
}

}  // namespace
}  // namespace seeksim::harness::torch
