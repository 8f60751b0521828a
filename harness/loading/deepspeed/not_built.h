// What DeepSpeed would do and seeksim has not built: refused by its name.
#pragma once

#include "harness/input/reader.h"

namespace seeksim::harness {

// The words with which each of these refusals begins.
inline constexpr const char* kNotBuilt = "Not supported";

// Whether this is no mistake in the configuration: DeepSpeed takes it.
inline bool is_not_built(const Problem& problem) { return problem.what.starts_with(kNotBuilt); }

// section: "deepspeed". What is asked for by a value; optimizers and schedules have readers of their own.
void refuse_what_is_not_built(const Reader& section);

}  // namespace seeksim::harness
