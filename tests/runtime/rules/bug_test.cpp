// Names of planted bugs and edges: what a scenario writes is what is planted.
#include "runtime/rules/bug.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace seeksim::runtime {
namespace {

TEST(BugNames, EveryNameIsReadBackAsItself) {
  const std::vector<std::string> names = bug_names();
  EXPECT_GT(names.size(), bug_catalogue().size() + std::size_t(Edge::count_) - 3);
  for (const std::string& name : names) {
    PlantedBug bug;
    ASSERT_TRUE(parse(name, bug)) << name;
    EXPECT_EQ(text(bug), name);
  }
}

TEST(BugNames, TheCatalogueStandsInTheOrderOfTheEnum) {
  for (std::size_t i = 0; i < bug_catalogue().size(); ++i) EXPECT_EQ(bug_catalogue()[i].bug, Bug(i + 1));
  EXPECT_EQ(name(Bug::none), "none");
  EXPECT_EQ(name(Bug::sample_lost), "sample_lost");
}

TEST(BugNames, AWaitIsLeftOutByTheNameOfItsEdge) {
  PlantedBug bug;
  ASSERT_TRUE(parse("skip_wait:step_measured", bug));
  EXPECT_TRUE(bug.skips(Edge::step_measured));
  EXPECT_FALSE(bug.skips(Edge::norms_gathered));
}

TEST(BugNames, WhatIsNoBugIsRefused) {
  for (const char* name : {"", "none", "skip_wait", "skip_wait:none", "skip_wait:lunch", "sample_lost:1", "quirk"}) {
    PlantedBug bug;
    EXPECT_FALSE(parse(name, bug)) << name;
    EXPECT_TRUE(bug.is(Bug::none)) << name;
  }
}

TEST(Edges, EachSaysWhoWaits) {
  const std::array<std::string_view, 9> waiting = {
      "host: ",    "host's queue: ", "communication: ", "compute: ", "copy: ",
      "storage: ", "messages: ",     "receiving: ",     "sending: "};
  for (std::size_t i = 1; i < std::size_t(Edge::count_); ++i) {
    const std::string_view text = waits(Edge(i));
    EXPECT_TRUE(std::any_of(waiting.begin(), waiting.end(), [&](auto who) { return text.starts_with(who); })) << text;
    EXPECT_EQ(edge_named(name(Edge(i))), Edge(i));
  }
}

}  // namespace
}  // namespace seeksim::runtime
