// The processes of an exploration: each explores its share until the time is over and writes lines of JSON; one that
// crashes is a finding itself, since what it was running stands in memory that it shares.
#pragma once

#include <functional>
#include <string>

#include "harness/search/explore.h"

namespace seeksim::harness {

// What all processes together have found.
struct ExploreResult {
  std::uint64_t cases = 0;
  bool complete = true;                           // every process ran out of cases
  std::map<std::string, std::uint64_t> by;        // cases by how they came about
  std::map<std::string, std::uint64_t> stops;     // clean ones, by reason
  std::map<std::string, std::uint64_t> unjudged;  // by check: cases that gave it nothing to look at
  Coverage coverage;
  struct Found {
    std::string check, why;
    Json document;  // the scenario that shows it
    double after_s = 0;
    std::uint64_t times = 0;
    bool shown = true;     // run by itself it fails alike
    bool of_twin = false;  // the scenario's twin failed (twin.h)
    std::string
        replay;  // the schedule with which the explored scenario itself fails so; empty: it takes more than that
  };
  std::map<std::string, Found> found;  // by finding_key
  // Takes in what another search found; of one that both found, the first stays.
  void add(const ExploreResult& other);
  std::uint64_t red = 0;  // cases
  double wall_s = 0;
};

struct ExploreWork {
  const Explored& explored;
  const Golden* golden;
  ExploreOptions options;
  int processes = 1;
  int first_worker = 0;  // of this machine's
  double budget_s = 60;
  std::uint64_t cases_max = 0;                            // of each process; 0: no limit
  std::size_t findings_max = 0;                           // 0: no limit
  bool of_twin = false;                                   // what is explored is the scenario's twin
  std::function<void(const ExploreResult::Found&)> tell;  // of each new one, at once
  // Called about once a second with the cases so far. Empty: nobody listens.
  std::function<void(std::uint64_t cases, std::uint64_t red)> tick = {};
};
ExploreResult explore(const ExploreWork& work);

}  // namespace seeksim::harness
