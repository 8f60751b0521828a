#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace seeksim::house {

// One line of the source tree that breaks a rule of the house.
struct Violation {
  std::string file;  // from the top folder, with slashes
  int line = 0;
  std::string what;

  std::string text() const { return file + ":" + std::to_string(line) + ": " + what; }
};

// The rules that one source file has to obey, judged by its path (from the top folder) and its text alone, so that a
// test can hand in a planted violation as easily as a real file:
//   - includes follow the arrows kernels <- runtime <- {faults, sim} <- harness <- tests, bench;
//   - only harness, tests and bench include runtime/backend/;
//   - runtime/ outside runtime/backend/ names no clock, thread, random or file facility;
//   - kernels/ and runtime/ (outside its backend) call no function of libm whose result is not fixed by IEEE 754.
std::vector<Violation> check_source(std::string_view path, std::string_view text);

// Any text file: no path that exists on one person's machine only.
std::vector<Violation> check_machine_paths(std::string_view path, std::string_view text);

// The functions of libm whose last bit differs between libraries and versions ("exp", "tanhf", ...).
bool is_inexact_libm(std::string_view name);

}  // namespace seeksim::house
