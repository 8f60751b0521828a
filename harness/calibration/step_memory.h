// What a GPU holds at the peak of a step, by parts: from what each software stack keeps, and how it shares it.
// docs/calibrated-memory.md says against what this was held.
#pragma once

#include "harness/calibration/step_times.h"

namespace seeksim::harness::calibration {

// In bytes, of one GPU.
struct StepMemory {
  double states = 0;       // parameters, gradients, masters and moments, as they are shared
  double gathered = 0;     // of shared parameters what is whole, and gradients that wait for their sum
  double activations = 0;  // what backward reads of the layers, of all micro-batches under way
  double head = 0;         // logits, their copies in fp32 and their gradients; or a layer that goes backward
  double reserved = 0;     // what the allocator reserves beside what is in use

  double allocated() const { return states + gathered + activations + head; }
  double bytes() const { return allocated() + reserved; }
};

// A stage of the pipeline.
struct Stage {
  double layers = 0;
  bool first = true, last = true;  // has the embedding, has the head
  double under_way = 1;            // micro-batches whose activations it keeps
};

// Micro-batches whose activations a stage keeps, counted from the first stage on; of chunks, in whole micro-batches.
double under_way(const StepLayout& layout, int stage);

// A mistake that a test plants.
enum class MemoryMistake { none, one_micro_batch_under_way, logits_are_free, moments_not_shared };

// Of one stage. `stack`: compiled and eager are torch's FSDP2 with parameters in fp32; plain and fused have parameters
// in 16 bits, fp32 masters with the optimizer's state, and fused kernels of attention.
StepMemory stage_memory(const ModelShape& model, const StepLayout& layout, Stack stack, const Constants& constants,
                        const Stage& stage, MemoryMistake mistake = MemoryMistake::none);
// Of the stage that holds most, where each has as many layers as the others.
StepMemory step_memory(const ModelShape& model, const StepLayout& layout, Stack stack, const Constants& constants,
                       MemoryMistake mistake = MemoryMistake::none);

}  // namespace seeksim::harness::calibration
