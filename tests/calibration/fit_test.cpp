// The constants in the tree are those that the fit finds, and the fit finds what was planted.
// With SEEKSIM_MEND=1 in the environment harness/calibration/constants.inl is written again.

#include "tests/calibration/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/paths.h"

namespace seeksim::harness::calibration {
namespace {

std::string constants_file() { return paths::source_dir() + "/harness/calibration/constants.inl"; }

std::string read_all(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(Fit, FindsTheConstantsOfTheTree) {
  const Constants found = testing::fit(published_memory(), testing::fit(published_measurements()));
  const std::string now = read_all(constants_file()), written = testing::with_constants(now, found);
  if (std::getenv("SEEKSIM_MEND") != nullptr) {
    std::ofstream(constants_file()) << written;
    return;
  }
  const Constants tree;
  for (const ConstantRow& row : constant_rows())
    EXPECT_NEAR(tree.*row.member, found.*row.member, 2e-3 * found.*row.member)
        << row.name << ": SEEKSIM_MEND=1 in the environment of this test writes constants.inl again";
}

// Measurements that the model itself made, with constants that the fit does not know.
TEST(Fit, FindsWhatWasPlanted) {
  Constants planted;
  planted.nvlink_h100 *= 0.9;
  planted.gemm_h100 *= 1.1;
  planted.launch_us *= 1.2;
  std::vector<Measurement> rows = published_measurements();
  for (Measurement& row : rows) row.us = predicted_us(row, planted);
  const Constants found = testing::fit(rows);
  EXPECT_LT(testing::cost(rows, found), 0.3 * testing::cost(rows, Constants{}));
  EXPECT_NEAR(found.nvlink_h100, planted.nvlink_h100, 0.02 * planted.nvlink_h100);
  EXPECT_NEAR(found.launch_us, planted.launch_us, 0.1 * planted.launch_us);
}

TEST(Fit, FindsWhatWasPlantedInMemory) {
  Constants planted;
  planted.kept_plain *= 1.2;
  planted.reserved_eager *= 1.1;
  std::vector<MemoryMeasurement> rows = published_memory();
  for (MemoryMeasurement& row : rows)
    if (row.what != MemoryMeasurement::What::fits) row.bytes = predicted_bytes(row, planted);
  const Constants found = testing::fit(rows, Constants{});
  EXPECT_NEAR(found.kept_plain, planted.kept_plain, 0.01 * planted.kept_plain);
  EXPECT_NEAR(found.reserved_eager, planted.reserved_eager, 0.01 * planted.reserved_eager);
}

TEST(Fit, SeesNoPeakThatIsKeptOut) {
  std::vector<MemoryMeasurement> rows = published_memory();
  const Constants before = testing::fit(rows, Constants{});
  for (MemoryMeasurement& row : rows) {
    if (row.kept != Kept::fitted) row.bytes *= 3;
    row.fits = !row.fits;
  }
  const Constants after = testing::fit(rows, Constants{});
  for (const ConstantRow& row : constant_rows()) EXPECT_EQ(before.*row.member, after.*row.member) << row.name;
}

TEST(Fit, SeesNoRowThatIsKeptOut) {
  std::vector<Measurement> rows = published_measurements();
  const Constants before = testing::fit(rows);
  for (Measurement& row : rows)
    if (row.kept != Kept::fitted) row.us *= 3;
  const Constants after = testing::fit(rows);
  for (const ConstantRow& row : constant_rows()) EXPECT_EQ(before.*row.member, after.*row.member) << row.name;
}

TEST(Fit, AConstantThatTheTreeHasWrongIsSeen) {
  const std::vector<Measurement> rows = published_measurements();
  const Constants found = testing::fit(rows);
  for (const char* name : {"nvls", "wire_ib", "gemm_a100", "tensor_other", "contention"}) {
    Constants wrong = found;
    for (const ConstantRow& row : constant_rows())
      if (std::string(row.name) == name) wrong.*row.member *= 1.25;
    EXPECT_GT(testing::cost(rows, wrong), 1.002 * testing::cost(rows, found)) << name;
  }
}

}  // namespace
}  // namespace seeksim::harness::calibration
