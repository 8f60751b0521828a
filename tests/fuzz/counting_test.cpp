// The counts of the fuzzers: how run.py adds them up, and that docs/fuzzing.md says what counts.json says.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/paths.h"

namespace seeksim::fuzz {
namespace {

TEST(FuzzCounts, AddUpAndAreThoseOfThePage) {
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "there is no python3 here";
  const std::string command = "python3 '" + std::string(paths::source_dir()) + "/tests/fuzz/test_counting.py' 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  std::array<char, 4096> bytes;
  for (std::size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) said.append(bytes.data(), n);
  EXPECT_EQ(::pclose(pipe), 0) << said;
}

}  // namespace
}  // namespace seeksim::fuzz
