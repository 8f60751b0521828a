#include "harness/input/seconds.h"

#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>

namespace seeksim::harness {

runtime::TimeNs read_seconds(const Reader& reader, const char* key, runtime::TimeNs otherwise) {
  if (!reader.has(key)) return otherwise;
  const double value = reader.number(key, runtime::seconds(otherwise));
  if (!(std::fabs(value) <= 9e9)) {
    reader.problem(key, fmt::format("{} seconds are more than a run can last", value), "At most 9e9, some 285 years.");
    return otherwise;
  }
  return runtime::TimeNs(std::llround(value * 1e9));
}

}  // namespace seeksim::harness
