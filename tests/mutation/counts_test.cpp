// What the tree says of the mutants: each that was drawn is accounted for, and each survivor was read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace seeksim {
namespace {

using nlohmann::json;

std::filesystem::path room() { return std::filesystem::path(paths::source_dir()) / "tests/mutation"; }

// results.jsonl: the first line says what was drawn, each other one what became of a mutant.
std::vector<json> lines() {
  std::ifstream in(room() / "results.jsonl");
  std::vector<json> all;
  for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
  return all;
}

bool survives(const json& mutant) { return mutant["verdict"] == "green" || mutant["verdict"] == "unreached"; }

// The words of reasons.json on a survivor, or null.
json reason_of(const json& mutant, const json& reasons) {
  for (const json& reason : reasons) {
    bool same = true;
    for (const char* field : {"path", "function", "kind", "was", "becomes"}) {
      same = same && reason.at(field) == mutant.at(field);
    }
    if (same) return reason;
  }
  return nullptr;
}

TEST(Mutants, AddUp) {
  const std::vector<json> all = lines();
  ASSERT_GT(all.size(), 1u);
  const json& drawn = all.front();
  std::set<int> numbers;
  for (auto mutant = all.begin() + 1; mutant != all.end(); ++mutant) {
    EXPECT_TRUE(numbers.insert((*mutant)["mutant"].get<int>()).second) << *mutant;
    const bool red = (*mutant)["verdict"] == "red in a sweep" || (*mutant)["verdict"] == "red in a unit test";
    EXPECT_NE(red, survives(*mutant)) << *mutant;
    EXPECT_EQ(red, mutant->contains("by")) << *mutant;
  }
  EXPECT_EQ(int(numbers.size()), drawn["drawn"].get<int>() - drawn["do_not_compile"].get<int>());
  EXPECT_GE(*numbers.begin(), 1);
  EXPECT_LE(*numbers.rbegin(), drawn["drawn"].get<int>());
}

// The bounds are the habit's own: more equivalent mutants would say that the edits are badly drawn, more survivors that
// are not that the judge sees too little.
TEST(Mutants, SurviveForAReasonAndRarely) {
  const std::vector<json> all = lines();
  std::ifstream in(room() / "reasons.json");
  const json reasons = json::parse(in);
  std::map<std::string, int> of_class;
  for (auto mutant = all.begin() + 1; mutant != all.end(); ++mutant) {
    if (!survives(*mutant)) continue;
    const json reason = reason_of(*mutant, reasons);
    ASSERT_FALSE(reason.is_null()) << "nobody has read " << *mutant;
    EXPECT_FALSE(reason.at("reason").get<std::string>().empty()) << reason;
    ++of_class[reason.at("class").get<std::string>()];
  }
  const std::size_t judged = all.size() - 1;
  EXPECT_GE(judged, 500u);
  EXPECT_LE(std::size_t(of_class["equivalent"]) * 100, judged * 10);
  EXPECT_LE(std::size_t(of_class["time"] + of_class["text"] + of_class["gap"]) * 100, judged * 5);
  for (const auto& [name, count] : of_class) {
    EXPECT_TRUE(name == "equivalent" || name == "time" || name == "text" || name == "gap") << name << ": " << count;
  }
}

}  // namespace
}  // namespace seeksim
