// What `seeksim torch check` turns in a script, one row a switch, and what has to hold when it is turned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/torch/plan.h"

namespace seeksim::harness::torch {

// One run of the script, to be changed by a switch.
struct Variant {
  TorchScenario scenario;
  std::vector<std::string> turns;      // what the ranks turn by themselves (pytorch/python/seeksim_torch/turns.py)
  std::vector<std::string> arguments;  // behind those of the script
  bool cold = false;                   // each rank is a process that imports torch itself
};

// What has to hold, against the run in which nothing is turned.
enum class Demand : std::uint8_t {
  bits,          // the same bits
  reassociated,  // what other orders of sums and other roundings move
  steady,        // these move less than rounding to 16 bits does: the training is no chaos
  other_losses,  // other losses
  replicas_red,  // the judge replicas_equal is red
  finite_red,    // finite or losses_finite is red, or weights and losses stayed finite
  resumed,       // the same bits as the same steps of the run that was not interrupted
  count_
};
std::string_view name(Demand demand);

struct Switch {
  std::string_view name;
  std::string_view uses;   // a part of torch that the script has to use; "": any script will do
  std::string_view lacks;  // what is said where it does not
  Demand demand;
  void (*turn)(Variant& variant, std::string_view name);
  bool by_ranks;  // the ranks turn it, and say whether they could
  std::string_view description;
};
const std::vector<Switch>& switches();
std::vector<std::string> switch_names();

}  // namespace seeksim::harness::torch
