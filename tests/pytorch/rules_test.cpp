#include "pytorch/core/rules.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace seeksim::pytorch {
namespace {

using namespace std::string_literals;

std::string refusal_of(const RuleKeys& keys) {
  try {
    rule_of(keys);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

Situation backward_sum(std::int64_t step, OpName op = OpName::all_reduce) {
  Situation s;
  s.op = op;
  s.phase = StepPhase::backward;
  s.step = step;
  s.sums = true;
  return s;
}

TEST(ScriptRules, FireWhereTheySayAndAsOftenAsTheySay) {
  const RuleKeys keys = {{"kind", "collective_timeout"s},
                         {"rank", std::int64_t(1)},
                         {"step", std::int64_t(2)},
                         {"op", "all_reduce"s},
                         {"call", std::int64_t(2)}};
  Rules rules({rule_of(keys)}, 0, 1, 3);
  EXPECT_TRUE(rules.at(backward_sum(1)).empty());
  EXPECT_TRUE(rules.at(backward_sum(2, OpName::all_gather)).empty());
  EXPECT_TRUE(rules.at(backward_sum(2)).empty()) << "the first of its kind";
  const auto hits = rules.at(backward_sum(2));
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].firing, 1);
  EXPECT_TRUE(rules.at(backward_sum(2)).empty()) << "count is 1";
  Rules elsewhere({rule_of(keys)}, 0, 0, 3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(elsewhere.at(backward_sum(2)).empty());
}

TEST(ScriptRules, OfGradientsMeanSumsInBackward) {
  Rules rules({rule_of({{"kind", "bit_flip"s}, {"step", std::int64_t(0)}, {"count", std::int64_t(0)}})}, 0, 0, 2);
  Situation s = backward_sum(0, OpName::reduce_scatter);
  EXPECT_EQ(rules.at(s).size(), 1U);
  s.sums = false;
  EXPECT_TRUE(rules.at(s).empty());
  s.sums = true;
  s.phase = StepPhase::optimizer;
  EXPECT_TRUE(rules.at(s).empty());
}

TEST(ScriptRules, RelativesOfAnOperationCountAsIt) {
  const auto fires = [](const char* op, OpName at) {
    Rules rules({rule_of({{"kind", "pause"s}, {"delay_s", 0.5}, {"op", std::string(op)}})}, 0, 0, 2);
    return rules.at(backward_sum(0, at)).size() == 1;
  };
  EXPECT_TRUE(fires("all_reduce", OpName::reduce));
  EXPECT_TRUE(fires("all_gather", OpName::all_to_all));
  EXPECT_TRUE(fires("broadcast", OpName::scatter));
  EXPECT_TRUE(fires("barrier", OpName::barrier));
  EXPECT_FALSE(fires("barrier", OpName::all_reduce));
}

TEST(ScriptRules, OutOfMemoryStrikesAtACollective) {
  Rules rules({rule_of({{"kind", "oom"s}, {"phase", "backward"s}})}, 0, 0, 2);
  EXPECT_EQ(rules.at(backward_sum(3)).size(), 1U);
}

Situation at(Act act, const std::string& name = "", std::int64_t step = 0) {
  Situation s;
  s.act = act;
  s.name = name;
  s.step = step;
  s.phase = StepPhase::forward;
  return s;
}

TEST(ScriptRules, OfNumbersThatHaveANameStrikeThereAndNowhereElse) {
  const std::pair<const char*, Act> sites[] = {{"activation", Act::activation},
                                               {"activation_gradient", Act::activation_gradient},
                                               {"parameter", Act::parameter},
                                               {"gradient", Act::gradient},
                                               {"reduced_gradient", Act::reduced_gradient},
                                               {"optimizer_state", Act::optimizer_state}};
  for (const auto& [site, act] : sites) {
    Rules rules({rule_of({{"kind", "nan_inject"s},
                          {"site", std::string(site)},
                          {"tensor", "head.weight"s},
                          {"count", std::int64_t(0)}})},
                0, 0, 2);
    EXPECT_EQ(rules.acts(), std::vector<Act>{act});
    EXPECT_EQ(rules.at(at(act, "head.weight")).size(), 1U) << site;
    EXPECT_TRUE(rules.at(at(act, "head.bias")).empty()) << site;
    for (const auto& [other, elsewhere] : sites)
      EXPECT_EQ(rules.at(at(elsewhere, "head.weight")).size(), elsewhere == act ? 1U : 0U) << site << ' ' << other;
    EXPECT_TRUE(rules.at(backward_sum(0)).empty()) << site << ": a collective has no parameter's name";
  }
  Rules loss({rule_of({{"kind", "inf_inject"s}, {"site", "loss"s}, {"step", std::int64_t(1)}})}, 0, 0, 2);
  EXPECT_TRUE(loss.at(at(Act::loss)).empty());
  EXPECT_EQ(loss.at(at(Act::loss, "", 1)).size(), 1U);
}

TEST(ScriptRules, OutOfMemoryOfAModuleStrikesThereAndAtNoCollective) {
  Rules rules({rule_of({{"kind", "oom"s}, {"tensor", "blocks.0.up"s}, {"phase", "backward"s}})}, 0, 0, 2);
  EXPECT_EQ(rules.acts(), std::vector<Act>{Act::allocation});
  EXPECT_TRUE(rules.at(backward_sum(0)).empty());
  EXPECT_TRUE(rules.at(at(Act::allocation, "blocks.0.up")).empty()) << "in forward";
  Situation backward = at(Act::allocation, "blocks.0.down");
  backward.phase = StepPhase::backward;
  EXPECT_TRUE(rules.at(backward).empty()) << "another module";
  backward.name = "blocks.0.up";
  EXPECT_EQ(rules.at(backward).size(), 1U);
}

TEST(ScriptRules, OfLoadersAndFilesFireWhereTheyAreUsed) {
  Rules data({rule_of({{"kind", "data_error"s}, {"mode", "skip"s}, {"rank", std::int64_t(1)}})}, 0, 1, 2);
  EXPECT_EQ(data.acts(), std::vector<Act>{Act::batch});
  ASSERT_EQ(data.at(at(Act::batch, "loader 0, epoch 0")).size(), 1U);
  Rules elsewhere({rule_of({{"kind", "data_error"s}, {"rank", std::int64_t(1)}})}, 0, 0, 2);
  EXPECT_TRUE(elsewhere.acts().empty());
  EXPECT_THROW(Rules({rule_of({{"kind", "data_error"s}, {"mode", "flip"s}})}, 0, 0, 2), std::invalid_argument);

  for (const char* kind : {"nvme_write_error", "disk_full", "checkpoint_corrupt"}) {
    Rules named({rule_of({{"kind", std::string(kind)}, {"path", "optim"s}})}, 0, 0, 2);
    EXPECT_TRUE(named.at(at(Act::save, "/data/model.pt")).empty()) << kind;
    EXPECT_EQ(named.at(at(Act::save, "/data/optimizer.pt")).size(), 1U) << kind;
    Rules any({rule_of({{"kind", std::string(kind)}})}, 0, 0, 2);
    EXPECT_EQ(any.at(at(Act::save, "/data/model.pt")).size(), 1U) << kind << ": no path is any file";
  }
}

TEST(ScriptRules, ASlowRankIsSlowFromItsFirstMatchOnInItsPhase) {
  Rules rules({rule_of({{"kind", "straggler"s},
                        {"rank", std::int64_t(0)},
                        {"step", std::int64_t(1)},
                        {"phase", "forward"s},
                        {"factor", 3.0}})},
              0, 0, 2);
  Situation s = at(Act::work);
  s.worked_ns = 1000;
  EXPECT_TRUE(rules.at(s).empty());
  s.step = 1;
  auto hits = rules.at(s);
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_TRUE(hits[0].begins);
  EXPECT_EQ(hits[0].delay_ns, 2000);
  s.step = 5;
  hits = rules.at(s);
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_FALSE(hits[0].begins);
  EXPECT_EQ(hits[0].delay_ns, 2000);
  s.phase = StepPhase::backward;
  EXPECT_TRUE(rules.at(s).empty());
}

TEST(ScriptRules, ASlowLinkTakesTimeByTheBytesOverIt) {
  const auto slow = [](int rank, bool both) {
    return Rules({rule_of({{"kind", "slow_link"s},
                           {"link.from", std::int64_t(0)},
                           {"link.to", std::int64_t(2)},
                           {"factor", 0.5},
                           {"delay_s", 1e-6},
                           {"both_directions", both}})},
                 0, rank, 3);
  };
  Situation s = backward_sum(0);
  s.bytes = std::int64_t(kLinkBytesPerSecond / 1e6);  // a microsecond at full speed
  s.ranks = {0, 1, 2};
  Rules from = slow(0, true), to = slow(2, true), between = slow(1, true), one_way = slow(2, false);
  ASSERT_EQ(from.at(s).size(), 1U);
  EXPECT_EQ(from.at(s)[0].delay_ns, 2000);
  EXPECT_EQ(to.at(s).size(), 1U);
  EXPECT_TRUE(between.at(s).empty());
  EXPECT_TRUE(one_way.at(s).empty());
  s.ranks = {0, 1};
  EXPECT_TRUE(from.at(s).empty()) << "the group has one end only";
  s.op = OpName::send;
  s.peer = 2;
  EXPECT_EQ(from.at(s).size(), 1U);
  s.peer = 1;
  EXPECT_TRUE(from.at(s).empty());
}

TEST(ScriptRules, ARestartedJobDoesNotGetTheSameFaultAgain) {
  const faults::Rule once = rule_of({{"kind", "rank_crash"s}, {"step", std::int64_t(2)}});
  Rules again({once}, 0, 0, 2, {1});
  EXPECT_TRUE(again.at(backward_sum(2)).empty());
  Rules first({once}, 0, 0, 2, {0});
  EXPECT_EQ(first.at(backward_sum(2)).size(), 1U);
}

TEST(ScriptRules, ARuleMayStrikeOneStartOfTheJobOnly) {
  const faults::Rule again =
      rule_of({{"kind", "rank_crash"s}, {"step", std::int64_t(2)}, {"attempt", std::int64_t(1)}});
  for (const int attempt : {0, 1, 2}) {
    Rules rules({again}, 0, 0, 2, {}, attempt);
    EXPECT_EQ(rules.at(backward_sum(2)).size(), attempt == 1 ? 1U : 0U) << attempt;
    EXPECT_EQ(rules.acts().size(), attempt == 1 ? 1U : 0U) << attempt;
  }
  const faults::Rule skew =
      rule_of({{"kind", "clock_skew"s}, {"rank", std::int64_t(0)}, {"attempt", std::int64_t(1)}, {"offset_s", 60.0}});
  Rules first({skew}, 0, 0, 2), second({skew}, 0, 0, 2, {}, 1);
  EXPECT_TRUE(first.conditions().empty());
  EXPECT_EQ(second.conditions().size(), 1U);
}

TEST(ScriptRules, AWrongClockIsACondition) {
  const faults::Rule skew = rule_of({{"kind", "clock_skew"s}, {"rank", std::int64_t(1)}, {"offset_s", -3600.0}});
  Rules mine({skew}, 0, 1, 2), other({skew}, 0, 0, 2);
  ASSERT_EQ(mine.conditions().size(), 1U);
  EXPECT_TRUE(other.conditions().empty());
  EXPECT_TRUE(mine.acts().empty());
}

TEST(ScriptRules, OnlySumsHaveAContributionTwice) {
  const faults::Rule twice = rule_of({{"kind", "message_corrupt"s}, {"mode", "dup_apply"s}});
  Situation gathers = backward_sum(0);
  gathers.sums = false;
  Rules rules({twice}, 0, 0, 2);
  EXPECT_TRUE(rules.at(gathers).empty());
  EXPECT_EQ(rules.at(backward_sum(0)).size(), 1U);
}

TEST(ScriptRules, AStoreDiesOnceAsItsStepBegins) {
  const faults::Rule of_all = rule_of({{"kind", "store_death"s}, {"step", std::int64_t(2)}});
  const faults::Rule of_one = rule_of({{"kind", "store_death"s}, {"rank", std::int64_t(1)}});
  const auto begins = [](std::int64_t step) {
    Situation s;
    s.act = Act::step;
    s.step = step;
    return s;
  };
  Rules all({of_all}, 0, 0, 2);
  EXPECT_EQ(all.acts(), std::vector<Act>{Act::step});
  EXPECT_TRUE(all.at(begins(1)).empty());
  EXPECT_TRUE(all.at(backward_sum(2)).empty());
  EXPECT_EQ(all.at(begins(2)).size(), 1U);
  EXPECT_TRUE(all.at(begins(3)).empty()) << "it is dead already";
  Rules mine({of_one}, 0, 1, 2), other({of_one}, 0, 0, 2);
  EXPECT_EQ(mine.at(begins(0)).size(), 1U);
  EXPECT_TRUE(other.at(begins(0)).empty());
  EXPECT_TRUE(other.acts().empty());
  EXPECT_THROW(Rules({rule_of({{"kind", "store_death"s}, {"rank", std::int64_t(2)}})}, 0, 0, 2), std::invalid_argument);
}

TEST(ScriptRules, WhatMakesNoSenseIsRefusedInOneLine) {
  EXPECT_EQ(refusal_of({{"kind", "nothing"s}}), "plan.json: faults: kind: there is no \"nothing\"");
  EXPECT_EQ(refusal_of({}), "plan.json: faults: a rule has no kind");
  EXPECT_EQ(refusal_of({{"kind", "pause"s}, {"delay_s", "long"s}}), "plan.json: faults: delay_s has to be an integer");
  EXPECT_EQ(refusal_of({{"kind", "pause"s}, {"delay_s", -1.0}}),
            "plan.json: faults: delay_s has to be from 0 to 1000000");
  EXPECT_EQ(refusal_of({{"kind", "slow_link"s}, {"link.from", "0"s}}),
            "plan.json: faults: link.from has to be an integer");
  EXPECT_EQ(refusal_of({{"kind", "pause"s}, {"colour", 1.0}}),
            "plan.json: faults: \"colour\" is no key of a rule about a script");
  EXPECT_NE(refusal_of({{"kind", "slow_disk"s}}).find("does not apply to scripts"), std::string::npos);
  EXPECT_NE(refusal_of({{"kind", "bit_flip"s}, {"site", "nowhere"s}}).find("there is no \"nowhere\""),
            std::string::npos);
  EXPECT_NE(refusal_of({{"kind", "message_corrupt"s}}).find("checksum"), std::string::npos);
  EXPECT_EQ(refusal_of({{"kind", "message_corrupt"s}, {"checksum", false}}), "");
  EXPECT_THROW(Rules({rule_of({{"kind", "pause"s}, {"delay_s", 1.0}, {"rank", std::int64_t(9)}})}, 0, 0, 2),
               std::invalid_argument);
}

template <class T>
std::string struck(const RuleKeys& keys, DType type, std::vector<T>& values) {
  return strike(rule_of(keys), type, reinterpret_cast<std::byte*>(values.data()), std::int64_t(values.size()));
}

TEST(ScriptRules, StrikeExactlyOneNumber) {
  std::vector<float> x(10, 1.0F);
  EXPECT_EQ(struck({{"kind", "bit_flip"s}, {"element", std::int64_t(13)}, {"bit", std::int64_t(31)}}, DType::fp32, x),
            "bit_flip: element 3 of 10 went from 0x3f800000 to 0xbf800000");
  EXPECT_EQ(x[3], -1.0F);
  EXPECT_EQ(std::count(x.begin(), x.end(), 1.0F), 9);
  struck({{"kind", "nan_inject"s}}, DType::fp32, x);
  EXPECT_TRUE(std::isnan(x[0]));
  struck({{"kind", "inf_inject"s}, {"negative", true}, {"element", std::int64_t(1)}}, DType::fp32, x);
  EXPECT_EQ(x[1], -INFINITY);
  struck({{"kind", "zero_tile"s}, {"site", "gradient"s}, {"element", std::int64_t(8)}, {"elements", std::int64_t(5)}},
         DType::fp32, x);
  EXPECT_EQ(x[8], 0.0F);
  EXPECT_EQ(x[9], 0.0F);
  EXPECT_EQ(x[7], 1.0F);
  std::vector<std::int32_t> whole(4, 7);
  EXPECT_EQ(struck({{"kind", "nan_inject"s}}, DType::int32, whole), "") << "an integer has no NaN";
  EXPECT_EQ(whole, std::vector<std::int32_t>(4, 7));
}

}  // namespace
}  // namespace seeksim::pytorch
