#include "harness/calibration/error_picture.h"
#include "harness/calibration/error_table.h"
#include "harness/reference/markdown.h"
#include "harness/reference/pages.h"

namespace seeksim::harness {

Page calibration_page() {
  const std::vector<calibration::Measurement> rows = calibration::published_measurements();
  std::string text = page_head(
      "How far off is each predicted time, and each peak of memory?",
      "Times and memory of `seeksim plan --platform` ([calibration](../calibration.md), "
      "[memory](../calibrated-memory.md)) against measurements that others "
      "published, `bench/published/`. An error is |predicted / measured - 1|. Order is Kendall's tau: 1 where "
      "the runs of a series come out in the order in which they were measured, -1 in the opposite one.");
  text += "\n## By kind\n\n" + calibration::error_table(rows);
  text += "\n## By series\n\n" + calibration::series_table(rows);
  const std::vector<calibration::MemoryMeasurement> memory = calibration::published_memory();
  text += "\n## Memory\n\nPeaks of a GPU, `bench/published/memory.csv`.\n\n" + calibration::memory_table(memory);
  text += "\n## Memory by series\n\n" + calibration::memory_series_table(memory);
  text += "\n## Constants\n\n" + calibration::constant_table();
  text += "\n## Sources\n\n" + calibration::source_table(calibration::published_sources());
  return {"calibration.md", text};
}

Page steps_picture() { return {"steps.svg", calibration::steps_picture(calibration::published_measurements())}; }
Page memory_picture() { return {"memory.svg", calibration::memory_picture(calibration::published_memory())}; }

}  // namespace seeksim::harness
