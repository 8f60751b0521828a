// bench/torch_fsdp_memory.py says of FSDP2 what bench/published/memory.csv has of it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "harness/calibration/memory_measurements.h"
#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using calibration::MemoryMeasurement;

class FsdpMemory : public testing::ScriptRuns {
 protected:
  // MiB that the tracker says; below 0: nothing.
  double tracked(const MemoryMeasurement& row) const {
    const calibration::ModelShape& m = row.model;
    std::vector<std::string> command = {python_, paths::source_dir() + "/bench/torch_fsdp_memory.py"};
    for (const int number : {m.layers, m.width, m.heads, m.key_heads, m.hidden, m.vocab, m.sequence,
                             row.layout.micro_batch, row.layout.gpus})
      command.push_back(std::to_string(number));
    if (row.layout.recompute == calibration::Recompute::full) command.emplace_back("full");
    const Captured ran = capture(command, {}, testing::kLimit_s);
    EXPECT_STATUS(ran, 0);
    const std::string key = "'Total': ";
    const std::size_t at = ran.out.rfind(key);
    return at == std::string::npos ? -1 : std::strtod(ran.out.c_str() + at + key.size(), nullptr);
  }
};

// Other releases of torch may keep a little more or less.
TEST_F(FsdpMemory, IsWhatTheTableHas) {
  constexpr double kMiB = 1 << 20, kNear = 0.02;
  int held = 0;
  for (const MemoryMeasurement& row : calibration::published_memory()) {
    if (row.series != "tracker-1b") continue;
    EXPECT_NEAR(tracked(row), row.bytes / kMiB, kNear * row.bytes / kMiB) << row.id;
    ++held;
  }
  EXPECT_EQ(held, 2);
}

TEST_F(FsdpMemory, OfAModelWithoutItsHeadIsSeenToBeLess) {
  for (MemoryMeasurement row : calibration::published_memory()) {
    if (row.id != "tracker-1b/1b-full") continue;
    const double all = tracked(row);
    row.model.vocab /= 8;
    EXPECT_LT(tracked(row), 0.6 * all);
    return;
  }
  FAIL() << "there is no such row";
}

}  // namespace
}  // namespace seeksim::harness::torch
