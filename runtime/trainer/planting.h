// Makes the planted bug that a plan asks for. The bugs that are more than an edit of a value know the parts of the
// trainer that they spoil; no part knows them.
#pragma once

#include <memory>
#include <span>

#include "runtime/trainer/planted.h"

namespace seeksim::runtime {

// Where a bug is planted: whose run, and on which launch rank.
struct PlantedAt {
  const TrainPlan& plan;
  int rank;
};

// One row a bug of the trainer: its name in the catalogue (rules/bugs.inl), on which ranks it acts, its behaviour.
struct PlantedRow {
  enum Where : std::uint8_t { everywhere, on_one_rank };
  Bug bug;
  Where where;
  std::unique_ptr<Planted> (*make)(const PlantedAt& at);
};

// The rows of what happens before the vote (planted_before_vote.cpp), and of the vote and what comes after it.
std::span<const PlantedRow> bugs_before_vote();
std::span<const PlantedRow> bugs_from_vote_on();

// The plan's bug on launch rank `rank`, or the no-op where none of the trainer's is planted there.
std::unique_ptr<Planted> plant(const TrainPlan& plan, int rank);

// What a bug derives from: the no-op that knows where it is planted.
struct Mistake : Planted {
  explicit Mistake(const PlantedAt& place) : at(place) {}
  PlantedAt at;
};
template <class Behaviour>
std::unique_ptr<Planted> make_planted(const PlantedAt& at) {
  return std::make_unique<Behaviour>(at);
}

}  // namespace seeksim::runtime
