// A run in which ranks vote for ever ends by itself, with a verdict and with who waits for whom.
#include <memory>

#include <nlohmann/json.hpp>

#include "faults/forwarding.h"
#include "harness/loading/extensions.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// Hides from all that a checkpoint is complete, so that they ask one another again and again.
class NobodyHears final : public OwnFault {
 public:
  runtime::Seams decorate(int, runtime::Seams inner) override {
    controls_.push_back(std::make_unique<Control>(*this, inner.control));
    return {inner.clock, inner.device, inner.transport, inner.storage, *controls_.back()};
  }
  std::uint64_t fired() const override { return hidden_; }

 private:
  class Control final : public faults::ForwardingControlPlane {
   public:
    Control(NobodyHears& owner, runtime::ControlPlane& inner) : ForwardingControlPlane(inner), owner_(owner) {}
    runtime::Agreement agree(const runtime::Op& op, std::uint32_t epoch, const runtime::Ballot& ballot,
                             runtime::TimeNs deadline) override {
      runtime::Agreement agreement = inner_.agree(op, epoch, ballot, deadline);
      for (runtime::Ballot& one : agreement.ballots) {
        owner_.hidden_ += one.checkpoint.complete ? 1 : 0;
        one.checkpoint.complete = false;
      }
      return agreement;
    }

   private:
    NobodyHears& owner_;
  };
  std::uint64_t hidden_ = 0;
  std::vector<std::unique_ptr<Control>> controls_;
};

void add_nobody_hears() {
  static const bool added = [] {
    add_fault("nobody_hears", [](const Json&, std::uint64_t) { return std::make_unique<NobodyHears>(); });
    return true;
  }();
  ASSERT_TRUE(added);
}

const std::vector<std::string> kSaves = {"--set", "faults=[]",
                                         "--set", "checks=[\"culprit:1\"]",
                                         "--set", R"(checkpoint={"path":"kept","every_steps":2,"async":false})"};

TEST(Livelock, EndsWithoutAnyOptionAndSaysWhoWaits) {
  add_nobody_hears();
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  std::vector<std::string> arguments = {"run", file, "--report", folder.file("report.json")};
  arguments.insert(arguments.end(), kSaves.begin(), kSaves.end());
  EXPECT_EQ(seeksim(arguments).status, 1) << "one check is red, and all come to the end";
  arguments.insert(arguments.end(), {"--set", R"(own_faults=[{"name":"nobody_hears"}])"});
  const Ran ran = seeksim(arguments);
  EXPECT_EQ(ran.status, 3) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("NO PROGRESS small: livelock"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("who waits for whom"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("FAIL  culprit:1"), std::string::npos) << ran.out;
  const Json report = Json::parse(read_all(folder.file("report.json")));
  EXPECT_EQ(report.at("exit_code"), 3);
  EXPECT_NE(report.at("stopped").get<std::string>().find("livelock"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
