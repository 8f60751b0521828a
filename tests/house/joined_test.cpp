// Sources of a folder compile in batches (SEEKSIM_UNITY). Where a source has a constant of its own in an anonymous
// namespace, and a header one of that name in the namespace around it, the compiler silently takes the source's in all
// that follows in the batch, whoever meant the header's.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "tests/house/tree.h"

namespace seeksim::house {
namespace {

struct Constant {
  std::string space;  // the first namespace of the file
  std::string name;
  int line = 0;
};

// What stands at the beginning of a line; the members of classes are indented.
std::vector<Constant> constants_of(const File& file) {
  static const std::regex kSpace("^namespace ([a-z_:]+) \\{$");
  static const std::regex kDeclares("^(inline )?(constexpr|const) .*");
  static const std::regex kName("\\b(k[A-Z]\\w*)(\\[[^\\]]*\\])? ?[={]");
  std::vector<Constant> found;
  std::string space;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (space.empty() && std::regex_match(line, match, kSpace)) space = match[1];
    if (!std::regex_match(line, kDeclares)) continue;
    for (std::sregex_iterator at(line.begin(), line.end(), kName), end; at != end; ++at)
      found.push_back({space, (*at)[1], number});
  }
  return found;
}

std::vector<Violation> check_constants(const std::vector<File>& files) {
  std::map<std::pair<std::string, std::string>, std::string> of_headers;
  for (const File& file : files) {
    if (!file.path.ends_with(".h")) continue;
    for (const Constant& constant : constants_of(file)) of_headers[{constant.space, constant.name}] = file.path;
  }
  std::vector<Violation> out;
  for (const File& file : files) {
    if (!file.path.ends_with(".cpp")) continue;
    for (const Constant& constant : constants_of(file)) {
      const auto header = of_headers.find({constant.space, constant.name});
      if (header == of_headers.end()) continue;
      out.push_back({file.path, constant.line,
                     constant.name + " stands in " + header->second + ", too: other sources of this folder would get " +
                         "this one. Give it a name of its own"});
    }
  }
  return out;
}

TEST(Joined, NoConstantOfASourceHidesOneOfAHeader) {
  const std::vector<Violation> found = check_constants(files_of_the_tree());
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST(Joined, AHiddenConstantIsSeen) {
  const File header{"harness/a.h", "namespace seeksim::a {\n\ninline constexpr int kRows = 64;\n"};
  const auto source = [](const char* text) { return File{"harness/b.cpp", text}; };
  const auto found = [&](const File& other) { return check_constants({header, other}).size(); };
  EXPECT_EQ(found(source("namespace seeksim::a {\nnamespace {\nconstexpr std::size_t kRed = 1, kRows = 2000;\n")), 1U);
  EXPECT_EQ(found(source("namespace seeksim::a {\nnamespace {\nconst int kRows[] = {1};\n")), 1U);
  EXPECT_EQ(found(source("namespace seeksim::b {\nnamespace {\nconstexpr int kRows = 2000;\n")), 0U);
  EXPECT_EQ(found(source("namespace seeksim::a {\nvoid f() {\n  constexpr int kRows = 2000;\n")), 0U);
  EXPECT_EQ(found(source("namespace seeksim::a {\nint f() { return kRows; }\n")), 0U);
}

}  // namespace
}  // namespace seeksim::house
