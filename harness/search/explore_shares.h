// The shares of an exploration that mpirun spreads over processes: when the time is over they meet, and the first
// process reports for all. Otherwise each would report for itself, and mpirun would end them all as soon as one has
// found something.
#pragma once

#include <map>
#include <string>

#include "harness/search/exploration.h"
#include "harness/search/explore_worker.h"

namespace seeksim::harness {

// Where a finding was written.
struct Told {
  std::string file, schedule, shrunk;
  std::string itself;  // the scenario that failed as its twin did; empty: it did not, or was not tried
  int shrink_runs = 0;
  double shrink_s = 0;
};
using ToldByKey = std::map<std::string, Told>;  // by finding_key

// Whether Open MPI's mpirun has started this process, so that its processes meet over MPI.
bool shares_meet(const LaunchedAs& as);
// At the first process: all shares in one. At the others: false, nothing is left to tell.
bool bring_together(const LaunchedAs& as, ExploreResult& result, ToldByKey& told);

// One share as text, and one more taken in; for tests.
std::string text_of_share(const ExploreResult& result, const ToldByKey& told);
void take_share(const std::string& text, ExploreResult& all, ToldByKey& told);

}  // namespace seeksim::harness
