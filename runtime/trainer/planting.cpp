#include "runtime/trainer/planting.h"

namespace seeksim::runtime {

std::unique_ptr<Planted> plant(const TrainPlan& plan, int rank) {
  for (const std::span<const PlantedRow> rows : {bugs_of_passes(), bugs_of_reduction(), bugs_of_commit()}) {
    for (const PlantedRow& row : rows) {
      const bool here = row.where == PlantedRow::everywhere || plan.bug.rank == rank;
      if (plan.bug.is(row.bug) && here) return row.make({plan, rank});
    }
  }
  return std::make_unique<Planted>();
}

}  // namespace seeksim::runtime
