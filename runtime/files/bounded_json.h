// JSON of a file that anybody may have written: it is no longer and no deeper than its kind ever is, and has no key
// twice, before anything is made of it. (What people write, a scenario, has a parser of its own, which knows lines.)
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace seeksim::runtime {

struct JsonBounds {
  const char* what = "the file";  // as a message begins
  std::uint64_t bytes_max = 0;
  int depth_max = 32;  // levels of objects and lists
};

// Throws std::runtime_error("WHAT is not valid JSON at byte 7", "WHAT is nested deeper than ..." and so on).
template <class Json>
Json parse_bounded(std::string_view text, const JsonBounds& bounds);
extern template nlohmann::json parse_bounded(std::string_view, const JsonBounds&);
extern template nlohmann::ordered_json parse_bounded(std::string_view, const JsonBounds&);

// A name from a file, as messages show it: in quotes, its first 80 bytes, without control characters.
std::string quoted(const std::string& name);

// A whole number of the type, within [least, most]; none: something else, or one that does not fit.
template <class Number, class Json>
std::optional<Number> whole_number(const Json& value, Number least = std::numeric_limits<Number>::min(),
                                   Number most = std::numeric_limits<Number>::max()) {
  static_assert(std::is_integral_v<Number> && !std::is_same_v<Number, bool>);
  if (value.is_number_unsigned()) {
    const auto n = value.template get<std::uint64_t>();
    if (n > std::uint64_t(std::numeric_limits<Number>::max())) return std::nullopt;
    return Number(n) >= least && Number(n) <= most ? std::optional(Number(n)) : std::nullopt;
  }
  if (!value.is_number_integer()) return std::nullopt;
  const auto n = value.template get<std::int64_t>();  // below zero, or written by a program
  if (n < 0 ? std::is_unsigned_v<Number> || n < std::int64_t(std::numeric_limits<std::make_signed_t<Number>>::min())
            : std::uint64_t(n) > std::uint64_t(std::numeric_limits<Number>::max()))
    return std::nullopt;
  return Number(n) >= least && Number(n) <= most ? std::optional(Number(n)) : std::nullopt;
}

}  // namespace seeksim::runtime
