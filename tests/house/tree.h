// The files of the project, as the tests of the house read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/house/source_rules.h"

namespace seeksim::house {

struct File {
  std::string path;  // from the top folder, with slashes
  std::string text;
};

// All regular files of the project, sorted by path, without what is built, hidden or linked in from elsewhere.
std::vector<File> files_of_the_tree();

// A source of C++ or CUDA; a Markdown page; a page that `seeksim reference` writes.
bool is_source(std::string_view path);
bool is_markdown(std::string_view path);
bool is_generated(std::string_view path);

// One violation a line.
std::string listing(const std::vector<Violation>& violations);

}  // namespace seeksim::house
