// When units fail: distributions by their known values, and streams that do not touch each other.
#include "harness/campaign/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/campaign/studies.h"

namespace seeksim::harness::campaign {
namespace {

using namespace testing;

TEST(Distribution, QuantilesAreTheKnownOnes) {
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-9);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-8);
  EXPECT_NEAR(normal_quantile(0.001), -3.090232306167813, 1e-8);
  EXPECT_NEAR(gamma_function(0.5), std::sqrt(std::acos(-1.0)), 1e-12);
  EXPECT_NEAR(gamma_function(5), 24, 1e-11);
  EXPECT_NEAR(gamma_function(2.5), 1.329340388179137, 1e-12);
  const Distribution exponential{Distribution::Kind::exponential, 10};
  EXPECT_NEAR(exponential.at(0.5), 10 * std::log(2.0), 1e-12);
  const Distribution weibull{Distribution::Kind::weibull, 10, 1};
  EXPECT_NEAR(weibull.at(0.5), exponential.at(0.5), 1e-10);
  const Distribution uniform{Distribution::Kind::uniform, 0, 1, 1, 2, 6};
  EXPECT_DOUBLE_EQ(uniform.at(0.25), 3);
  EXPECT_DOUBLE_EQ(Distribution::of(7).at(0.9), 7);
}

TEST(Distribution, MeansAreWhatWasAsked) {
  const Distribution all[] = {{Distribution::Kind::exponential, 10},
                              {Distribution::Kind::weibull, 10, 0.7},
                              {Distribution::Kind::weibull, 10, 3},
                              {Distribution::Kind::log_normal, 10, 1, 0.8},
                              {Distribution::Kind::uniform, 0, 1, 1, 5, 15}};
  for (const Distribution& one : all) {
    double sum = 0;
    constexpr int kDraws = 200'000;
    for (int i = 0; i < kDraws; ++i) sum += one.at((i + 0.5) / kDraws);
    EXPECT_NEAR(sum / kDraws, one.average(), 0.02) << name(one.kind) << ' ' << one.shape;
  }
}

Cause cause(const char* name, Unit unit, double mtbf_hours) {
  Cause cause;
  cause.name = name;
  cause.unit = unit;
  cause.arrivals.rate = mtbf_hours;
  return cause;
}

std::vector<Failure> all(const Study& study, std::uint64_t seed) {
  FailureStream stream(study, seed);
  std::vector<Failure> failures;
  while (const auto failure = stream.next(TimeNs(study.hours * 3600e9))) failures.push_back(*failure);
  return failures;
}

Study a_study() {
  Study study = by_hand();
  study.hours = 1000;
  study.cluster.nodes = 100;
  study.cluster.nodes_per_rack = 10;
  study.causes = {cause("gpu", Unit::gpu, 8000), cause("rack", Unit::rack, 500), cause("job", Unit::job, 50)};
  study.causes[2].repair_hours = Distribution::of(200);  // of a node, which the job does not wait for
  return study;
}

TEST(Arrivals, ComeInOrderAndAsOftenAsAsked) {
  std::map<int, double> count;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    TimeNs last = 0;
    for (const Failure& failure : all(a_study(), seed)) {
      EXPECT_GE(failure.at_ns, last);
      last = failure.at_ns;
      count[failure.cause] += 1.0 / 20;
      if (failure.cause == 1) {
        EXPECT_EQ(failure.nodes, 10);
        EXPECT_EQ(failure.node % 10, 0);
      }
    }
  }
  EXPECT_NEAR(count[0], 100, 8);  // 800 GPUs
  EXPECT_NEAR(count[1], 20, 4);   // 10 racks
  EXPECT_NEAR(count[2], 20, 4);
  EXPECT_NEAR(failures_per_hour(a_study()), 0.14, 1e-9);
}

