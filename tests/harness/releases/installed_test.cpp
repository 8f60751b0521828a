// On what is installed no mended bug may be back; open ones are told apart from those that are gone.
#include "harness/releases/installed.h"

#include <gtest/gtest.h>

#include "harness/input/problem.h"
#include "harness/releases/museum.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::releases {
namespace {

Exhibit exhibit(const std::string& good) {
  Exhibit one;
  one.name = "x";
  one.package = "p";
  one.symptom = "It drifts.";
  one.bad = "1.0";
  one.good = good;
  one.pins = {"q==3"};
  return one;
}
Exhibit mended() { return exhibit("1.1"); }
Exhibit open() { return exhibit("1.0"); }

AskInstalled answers(Verdict verdict) {
  return [=](const Exhibit&) { return Answer{verdict, "replicas_equal", "step 4: head.weight", 2}; };
}

const Versions kInstalled = {{"p", "1.2"}, {"q", "4"}, {"torch", "2.15.0"}};

Standing standing(const Exhibit& of, Verdict verdict) { return stand(of, kInstalled, answers(verdict)).standing; }

TEST(InstalledMuseum, AMendedBugIsGreenOrBack) {
  EXPECT_EQ(standing(mended(), Verdict::green), Standing::green);
  EXPECT_EQ(standing(mended(), Verdict::red), Standing::back);
  EXPECT_EQ(standing(mended(), Verdict::none), Standing::unjudged);
}

TEST(InstalledMuseum, AnOpenBugIsThereOrGone) {
  EXPECT_EQ(standing(open(), Verdict::red), Standing::open);
  EXPECT_EQ(standing(open(), Verdict::green), Standing::gone);
  EXPECT_EQ(standing(open(), Verdict::none), Standing::unjudged);
}

TEST(InstalledMuseum, ABugWithoutALaterReleaseThatMendsItIsOpen) {
  Exhibit brought = exhibit("2.5.1");
  brought.bad = "2.15.0";
  EXPECT_EQ(standing(brought, Verdict::red), Standing::open);
  brought.good = "2.15.0.post2";
  EXPECT_EQ(standing(brought, Verdict::red), Standing::open);
  brought.good = "2.16.0";
  EXPECT_EQ(standing(brought, Verdict::red), Standing::back);
}

TEST(InstalledMuseum, WithoutAPackageNothingIsRun) {
  for (const std::string missing : {"p", "q", "torch"}) {
    Versions some = kInstalled;
    some.erase(missing);
    const StandingExhibit one = stand(mended(), some, [](const Exhibit&) -> Answer { throw std::logic_error("ran"); });
    EXPECT_EQ(one.standing, Standing::left_out);
    EXPECT_EQ(one.names, missing + " is not installed");
  }
  EXPECT_EQ(packages_of({mended(), open()}), (std::vector<std::string>{"p", "torch", "q"}));
}

TEST(InstalledMuseum, ABugThatIsBackIsToldWithWhatItIs) {
  const std::string text = standing_text(stand(mended(), kInstalled, answers(Verdict::red)), {});
  for (const char* words : {"RED on p 1.2, and green on 1.1", "step 4: head.weight", "It drifts."})
    EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_NE(standing_text(stand(open(), kInstalled, answers(Verdict::green)), {}).find("which mends an open bug"),
            std::string::npos);
}

TEST(InstalledMuseum, TheExitStatusIsRedForWhatIsBackOrFailed) {
  const auto status = [](const std::vector<Exhibit>& all, Verdict verdict, const Versions& versions = kInstalled) {
    return installed_museum(all, versions, answers(verdict), {});
  };
  EXPECT_EQ(status({mended(), open()}, Verdict::green), ExitStatus::as_expected);
  EXPECT_EQ(status({open()}, Verdict::red), ExitStatus::as_expected);
  EXPECT_EQ(status({open(), mended()}, Verdict::red), ExitStatus::check_failed);
  EXPECT_EQ(status({open()}, Verdict::none), ExitStatus::check_failed);
  EXPECT_EQ(status({mended()}, Verdict::red, {}), ExitStatus::cannot_be_had);
}

TEST(InstalledMuseum, TheSummaryCountsEach) {
  const auto of = [](Standing standing) { return StandingExhibit{mended(), standing, "1", "", 0}; };
  EXPECT_EQ(standing_summary({of(Standing::green), of(Standing::back), of(Standing::open), of(Standing::gone),
                              of(Standing::gone), of(Standing::unjudged), of(Standing::left_out)}),
            "\n1 of 2 mended bugs stay mended; 1 of 3 open bugs are still there; 1 without a verdict; 1 left out for "
            "want of packages\n");
}

TEST(InstalledMuseum, ExhibitsOfOnePackageCanBeAskedFor) {
  const std::vector<Exhibit> all = exhibits({});
  const std::vector<Exhibit> some = of_packages(all, {"deepspeed", "accelerate"});
  EXPECT_GT(some.size(), 10U);
  EXPECT_LT(some.size(), all.size());
  for (const Exhibit& one : some) EXPECT_TRUE(one.package == "deepspeed" || one.package == "accelerate") << one.name;
  EXPECT_EQ(of_packages(all, {}).size(), all.size());
  EXPECT_THROW(of_packages(all, {"deepsped"}), BadInput);
}

}  // namespace
}  // namespace seeksim::harness::releases
