#include "runtime/layout/grid.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/layout/seats.h"

namespace seeksim::runtime {

GridPlace launch_place(const ParallelPlan& plan, int world_size, int seat) {
  SEEKSIM_CHECK(world_size % plan.ranks() == 0, "%d ranks, and a replica of the model takes %d", world_size,
                plan.ranks());
  const int data = world_size / plan.ranks();
  return {seat / (data * plan.ways()), seat / plan.ways() % data, seat % plan.ways()};
}

Grid::Grid(const ParallelPlan& plan, int world_size, const std::vector<int>& members)
    : Grid(plan, Seats{world_size, {}}, members) {}

Grid::Grid(const ParallelPlan& plan, const Seats& seats, const std::vector<int>& members)
    : pipeline_(plan.pipeline),
      ways_(plan.ways()),
      way_name_(plan.expert > 1    ? (plan.tensor > 1 ? ", expert and tensor way " : ", expert way ")
                : plan.context > 1 ? ", context way "
                                   : ", tensor way "),
      holders_(std::size_t(plan.ranks())) {
  for (const int rank : members) {
    const GridPlace place = launch_place(plan, seats.count, seats.of(rank));
    holders_[std::size_t(place.stage * ways_ + place.way)].push_back(rank);
  }
  replicas_ = int(holders_.front().size());
  for (std::vector<int>& of_one : holders_) {
    std::sort(of_one.begin(), of_one.end());
    replicas_ = std::min(replicas_, int(of_one.size()));
  }
}

std::string Grid::problem() const {
  std::string text;
  for (int stage = 0; stage < pipeline_; ++stage) {
    for (int way = 0; way < ways_; ++way) {
      if (!holders(stage, way).empty()) continue;
      text += text.empty() ? "no surviving rank holds " : ", ";
      text += "stage " + std::to_string(stage) + (ways_ > 1 ? std::string(way_name_) + std::to_string(way) : "");
    }
  }
  return text;
}

std::optional<GridPlace> Grid::place(int rank) const {
  for (int stage = 0; stage < pipeline_; ++stage) {
    for (int way = 0; way < ways_; ++way) {
      const std::vector<int>& ranks = holders(stage, way);
      const auto found = std::find(ranks.begin(), ranks.begin() + replicas_, rank);
      if (found != ranks.begin() + replicas_) return GridPlace{stage, int(found - ranks.begin()), way};
    }
  }
  return std::nullopt;
}

int Grid::rank_at(const GridPlace& place) const {
  SEEKSIM_CHECK(place.data < replicas_, "replica %d of %d", place.data, replicas_);
  return holders(place.stage, place.way)[std::size_t(place.data)];
}

std::vector<int> Grid::data_axis(int stage, int way) const {
  const std::vector<int>& ranks = holders(stage, way);
  return {ranks.begin(), ranks.begin() + replicas_};
}

std::vector<int> Grid::way_axis(int stage, int data) const {
  std::vector<int> ranks;
  for (int way = 0; way < ways_; ++way) ranks.push_back(rank_at({stage, data, way}));
  return ranks;
}

std::vector<int> Grid::replica(int data) const {
  std::vector<int> ranks;
  for (int stage = 0; stage < pipeline_; ++stage) {
    for (int way = 0; way < ways_; ++way) ranks.push_back(rank_at({stage, data, way}));
  }
  return ranks;
}

std::vector<int> Grid::used() const {
  std::vector<int> ranks;
  for (const std::vector<int>& of_one : holders_) ranks.insert(ranks.end(), of_one.begin(), of_one.begin() + replicas_);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> Grid::idle() const {
  std::vector<int> ranks;
  for (const std::vector<int>& of_one : holders_) ranks.insert(ranks.end(), of_one.begin() + replicas_, of_one.end());
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace seeksim::runtime
