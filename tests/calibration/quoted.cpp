#include "tests/calibration/quoted.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/paths.h"

namespace seeksim::harness::calibration::testing {

void page_quotes(const std::string& page, const std::string& mark, const std::string& now) {
  const std::string file = paths::source_dir() + "/docs/" + page, foot = "<!-- end -->";
  std::ostringstream read;
  read << std::ifstream(file).rdbuf();
  const std::string text = read.str();
  const std::size_t begin = text.find(mark), end = text.find(foot, begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  if (std::getenv("SEEKSIM_MEND") != nullptr) {
    std::ofstream(file) << text.substr(0, begin + mark.size()) << now << text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(begin + mark.size(), end - begin - mark.size()), now)
      << "SEEKSIM_MEND=1 in the environment of this test writes the page again";
}

}  // namespace seeksim::harness::calibration::testing
