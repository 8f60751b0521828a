// DeepSpeed's ledger (harness/search/deepspeed_ledger.h) against what nvidia-smi said of BLOOM's trial runs. Its
// allocator's share is fitted to the rows that the rule of bench/published/README.md leaves to a fit.
// With SEEKSIM_MEND=1 in the environment the table of docs/planning-memory.md is written again.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/calibration/memory_measurements.h"
#include "harness/calibration/published_rows.h"
#include "harness/loading/load.h"
#include "harness/search/deepspeed_ledger.h"
#include "tests/calibration/quoted.h"

namespace seeksim::harness::calibration {
namespace {

using What = MemoryMeasurement::What;

// A mistake in what is told of a run.
enum class Told { right, sharded_where_zero_is_off, without_checkpointing, without_pipeline };

std::string scenario_of(const MemoryMeasurement& row, Told told) {
  const StepLayout& l = row.layout;
  const ModelShape& m = row.model;
  const bool bf16 = !l.gradients_in_16_bits;  // BF16_Optimizer, which DeepSpeed takes where ZeRO is off
  const bool zero = l.shards != Shards::none && (!bf16 || told == Told::sharded_where_zero_is_off);
  const int stages = told == Told::without_pipeline ? 1 : l.pipeline;
  return fmt::format(
      R"({{"name": "bloom", "numerics": "shapes", "steps": 1, "data": {{"synthetic": true}},
  "model": {{"family": "gpt2", "layers": {}, "width": {}, "heads": {}, "vocab": {}, "context": {}}},
  "world": {{"nodes": {}, "ranks_per_node": 8, "tensor": {}, "pipeline": {}}},
  {}
  "deepspeed": {{"train_batch_size": {}, "train_micro_batch_size_per_gpu": {}, "{}": {{"enabled": true}},
                 "zero_optimization": {{"stage": {}}}}},
  "recovery": {{"policy": "stop"}}}})",
      m.layers, m.width, m.heads, m.vocab, m.sequence, l.data() * l.tensor * stages / 8, l.tensor, stages,
      told == Told::without_checkpointing ? "" : R"("checkpointing": {"every": 1},)", l.batch, l.micro_batch,
      bf16 ? "bf16" : "fp16", zero ? 1 : 0);
}

struct Row {
  MemoryMeasurement measured;
  double context = 0, asked_for = 0, bytes = 0;  // the ledger's
};

std::vector<Row> rows_of_bloom(Told told = Told::right) {
  std::vector<Row> rows;
  for (const MemoryMeasurement& one :
       read_memory(published_table("memory_deepspeed.csv"), published_file("memory_deepspeed.csv"))) {
    Row row = {one};
    for (const LedgerLine& line : deepspeed_ledger(load_scenario_text(scenario_of(one, told), "bloom.json"))) {
      row.bytes += line.bytes;
      if (line.name == "CUDA and NCCL") row.context = line.bytes;
      if (line.name != "CUDA and NCCL" && line.name != "allocator") row.asked_for += line.bytes;
    }
    rows.push_back(row);
  }
  return rows;
}

Errors errors_where(const std::vector<Row>& rows, const std::function<bool(Kept)>& holds) {
  std::vector<double> ratios;
  for (const Row& row : rows)
    if (row.measured.what == What::used && holds(row.measured.kept)) ratios.push_back(row.bytes / row.measured.bytes);
  return errors_of(ratios);
}

bool is_unseen(Kept kept) { return kept != Kept::fitted; }

// How many that were out of memory are said not to fit, and how many were.
std::pair<int, int> out_of_memory(const std::vector<Row>& rows) {
  std::pair<int, int> all;
  for (const Row& row : rows) {
    if (row.measured.what != What::fits) continue;
    all.first += row.bytes > row.measured.bytes;
    ++all.second;
  }
  return all;
}

TEST(Ledger, OfDeepSpeedPredictsRunsThatNoFitHasSeen) {
  const std::vector<Row> rows = rows_of_bloom();
  const Errors unseen = errors_where(rows, is_unseen);
  EXPECT_GT(unseen.count, 50u);
  EXPECT_EQ(unseen.within_10, 1);
  EXPECT_LT(unseen.median, 0.05);
  const auto [said, were] = out_of_memory(rows);
  EXPECT_GE(said, 5);
  EXPECT_EQ(were, 6);
}

TEST(Ledger, ARunThatIsToldWrongTurnsItRed) {
  for (const Told told : {Told::sharded_where_zero_is_off, Told::without_checkpointing, Told::without_pipeline})
    EXPECT_LT(errors_where(rows_of_bloom(told), is_unseen).within_10, 0.9) << int(told);
}

TEST(Ledger, HasTheShareOfTheAllocatorThatTheFitFinds) {
  std::vector<double> shares;
  double inside = 0, asked_for = 0;
  for (const Row& row : rows_of_bloom()) {
    if (row.measured.what != What::used || row.measured.kept != Kept::fitted) continue;
    shares.push_back((row.measured.bytes - row.context) / row.asked_for);
    inside = row.bytes - row.context, asked_for = row.asked_for;
  }
  ASSERT_GT(shares.size(), 20u);
  std::nth_element(shares.begin(), shares.begin() + std::ptrdiff_t(shares.size() / 2), shares.end());
  EXPECT_NEAR(inside / asked_for, shares[shares.size() / 2], 0.005);
}

std::string table(const std::vector<Row>& rows) {
  std::string text = "| in the fit | runs | median error | worst | within 10 % |\n|---|---|---|---|---|\n";
  constexpr std::pair<Kept, const char*> kKept[] = {
      {Kept::series, "no: all runs in bf16"}, {Kept::row, "no: half of the runs in fp16"}, {Kept::fitted, "yes"}};
  for (const auto& [kept, called] : kKept) {
    const Errors e = errors_where(rows, [kept = kept](Kept one) { return one == kept; });
    text += fmt::format("| {} | {} | {:.3g} % | {:.3g} % | {:.3g} % |\n", called, e.count, 100 * e.median,
                        100 * e.worst, 100 * e.within_10);
  }
  const auto [said, were] = out_of_memory(rows);
  return text + fmt::format("\nOf {} more that were out of memory, {} are said not to fit.\n", were, said);
}

// What stands between `<!-- bloom -->` and `<!-- end -->`.
TEST(Ledger, ThePageQuotesItsErrors) {
  testing::page_quotes("planning-memory.md", "<!-- bloom -->\n", table(rows_of_bloom()));
}

}  // namespace
}  // namespace seeksim::harness::calibration
