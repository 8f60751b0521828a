// Counter-based randomness, implemented anew from the contract (docs/numerics.md, R1 and R7): a word is a function of
// (seed, element, sample, stream, step) and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/number.h"
#include "reference/training.h"

namespace seeksim::reference {

// Philox4x32-10: four words for a counter (element, sample, stream, step).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key);

// The value for which the normal distribution is p, 0 < p < 1.
double normal_quantile(double p);
// Element `element` of parameter number `stream`, before it is multiplied by the standard deviation.
double standard_normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t element);

// The sample of the data set at place `g` of the training; g where there is no set.
std::int64_t row_of(const Training& t, std::int64_t g);
// Tokens of each sample that step `step` learns, counted from 0; T without a curriculum.
std::int64_t learned_tokens(const Training& t, std::int64_t step);

// The tokens of a step's batch (batch, T + 1).
std::vector<std::int32_t> tokens_of_step(const Training& t, std::int64_t step);

// The tokens of the held-out samples (samples, T + 1): of the text's end one after the other, and over again.
std::vector<std::int32_t> held_out_tokens(const Training& t);

// Places at which values are dropped, as the streams count them.
enum class Site : std::uint8_t { embedding, attention, attention_branch, mlp_branch };
// What multiplies an element of a sample of the step: 0, or 1 / (1 - rate) as an fp32 number; 1 where rate is 0.
double dropout_factor(const Training& t, double rate, Site site, int layer, std::int64_t step, std::int64_t sample,
                      std::uint64_t element);

}  // namespace seeksim::reference
