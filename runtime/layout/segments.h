// Segments: consecutive layers of which only the input is kept, their activations being computed again in backward; and
// the order in which a micro-step then uses the modules' parameters. Pure functions of the plan, which model, gathered
// parameters and formulas share.
#pragma once

#include <vector>

#include "runtime/layout/parameters.h"
#include "runtime/plan/offload_plan.h"
#include "runtime/seams/op.h"

namespace seeksim::runtime {

// Layers [first, end).
struct Segment {
  int first = 0;
  int end = 0;
  bool recomputed = false;  // false: one layer whose activations are kept
  int layers() const { return end - first; }
  friend bool operator==(const Segment&, const Segment&) = default;
};

// The segments of layers [first, end), in order. Layers that the plan names and the model does not have do nothing.
std::vector<Segment> segments_of(int first, int end, const CheckpointingPlan& plan);
inline std::vector<Segment> segments_of(int layers, const CheckpointingPlan& plan) {
  return segments_of(0, layers, plan);
}

// A use of a module's parameters, from fetch to release. Modules: 0 the embeddings, 1..L the layers, L + 1 the head.
struct ModuleUse {
  int module = 0;
  Phase phase = Phase::forward;
  friend bool operator==(const ModuleUse&, const ModuleUse&) = default;
};

// The uses in one micro-step: forward, then backward. A segment is recomputed up to its last layer, whose parameters
// serve backward at once; the layers before it are used again.
std::vector<ModuleUse> module_uses(int layers, const CheckpointingPlan& plan);
// The uses by one piece of a model of `layers` layers: in its forward pass; in its backward pass.
std::vector<ModuleUse> forward_uses(const ModelPiece& piece, int layers);
std::vector<ModuleUse> backward_uses(const ModelPiece& piece, int layers, const CheckpointingPlan& plan);
// Where backward is in two parts, in the second one, for the gradients of parameters: segments are computed once more.
std::vector<ModuleUse> weight_uses(const ModelPiece& piece, const CheckpointingPlan& plan);

}  // namespace seeksim::runtime
