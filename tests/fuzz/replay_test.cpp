// Every corpus, once more, in the ordinary build: what was found once is never lost again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/fuzz/targets.h"
#include "tests/support/paths.h"

namespace seeksim::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path corpus() { return fs::path(paths::source_dir()) / "tests/fuzz/corpus"; }

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Replay : public testing::TestWithParam<Target> {};

// Half of what it says: no input ends the process. The other half: the corpus has what the parser takes and what it
// refuses, so neither is a parser that takes all nor a corpus that never comes in.
TEST_P(Replay, TakesAndRefusesAndNeverDies) {
  int taken = 0, refused = 0;
  for (const auto& file : fs::directory_iterator(corpus() / GetParam().name)) {
    SCOPED_TRACE(file.path().string());
    std::string bytes = bytes_of(file.path());
    ++(GetParam().take(bytes) ? taken : refused);
    // And what a bad disk or line makes of it: cut short, and with bits flipped.
    for (std::size_t i = 0; i < 16 && !bytes.empty(); ++i) {
      EXPECT_NO_THROW(GetParam().take(std::string_view(bytes).substr(0, bytes.size() * i / 16)));
      std::string flipped = bytes;
      flipped[flipped.size() * i / 16] ^= char(1 << (i % 8));
      EXPECT_NO_THROW(GetParam().take(flipped));
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Corpora, Replay, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Corpora, AreOfTargets) {
  std::set<std::string> names, folders;
  for (const Target& target : targets()) names.insert(target.name);
  for (const auto& folder : fs::directory_iterator(corpus())) folders.insert(folder.path().filename());
  EXPECT_EQ(folders, names);
}

}  // namespace
}  // namespace seeksim::fuzz