TEST(Arrivals, TakingACauseAwayMovesNoOther) {
  Study fewer = a_study();
  fewer.causes.erase(fewer.causes.begin());
  std::vector<TimeNs> with, without;
  for (const Failure& failure : all(a_study(), 3)) {
    if (failure.cause != 0) with.push_back(failure.at_ns);
  }
  for (const Failure& failure : all(fewer, 3)) without.push_back(failure.at_ns);
  EXPECT_EQ(with, without);
  EXPECT_GT(with.size(), 10u);
}

TEST(Arrivals, MoreSparesMoveNoFailureOfOtherNodes) {
  Study more = a_study();
  more.spares.hot = 10;
  std::vector<TimeNs> with, without;
  for (const Failure& failure : all(more, 3)) {
    if (failure.node < 100) with.push_back(failure.at_ns);
  }
  for (const Failure& failure : all(a_study(), 3)) without.push_back(failure.at_ns);
  EXPECT_EQ(with, without);
}

// Of a Weibull process with shape 3 gaps are near their mean; with 0.5 many are short. Their number says so: the mean
// of squared gaps over the square of the mean is 1 + the squared coefficient of variation.
TEST(Arrivals, ProcessesHaveTheirSpread) {
  const auto variation = [](Process process, double shape) {
    Study study = by_hand();
    study.hours = 200'000;
    study.causes = {cause("job", Unit::job, 10)};
    study.causes[0].arrivals.process = process;
    study.causes[0].arrivals.shape = shape;
    study.causes[0].arrivals.sigma = 0.5;
    double sum = 0, squares = 0, n = 0;
    TimeNs last = 0;
    for (const Failure& failure : all(study, 1)) {
      const double gap = double(failure.at_ns - last) / 3600e9;
      last = failure.at_ns;
      sum += gap;
      squares += gap * gap;
      ++n;
    }
    EXPECT_NEAR(sum / n, 10, 0.6);
    return squares / n / (sum / n) / (sum / n) - 1;
  };
  EXPECT_NEAR(variation(Process::poisson, 1), 1, 0.1);
  EXPECT_NEAR(variation(Process::weibull, 0.5), 5, 0.9);
  EXPECT_NEAR(variation(Process::weibull, 3), 0.132, 0.02);
  EXPECT_NEAR(variation(Process::log_normal, 1), std::exp(0.25) - 1, 0.04);
}

// Failures in the first, a middle and the last tenth of a life of 10,000 hours: many, few, many.
TEST(Arrivals, ABathtubHasTwoEdges) {
  Study study = by_hand();
  study.hours = 10'000;
  study.cluster.nodes = 20'000;
  study.causes = {cause("node", Unit::node, 1'000'000)};
  study.causes[0].arrivals.process = Process::bathtub;
  study.causes[0].arrivals.infant_mtbf_hours = 400'000;
  study.causes[0].arrivals.infant_shape = 0.4;
  study.causes[0].arrivals.wear_mtbf_hours = 10'000;
  study.causes[0].arrivals.wear_shape = 6;
  int tenths[10] = {};
  for (const Failure& failure : all(study, 1)) ++tenths[failure.at_ns / TimeNs(1000 * 3600e9)];
  EXPECT_GT(tenths[0], 3 * tenths[3]);
  EXPECT_GT(tenths[9], 3 * tenths[3]);
}

TEST(Arrivals, RatesOfOtherUnitsAreTheSame) {
  Study study = a_study();
  Cause& gpu = study.causes[0];
  gpu.arrivals.rate_of = Rate::per_node_day;
  gpu.arrivals.rate = 8 * 24 / 8000.0;
  EXPECT_NEAR(mtbf_hours_of(study, gpu), 8000, 1e-6);
  gpu.arrivals.rate_of = Rate::per_gpu_hour;
  gpu.arrivals.rate = 1 / 8000.0;
  EXPECT_NEAR(mtbf_hours_of(study, gpu), 8000, 1e-6);
  gpu.unit = Unit::job;
  EXPECT_NEAR(mtbf_hours_of(study, gpu), 10, 1e-6);
}

}  // namespace
}  // namespace seeksim::harness::campaign
