// Hangs that dumps and logs tell of, made again on simulated ranks (reproduced.txt), and pictures that are not the
// same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/input/json.h"
#include "harness/input/problem.h"
#include "harness/search/reproduce.h"
#include "harness/search/shrink.h"
#include "tests/harness/analyse/answers.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string in_one_line(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  for (std::string word; in >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::string path_of(const std::string& name) {
  const std::string path = kHere + (name.find('/') == std::string::npos ? "/logs/" : "/") + name;
  return std::filesystem::is_directory(path) ? path : path + ".log";
}

struct Row {
  std::string name, outcome, words;
};

std::vector<Row> rows() {
  std::istringstream in(read_all(kHere + "/reproduced.txt"));
  std::vector<Row> all;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> fields = split(line, ';');
    all.push_back({fields.at(0), fields.at(1), fields.size() > 2 ? fields[2] : ""});
  }
  return all;
}

TEST(Reproduce, EachLogAndDumpEndsInTheSamePictureOrSaysWhyNot) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/again.json";
  int logs = 0, same = 0;
  for (const Row& row : rows()) {
    std::filesystem::remove(file);
    const Ran ran = seeksim({"analyse", path_of(row.name), "--json", "--reproduce", file});
    const bool log = row.name.find('/') == std::string::npos;
    logs += log;
    if (row.outcome == "refused") {
      EXPECT_EQ(ran.status, 2) << row.name << ran.out;
      EXPECT_NE(in_one_line(ran.err).find(row.words), std::string::npos) << row.name << ": " << ran.err;
      EXPECT_FALSE(std::filesystem::exists(file)) << row.name;
      EXPECT_TRUE(Json::parse(ran.out).contains("verdict")) << "the story is told all the same";
      continue;
    }
    ASSERT_EQ(ran.status, 0) << row.name << ran.out << ran.err;
    const Json again = Json::parse(ran.out).at("reproduction");
    const bool stands_in = again.at("stands_in") != "" || again.at("several_groups");
    EXPECT_EQ(stands_in ? "stand_in" : "same", row.outcome) << row.name;
    same += log && !stands_in;
    const Ran run = seeksim({"run", file});
    EXPECT_EQ(run.status, 0) << row.name << run.out << run.err;
  }
  EXPECT_GE(logs, 50);
  EXPECT_GE(same, 25);
}

HangPicture four_ranks() {
  HangPicture picture;
  picture.kind = HangKind::never_came;
  picture.world = 4;
  picture.accused = {2};
  for (const int rank : {0, 1, 3}) picture.all.push_back({rank, "0", "all_reduce", "ALLREDUCE", 7, "64"});
  return picture;
}

Reproduced run_with(const HangPicture& picture, const HangCause& cause, const char* pointer, const Json& value) {
  TemporaryFolder folder;
  Json scenario = reproduction(picture, cause, "again", "A test.");
  scenario[Json::json_pointer(pointer)] = value;
  const std::string file = folder.path() + "/again.json";
  std::ofstream(file) << scenario_text(scenario);
  return reproduce(picture, cause, file);
}

// The planted difference: the fault strikes another rank, operation or way than the picture has.
TEST(Reproduce, AnotherEndIsSeen) {
  const HangPicture picture = four_ranks();
  const HangCause cause = cause_of(picture);
  EXPECT_TRUE(run_with(picture, cause, "/faults/0/rank", 2).same);
  const Reproduced other = run_with(picture, cause, "/faults/0/rank", 1);
  EXPECT_FALSE(other.same);
  EXPECT_FALSE(other.ranks[1].same);
  EXPECT_FALSE(other.ranks[2].same);
  EXPECT_TRUE(other.ranks[0].same);
  EXPECT_FALSE(
      run_with(picture, cause, "/faults/0", {{"kind", "rank_crash"}, {"rank", 2}, {"step", 1}, {"op", "all_reduce"}})
          .same);  // gone is not "never comes"
  EXPECT_FALSE(run_with(picture, cause, "/recovery/policy", "rebuild_and_redo").same);

  HangPicture gathers = picture;
  for (HangPlace& place : gathers.all) place.operation = "all_gather";
  const HangCause other_operation = cause_of(gathers);
  EXPECT_TRUE(run_with(gathers, other_operation, "/seed", 1).same);
  EXPECT_FALSE(reproduce(picture, cause,
                         [&] {
                           static TemporaryFolder folder;
                           const std::string file = folder.path() + "/gathers.json";
                           std::ofstream(file)
                               << scenario_text(reproduction(gathers, other_operation, "again", "A test."));
                           return file;
                         }())
                   .same);
}

TEST(Reproduce, ASizeOrATypeThatAllBringIsNoMismatch) {
  HangPicture picture = four_ranks();
  for (const auto& [kind, mode] : {std::pair(HangKind::other_size, "dtype"), std::pair(HangKind::other_type, "count"),
                                   std::pair(HangKind::other_operation, "count")}) {
    picture.kind = kind;
    const HangCause cause = cause_of(picture);
    EXPECT_TRUE(run_with(picture, cause, "/seed", 1).same) << name(kind);
    EXPECT_FALSE(run_with(picture, cause, "/faults/0/mode", mode).same) << name(kind);
  }
}

TEST(Reproduce, WorldsThatAreTooLargeOrAccusedAsAWholeAreRefused) {
  HangPicture picture = four_ranks();
  picture.world = kReproducedRanksMost + 1;
  EXPECT_THROW(cause_of(picture), BadInput);
  picture = four_ranks();
  picture.accused = {0, 1, 2, 3};
  EXPECT_THROW(cause_of(picture), BadInput);
  picture = four_ranks();
  picture.all[1].operation = "broadcast";
  EXPECT_THROW(cause_of(picture), BadInput);
}

TEST(Reproduce, AsManyRanksANodeAsDivideTheWorld) {
  HangPicture picture = four_ranks();
  for (const auto& [world, nodes] : {std::pair(4, 1), std::pair(12, 2), std::pair(13, 13), std::pair(64, 8)}) {
    picture.world = world;
    const Json scenario = reproduction(picture, cause_of(picture), "again", "");
    EXPECT_EQ(scenario["world"]["nodes"], nodes) << world;
  }
}

}  // namespace
}  // namespace seeksim::harness
