// One value of a unary function by the scalar set, for references that need exp or log: those functions have tests of
// their own (unary_test.cpp), here they are taken as given.
#pragma once

#include "kernels/pointwise.h"

namespace seeksim::kernels::test {

float unary_of_one(Unary f, float x);

}  // namespace seeksim::kernels::test
