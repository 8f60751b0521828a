// What a rank that waited in vain proves on a real machine, which loses messages and processes without a fault rule.
#include <gtest/gtest.h>

#include "harness/oracles/evidence.h"
#include "harness/oracles/inside_a_step.h"

namespace seeksim::harness {
namespace {

// Rank 0 waited in an all-reduce, and rank 1 was named.
class InVain : public ::testing::Test {
 protected:
  InVain() {
    run.ranks.resize(2);
    run.agreement.collectives_compared = 12;
    Recovery& recovery = run.detection.recoveries.emplace_back();
    recovery.first_rank = 0;
    recovery.error = runtime::ErrorKind::timeout;
    recovery.op.kind = runtime::OpKind::all_reduce;
    recovery.op.site = "gradient_reducer.cpp:211";
    recovery.diagnosis.verdict = runtime::Verdict::never_joined;
    recovery.diagnosis.culprits = {1};
  }
  Finding judged() const { return collectives_match(Evidence{scenario, run, nullptr, {}, {}}, ""); }
  runtime::Diagnosis& diagnosis() { return run.detection.recoveries[0].diagnosis; }

  Scenario scenario;
  RunRecord run;
};

TEST_F(InVain, ForARankThatIsThereMeansThatItLeftACollectiveOut) {
  EXPECT_FALSE(judged().ok);
  EXPECT_NE(judged().detail.find("rank 0 waited without success"), std::string::npos) << judged().detail;
}
TEST_F(InVain, ForARankThatIsGoneMeansNothing) {
  run.ranks[1].how = RankRecord::How::died;
  EXPECT_TRUE(judged().ok) << judged().detail;
  diagnosis().culprits = {0, 1};  // one of them is there
  EXPECT_FALSE(judged().ok);
}
TEST_F(InVain, ForAMessageThatWasLostMeansNothing) {
  diagnosis().verdict = runtime::Verdict::link;
  EXPECT_TRUE(judged().ok) << judged().detail;
}

}  // namespace
}  // namespace seeksim::harness
