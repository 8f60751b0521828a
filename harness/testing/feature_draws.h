// Draws of single features of a scenario, for scenario_gen. Each changes the document that has been drawn so far.
#pragma once

#include <rapidcheck.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/input/json.h"

namespace seeksim::property {

using harness::Json;

inline int between(int least, int most) { return *rc::gen::inRange(least, most + 1); }
inline bool one_in(int n) { return between(1, n) == 1; }

template <class T>
T any_of(std::vector<T> values) {
  return values[std::size_t(between(0, int(values.size()) - 1))];
}

// To a model that has experts: what a DeepSeek has beside a Mixtral. And all keys of experts, away.
void draw_deepseek(Json& model);
void remove_experts(Json& model);
// Gradients rounded on their way, in groups of powers of two of samples.
void draw_compression(Json& s);
void draw_momentum(Json& s);  // of 1-bit Adam
void draw_factors(Json& s);   // of PowerSGD
// As many workers as ranks, or more, each with a power of two of samples; an outer step is due or not when a rank dies.
void draw_local_sgd(Json& s, int ranks);
void draw_staleness(Json& s);
// Gradients in DDP's buckets, of any size; nothing where they are sharded, or travel in another way.
void draw_buckets(Json& s);
// Any recipe of casts to 8 bits; scales of the current step stay inside a rank.
void draw_fp8(Json& s);
// Weights in 8 bits by blocks of any size.
void draw_quantised(Json& s);
// Gradients in 4 or 8 bits, groups and sums of any size that a micro-batch can hold.
void draw_quantised_gradients(Json& s);
// Fewer held-out samples than ranks, or more, in micro-batches of any size, where there may be any; and often, with
// experts, several samples over which a router counts, and batches of whole ones.
void draw_held_out(Json& s, bool may);
// Sets of samples; unless what counts samples by tags wants all of them alike, lengths by step and packed documents.
void draw_samples(Json& s, bool alike);
// A job that dies once or twice and is started again from a checkpoint.
void draw_restarts(Json& s, int ranks, int steps);

}  // namespace seeksim::property
