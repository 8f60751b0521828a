// What the fuzzers' own mutation makes of a text.
#include "tests/fuzz/mutated_text.h"

#include <gtest/gtest.h>

#include <set>

namespace seeksim::fuzz {
namespace {

std::set<std::string> all_of(std::string_view text) {
  std::set<std::string> all;
  for (unsigned seed = 0; seed < 20'000; ++seed) all.insert(mutated_text(text, seed));
  return all;
}

TEST(MutatedText, PutsOneValueInThePlaceOfAnother) {
  const std::set<std::string> all = all_of(R"({"range":[1,"a]\"b"]})");
  for (const char* expected : {
           R"({"range":[9223372036854775807,"a]\"b"]})",  // a number at the end of its type
           R"({"range":["a]\"b","a]\"b"]})",              // a word whose bracket and quote end nothing
           R"({"range":1})",                              // a list for a number
           R"({"range":[1,1,"a]\"b"]})",                  // doubled
           R"({"range":})",                               // gone
           R"({"range":[[[[1]]],"a]\"b"]})",              // nested in lists
           R"({"range":[{"a":1},"a]\"b"]})",              // and in objects
       })
    EXPECT_EQ(all.count(expected), 1u) << expected;
}

TEST(MutatedText, NestsDeeperThanAParserMayTake) {
  std::size_t levels = 0;
  for (const std::string& text : all_of("[0]")) levels = std::max(levels, text.find_first_not_of('['));
  EXPECT_GE(levels, 64u);
}

TEST(MutatedText, TakesWhatIsTornAndWhatHasNoValue) {
  for (const char* text : {"[", "\"", "\"\\", "{\"a", "-", "[\"]", "}"}) EXPECT_GT(all_of(text).size(), 0u) << text;
  EXPECT_EQ(all_of("xyz"), std::set<std::string>{"xyz"});
  EXPECT_EQ(all_of(""), std::set<std::string>{""});
}

}  // namespace
}  // namespace seeksim::fuzz
