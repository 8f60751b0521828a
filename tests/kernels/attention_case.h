// A shape of attention as the tests of both forms write it: samples, positions, heads, elements of a head, and how many
// heads share a key head.
#pragma once

#include <cstddef>

#include "kernels/attention.h"

namespace seeksim::kernels::test {

struct AttentionCase {
  std::size_t b, t, h, d, g = 1;
  std::size_t width() const { return h / g * (g + 2) * d; }
  std::size_t rows() const { return b * t; }
  AttentionShape shape() const {
    return {static_cast<Index>(b), static_cast<Index>(t), static_cast<Index>(h), static_cast<Index>(d), 0,
            static_cast<Index>(g)};
  }
};

}  // namespace seeksim::kernels::test
