// A hang that dumps or logs tell of, again on simulated ranks: the scenario that ends in the same picture, and the run
// that shows it.
#pragma once

#include <string>
#include <vector>

#include "harness/analyse/picture.h"
#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

inline constexpr int kReproducedRanksMost = 256;

// What a scenario is made of: the fault that gives this picture.
struct HangCause {
  enum class What {
    never_comes,  // ranks never begin the operation, and stay alive
    gone,         // their processes end before it
    other_operation,
    other_size,
    other_type,
    other_order,   // they begin the next operation first
    messages_lost  // everyone has come, and no message arrives
  } what = What::never_comes;
  std::vector<int> ranks;       // of which it is so; empty for messages_lost
  std::string operation;        // of HangPicture, in which the others wait; empty: the picture does not say
  std::string stands_in;        // a simulated step has no such operation, so this one is in its place; empty: it has
  bool one_of_several = false;  // other causes give this picture as well
  bool several_groups = false;  // in the job they wait in several groups, in the end for the same ranks; here in one
};

// Throws BadInput where nothing hangs, or where the picture does not say enough.
HangCause cause_of(const HangPicture& picture);
// In words, without a capital and a full stop.
std::string text_of(const HangCause& cause);

// A scenario of `world` ranks. `why` says where it comes from.
Json reproduction(const HangPicture& picture, const HangCause& cause, const std::string& name, const std::string& why);

// One rank in the job and in the simulation.
struct HeldRank {
  int rank = 0;
  std::string job, simulation;  // what each shows; an empty `job`: nothing is known of it
  bool same = true;
};

struct Reproduced {
  bool same = false;  // each rank of which something is known ends likewise, and the run ends as its scenario expects
  std::vector<HeldRank> ranks;
  std::string verdict;  // the run's last sentence
};

// Runs the scenario in `file` and holds its flight recorders against the picture.
Reproduced reproduce(const HangPicture& picture, const HangCause& cause, const std::string& file);

}  // namespace seeksim::harness
