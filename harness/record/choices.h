// Choices: how evenly the routers of a run chose among their experts, from what ranks told of their own tokens.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/detect/observer.h"

namespace seeksim::harness {

// How a step's tokens were spread over experts.
struct ExpertLoad {
  std::int64_t step = 0;
  double share = 0;  // of a layer's choices, those of the expert that most chose,
  int layer = 0;     // in the layer where that is largest
  int expert = 0;
  double dropped = 0;  // of all choices, those that found no room
};

class Choices {
 public:
  // What a rank told of a step; epochs: of earlier attempts. A step that is made again in another world counts anew.
  void add(const runtime::ChoicesRecord& told, std::uint32_t epochs);
  // Later steps than the first `steps` never were.
  void keep(std::size_t steps);
  // By step, in order; empty where nothing was counted.
  std::vector<ExpertLoad> loads() const;

 private:
  struct OfStep {
    std::uint32_t epoch = 0;
    std::map<int, std::vector<std::int64_t>> by_layer;  // (2 E) each
  };
  std::map<std::int64_t, OfStep> steps_;
};

}  // namespace seeksim::harness
