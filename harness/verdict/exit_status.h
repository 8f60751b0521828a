// What the program's exit status says. Scripts and CI read it, so it is a contract (docs/getting-started.md).
#pragma once

namespace seeksim::harness {

enum class ExitStatus : int {
  as_expected = 0,
  check_failed = 1,  // or an expected failure did not come
  bad_input = 2,     // bad scenario, file or usage
  no_progress = 3,   // deadlock, out of time
  bug = 4,           // in seeksim itself
  cannot_be_had = 5  // nothing was judged: `seeksim torch` has no packages or no network
};

constexpr int code(ExitStatus status) { return static_cast<int>(status); }

// The verdict as reports say it; scripts read it too.
constexpr const char* name(ExitStatus status) {
  switch (status) {
    case ExitStatus::as_expected:
      return "pass";
    case ExitStatus::check_failed:
      return "fail";
    case ExitStatus::bad_input:
      return "bad_input";
    case ExitStatus::no_progress:
      return "no_progress";
    case ExitStatus::cannot_be_had:
      return "cannot_be_had";
    case ExitStatus::bug:
      break;
  }
  return "bug";
}

}  // namespace seeksim::harness
