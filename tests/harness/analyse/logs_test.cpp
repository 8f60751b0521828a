// Logs of launchers, each with its right answer (log_answers.txt): what must be said is said, and nobody else accused.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/input/json.h"
#include "tests/harness/analyse/answers.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

TEST(AnalyseLogs, NoneOfFiftyLogsBringsAFalseAccusation) {
  std::istringstream in(read_all(kHere + "/log_answers.txt"));
  int logs = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto fields = split(line, ';');
    const std::string folder = kHere + "/logs/" + fields.at(0);
    const std::string path = std::filesystem::is_directory(folder) ? folder : folder + ".log";
    const Ran ran = seeksim({"analyse", path, "--json"});
    ASSERT_EQ(ran.status, 0) << path << ran.err;
    const Json json = Json::parse(ran.out);
    Json accused = Json::array();
    for (const std::string& rank : split(fields.at(2), ',')) {
      if (rank != "-") accused.push_back(std::stoi(rank));
    }
    EXPECT_EQ(json.at("verdict"), fields.at(1)) << path << "\n" << ran.out;
    EXPECT_EQ(json.at("accused"), accused) << path << "\n" << ran.out;
    for (const std::string& word : split(fields.at(3), '|'))
      EXPECT_NE(ran.out.find(word), std::string::npos) << path << ": " << word << "\n" << ran.out;
    EXPECT_LE(json.at("next_time").size(), 3u);
    ++logs;
  }
  EXPECT_GE(logs, 50);
}

// Lines in another order, with a rank's lines missing or cut: a verdict, never a crash.
TEST(AnalyseLogs, CutAndFlippedLogsAreReadOrAreStatusTwo) {
  const std::string whole = read_all(kHere + "/logs/fingerprint_operation.log") +
                            read_all(kHere + "/logs/one_lags.log") + read_all(kHere + "/logs/ray_and_colours.log");
  TemporaryFolder folder;
  std::uint64_t state = 7;
  const auto draw = [&] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  for (int i = 0; i < 400; ++i) {
    std::string text = whole.substr(draw() % whole.size());
    for (std::uint64_t flips = draw() % 40; flips-- > 0;) text[draw() % text.size()] ^= char(1u << draw() % 8);
    folder.write("job.log", text);
    const int status = seeksim({"analyse", folder.path()}).status;
    EXPECT_TRUE(status == 0 || status == 2) << status;
  }
}

TEST(AnalyseLogs, WhatIsNoTextAndNoDumpIsStatusTwo) {
  TemporaryFolder folder;
  folder.write("job.log", std::string("\x7f"
                                      "ELF\0\0\0\0",
                                      8));
  const Ran ran = seeksim({"analyse", folder.path()});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("neither a dump of a flight recorder nor text"), std::string::npos) << ran.err;
}

TEST(AnalyseLogs, ALineOfAMegabyteIsRead) {
  TemporaryFolder folder;
  folder.write("job.log", "[rank1]: " + std::string(1 << 20, '[') + "\n");
  EXPECT_EQ(seeksim({"analyse", folder.path()}).status, 0);
}

}  // namespace
}  // namespace seeksim::harness
