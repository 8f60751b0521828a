#include "harness/report/fold.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace seeksim::harness {
namespace {

TEST(Fold, ShortLinesStayAsTheyAre) {
  const std::string text = "one\n\n  two  three\nno end of line";
  EXPECT_EQ(folded(text, 20), text);
}

TEST(Fold, WhatFollowsStandsBehindTheLabel) {
  EXPECT_EQ(folded("  world     eight ranks on two nodes\n", 24),
            "  world     eight ranks\n"
            "            on two nodes\n");
}

TEST(Fold, WhatFollowsStandsBehindTheNameOfACheck) {
  EXPECT_EQ(folded("  ok    golden   all weights and all losses are equal", 36),
            "  ok    golden   all weights and all\n"
            "                 losses are equal");
}

TEST(Fold, WhatFollowsStandsBehindTheTime) {
  EXPECT_EQ(folded("   0.5 s  rank 5 never joined", 20), "   0.5 s  rank 5\n          never\n          joined");
}

TEST(Fold, ColoursTakeNoColumn) {
  const std::string red = "\033[1;31mFAIL\033[0m a bc";
  EXPECT_EQ(folded(red, 9), red);
  EXPECT_EQ(folded(red, 8), "\033[1;31mFAIL\033[0m a\n    bc");
}

TEST(Fold, CharactersOfSeveralBytesTakeOneColumn) {
  EXPECT_EQ(folded("\xc3\xa9\xc3\xa9 \xc3\xa9", 4), "\xc3\xa9\xc3\xa9 \xc3\xa9");
}

TEST(Fold, CommandsToBeCopiedStayWhole) {
  const std::string command = "  replay    seeksim run scenarios/a.json --schedule 106s91z9d0400000j6";
  EXPECT_EQ(folded(command, 40), command);
}

TEST(Fold, AWordWiderThanTheLineStaysWhole) {
  EXPECT_EQ(folded("rank 5 0123456789012345678901234567890123456789 b", 20),
            "rank 5\n    0123456789012345678901234567890123456789\n    b");
}

TEST(Fold, NothingIsFoldedWithoutAWidth) {
  const std::string line(300, 'x');
  EXPECT_EQ(folded(line + " " + line, 0), line + " " + line);
}

TEST(Fold, ColumnsSayTheWidth) {
  const char* before = std::getenv("COLUMNS");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("COLUMNS", "72", 1);
  EXPECT_EQ(columns_of_stdout(), 72);
  ::setenv("COLUMNS", "0", 1);
  EXPECT_EQ(columns_of_stdout(), 0);
  ::setenv("COLUMNS", "3", 1);
  EXPECT_EQ(columns_of_stdout(), 40);
  if (before == nullptr)
    ::unsetenv("COLUMNS");
  else
    ::setenv("COLUMNS", kept.c_str(), 1);
}

}  // namespace
}  // namespace seeksim::harness
