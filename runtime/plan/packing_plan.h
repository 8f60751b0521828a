// PackingPlan: whether a sample holds several documents that do not see each other.
#pragma once

#include <cstdint>

namespace seeksim::runtime {

struct PackingPlan {
  std::int32_t separator = -1;  // the token that ends a document; -1: a sample is one document
  bool on() const { return separator >= 0; }
  friend bool operator==(const PackingPlan&, const PackingPlan&) = default;
};

}  // namespace seeksim::runtime
