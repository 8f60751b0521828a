// Properties over random scenarios: draws them, runs them, and of one that fails makes the smallest scenario that still
// does, as a file for `seeksim run`. For tests in any framework: a result says whether it held, and what to print.
// Links rapidcheck, and nothing of GoogleTest (CMake target seeksim::testing).
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "harness/testing/scenario_gen.h"

namespace seeksim::property {

struct Property {
  std::string name;    // for the line that reports it
  Wanted wanted = {};  // what is drawn; by default anything, with "golden:bitwise", "golden:gradients", "ranks_agree"
  // Changes each scenario before it runs: checks and faults of one's own, a fixed world. Empty: as drawn.
  std::function<void(Json& scenario)> change = {};
  int cases = 100;
  double budget_s = 0;  // no case begins later than that; 0: as long as all of them take
  std::uint64_t seed = 20240601;
  // Scenarios that are refused count as none instead of as failures: not every model can be cut in every way.
  bool discard_refused = false;
  int shrink_runs = 400;     // at most; a twentieth of that where the limit of time is what fails
  double wall_limit_s = 60;  // of one case; they take milliseconds, but a busy machine may leave them waiting
  std::string save_to = {};  // a file for the shrunk scenario of a failure; empty: none
};

struct Result {
  bool held = false;
  int cases = 0;         // that ran
  std::string summary;   // one line and a table: cases by world and precision, the seed, the time
  std::string failure;   // what is red, and the shrunk scenario; empty: nothing
  std::string scenario;  // the shrunk one, as text
};

// SEEKSIM_PROPERTY_SEED=WORD draws other cases, of every property: a number, "random", or any other word (a commit's
// hash), which is hashed. SEEKSIM_PROPERTY_CASES=N: so many cases instead; SEEKSIM_PROPERTY_SECONDS=S: for so long.
// SEEKSIM_PROPERTY_SHOW=1: each is printed before it runs, the last one being the one that crashed.
Result check(const Property& property);

// With the variables; for searches of one's own.
rc::detail::TestParams search_parameters(std::uint64_t seed, int cases);
// Ends a search: whether its time is over.
class Budget {
 public:
  explicit Budget(double seconds);  // 0: there is no end
  bool is_over() const { return seconds_ > 0 && elapsed_s() >= seconds_; }
  double elapsed_s() const;

 private:
  double seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace seeksim::property
