// How long files and functions are, and how many data members a class has, read from tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/house/source_rules.h"

namespace seeksim::house {

constexpr int kSourceLinesMost = 450;
constexpr int kTestLinesMost = 600;
constexpr int kFunctionLinesMost = 70;
constexpr int kMembersMost = 25;
constexpr int kTrainStepLinesMost = 50;

// One definition of a function. Lines that rows of a table take (initialiser lists of four lines or more) are no
// program and are not counted.
struct FunctionSize {
  std::string name;
  int line = 0;
  int lines = 0;
};

struct ClassSize {
  std::string name;
  int line = 0;
  int members = 0;  // data members of each object, bases not counted
};

struct Sizes {
  std::vector<FunctionSize> functions;
  std::vector<ClassSize> classes;
  int program_lines = 0;  // of the file, without the tables outside functions
};

Sizes measure(std::string_view text);

// Everything in one file that is larger than the limits above. Tests are held to their own length alone.
std::vector<Violation> check_sizes(std::string_view path, std::string_view text);

}  // namespace seeksim::house
