// A case with fewer features that does the same, and what makes two findings one.
#pragma once

#include <functional>
#include <string>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {

// still: whether this case does the same; asked at most `tries` times, each of which costs runs. took: how many of them
// it took. Features become plain, and what cannot become plain as plain as it can: two ranks, fewer steps, a smaller
// model. whole: what cannot become plain stays as it was drawn, so that what is left is part of the case.
Case shrunk(Case drawn, int tries, const std::function<bool(const Case&)>& still, int& took, bool whole = false);

// What a case needs: its wrapper, and what is not plain.
Case needed(const Case& drawn);

// What two findings have in common that are one: what is needed, who saw it, and where it was first seen, without
// numbers that come from chance.
std::string signature(const Case& drawn, const std::string& check, const std::string& where);

}  // namespace seeksim::harness::torch
