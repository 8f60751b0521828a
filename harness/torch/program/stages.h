// The parts of a program of torch's own pipelines.
#pragma once

#include <string>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {

struct StagesShape {
  int ways = 1;          // ranks of a pipeline
  int local = 1;         // stages of a rank
  int stages = 1;        // of the pipeline
  int batches = 1;       // micro-batches
  int first_blocks = 0;  // the first stage with blocks
  int depth = 1;         // blocks of a stage
  int blocks = 1;        // of the model
  int samples = 1;       // of a batch
};
StagesShape shape_of(const Case& drawn);

void add_stages_imports(const Case& drawn, const StagesShape& shape, Lines& to);
// loss: the name of its function.
void add_stages_build(const Case& drawn, const StagesShape& shape, const std::string& loss, Lines& to);
void add_stages_steps(const Case& drawn, const StagesShape& shape, const std::string& loss, Lines& to);

}  // namespace seeksim::harness::torch
