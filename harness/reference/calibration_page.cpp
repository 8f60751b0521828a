#include "harness/calibration/error_table.h"
#include "harness/reference/markdown.h"
#include "harness/reference/pages.h"

namespace seeksim::harness {

Page calibration_page() {
  const std::vector<calibration::Measurement> rows = calibration::published_measurements();
  std::string text = page_head(
      "How far off is each predicted time?",
      "Times of `seeksim plan --platform` ([calibration](../calibration.md)) against measurements that others "
      "published, `bench/published/times.csv`. An error is |predicted / measured - 1|. Order is Kendall's tau: 1 where "
      "the runs of a series come out in the order in which they were measured, -1 in the opposite one.");
  text += "\n## By kind\n\n" + calibration::error_table(rows);
  text += "\n## By series\n\n" + calibration::series_table(rows);
  text += "\n## Constants\n\n" + calibration::constant_table();
  text += "\n## Sources\n\n" + calibration::source_table(calibration::published_sources());
  return {"calibration.md", text};
}

}  // namespace seeksim::harness
