// Which instruction set the CPU launchers use, and the start-up checks of the contract (docs/numerics.md, "Machines and
// flags").
#pragma once

#include <string>

namespace seeksim::kernels {

enum class Isa { scalar, avx2, avx512 };

// The best set that this CPU has, or the one that SEEKSIM_ISA names. Chosen once, at the first call.
// Throws std::runtime_error with what to do when the CPU lacks AVX2+FMA+F16C, or the set that was forced.
Isa active_isa();
bool cpu_has(Isa isa);
const char* name(Isa isa);
// For tests and benches: forces a set for the rest of the process (throws like active_isa).
void force_isa(Isa isa);

// Arithmetic self-test: no contraction, no flush to zero, round to nearest, division and sqrt correctly rounded.
// Returns an empty string, or what is wrong and what to do.
std::string self_test();

// MXCSR must be 0x1f80 (flags masked) in every thread and fiber that computes. Returns false if it is not.
bool float_environment_ok();

}  // namespace seeksim::kernels
