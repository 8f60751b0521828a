// Assertions that are always on: a program that exists to notice mistakes must not stop looking in a release build.
// A failed check is a bug in seeksim, never bad input. It throws, so that the harness can name the scenario and exit 4.
#pragma once

#include <stdexcept>
#include <string>

namespace seeksim {

struct CheckError : std::logic_error {
  using std::logic_error::logic_error;
};

// Formats like printf and throws CheckError{"file:line: check failed: condition: message"}.
[[noreturn, gnu::format(printf, 4, 5), gnu::cold]] void check_failed(const char* file, int line, const char* condition,
                                                                     const char* format, ...);

}  // namespace seeksim

// SEEKSIM_CHECK(n > 0, "n is %lld", static_cast<long long>(n));
#define SEEKSIM_CHECK(condition, ...)                                                       \
  do {                                                                                      \
    if (!(condition)) ::seeksim::check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
  } while (false)

// For integers: prints both values.
#define SEEKSIM_CHECK_EQ(a, b)                                                                         \
  do {                                                                                                 \
    const long long seeksim_a = static_cast<long long>(a), seeksim_b = static_cast<long long>(b);      \
    if (seeksim_a != seeksim_b)                                                                        \
      ::seeksim::check_failed(__FILE__, __LINE__, #a " == " #b, "%lld != %lld", seeksim_a, seeksim_b); \
  } while (false)
