// A training that was broken off and went on, held against the one that nothing disturbed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// What a training goes on with, in the order in which one part explains the next.
enum class Part : std::uint8_t {
  weights,
  buffers,
  optimizer,  // its moments
  scheduler,  // and learning rates
  scaler,
  sampler,  // which samples come
  rng,
  input,  // what the model gets, where the samples are the same
  count_
};
std::string_view name(Part part);

struct Resumption {
  std::int64_t whole_steps = 0, own_steps = 0;
  std::int64_t first = 0;  // step of the whole run with which it went on
  bool same = false;       // each weight that a forward pass used, each loss, and each weight that a step left
  std::size_t weights = 0, losses = 0;
  std::int64_t step = -1;    // where the first of these differs; -1: none does, or the runs cannot be compared
  std::vector<Part> differ;  // parts that differ as that step begins
  std::string text;          // for people: what differs, or that it is the same
};

// Both runs were recorded with the turn "states" (pytorch/python/seeksim_torch/states.py).
Resumption hold_resumed(const std::vector<RankRun>& whole, const std::vector<RankRun>& resumed);

}  // namespace seeksim::harness::torch
