// The fault scenarios of the simulator on real processes: the same files, rules, decorators and checks, in real
// seconds. Faults that processes cannot make are rejected by name.
#include <chrono>

#include "tests/support/processes.h"

namespace seeksim {
namespace {

using Sets = std::vector<std::string>;

struct Case {
  const char* name;
  const char* scenario;  // below scenarios/faults
  Sets sets;
  int ranks = 4;
};

std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.name; }
std::string name_of(const testing::TestParamInfo<Case>& of) { return of.param.name; }

// A watchdog in real seconds: longer than four processes on two cores ever stand still.
const char* const kWatchdog = "recovery.watchdog_s=3";
const char* const kUndisturbed = R"(checks=["golden:bitwise","ranks_agree","faults_fired",{"evicted":[]}])";

class MpiFaults : public Mpi, public testing::WithParamInterface<Case> {
 protected:
  void survives() {
    Sets sets = GetParam().sets;
    sets.insert(sets.begin(), "sweep=[]");
    const Ran ran = mpi(GetParam().ranks, std::string("faults/") + GetParam().scenario, sets);
    ASSERT_EQ(ran.status, 0) << ran.text;
    const Json told = report("mpi");
    EXPECT_EQ(told["backend"], "mpi");
    ASSERT_FALSE(told["faults"].empty());
    for (const Json& fault : told["faults"]) EXPECT_GT(fault["fired"].get<int>(), 0) << fault;
  }
};

TEST_P(MpiFaults, AreSurvived) { survives(); }

const char* const kValueFault = R"(faults=[{"kind":"%","site":"activation","rank":2,"step":2,"micro_batch":1}])";
std::string value_fault(const std::string& kind) {
  std::string set = kValueFault;
  return set.replace(set.find('%'), 1, kind);
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, MpiFaults,
    testing::Values(
        Case{"Late", "f01_late", {"recovery.watchdog_s=20", "faults.0.delay_s=0.5", kUndisturbed}},
        Case{"LinkFlaps",
             "f02_link_flaps",
             {"recovery.watchdog_s=20", "faults.0.down_s=0.3", "faults.0.cycles=2", kUndisturbed}},
        Case{"LinkCutInOneDirection", "f04_one_direction", {"recovery.watchdog_s=2"}},
        Case{"SlowLink", "f06_slow_link", {"recovery.watchdog_s=20", "faults.0.delay_s=0.01", kUndisturbed}},
        Case{"LostMessage", "f14_message_lost", {kWatchdog}}, Case{"DamagedMessage", "f14_message_flip", {kWatchdog}},
        Case{"NaN", "f11_nan", {kWatchdog}}, Case{"Infinity", "f11_nan", {kWatchdog, value_fault("inf_inject")}},
        Case{"Overflow", "f11_nan", {kWatchdog, value_fault("overflow")}},
        Case{"FlippedGradient", "f13_gradient_flip", {"recovery.watchdog_s=20"}},
        // Only a comparison of copies can notice these; the scenarios expect that check to be red.
        Case{"FlippedParameter", "f12_parameter_flip", {"recovery.watchdog_s=20"}},
        Case{"FlippedMoment", "f15_optimizer_flip", {"recovery.watchdog_s=20"}},
        Case{"StaleGradient", "f29_stale_gradient", {"recovery.watchdog_s=20"}},
        Case{"LossSpike",
             "f28_loss_spike",
             {"recovery.watchdog_s=20",
              R"(faults=[{"kind":"loss_spike","rank":0,"step":18,"count":2},{"kind":"loss_spike","rank":1,"step":18,)"
              R"("count":2},{"kind":"loss_spike","rank":2,"step":18,"count":2},{"kind":"loss_spike","rank":3,)"
              R"("step":18,"count":2}])"}},
        // The others are still on their way when the first allocations fail.
        Case{"OutOfMemoryAtOnce",
             "f16_oom",
             {"recovery.watchdog_s=30", R"(faults.0={"kind":"oom","rank":1,"call":20})"}},
        Case{"OutOfMemoryByBudget",
             "f16_oom",
             {"recovery.watchdog_s=30", R"(faults.0={"kind":"oom","rank":1,"bytes":200000})"}},
        Case{"OutOfMemoryInACommunicator",
             "f16_oom",
             {"recovery.watchdog_s=30", R"(faults.0={"kind":"oom","rank":1,"op":"comm_create"})"}},
        Case{"DiskErrors",
             "f18_nvme_reads",
             {"recovery.watchdog_s=20", R"(faults=[{"kind":"nvme_read_error","rank":0,"step":1,"count":2},)"
                                        R"({"kind":"nvme_short_read","rank":1,"step":1,"count":2},)"
                                        R"({"kind":"nvme_write_error","rank":2,"step":1,"count":2},)"
                                        R"({"kind":"nvme_torn_write","rank":3,"step":1,"count":2}])"}},
        Case{"DataErrorOfOneSample",
             "f25_data_stall",
             {kWatchdog, R"(faults=[{"kind":"data_error","sample":19}])", kUndisturbed}},
        Case{"Pause",
             "f32_false_positive",
             {"recovery.watchdog_s=20", kUndisturbed,
              R"(faults=[{"kind":"pause","rank":2,"step":2,"op":"reduce_scatter","delay_s":0.5}])"}}),
    name_of);

class MpiFaultsNightly : public MpiFaults {};
TEST_P(MpiFaultsNightly, AreSurvived) { survives(); }

INSTANTIATE_TEST_SUITE_P(
    Scenarios, MpiFaultsNightly,
    testing::Values(
        Case{"LinkLosesSome",
             "f04_one_direction",
             {"recovery.watchdog_s=2", "faults.0.loss=0.2", R"(checks=["golden:bitwise","faults_fired"])"}},
        Case{"LateBeyondTheWatchdog", "f01_late", {kWatchdog, "faults.0.delay_s=5", kUndisturbed}},
        Case{"ZeroTile",
             "f13_gradient_flip",
             {"recovery.watchdog_s=20",
              R"(faults=[{"kind":"zero_tile","site":"gradient","rank":1,"step":2,"micro_batch":0,)"
              R"("tensor":"h.0.attn.c_attn.weight","element":3,"elements":64}])"}},
        Case{"PinnedMemory", "f17_pinned", {}},
        Case{"FullDisk",
             "f19_nvme_writes",
             {"recovery.watchdog_s=20", R"(faults=[{"kind":"disk_full","rank":1,"step":1,"count":2}])"}},
        Case{"Mismatch", "f22_mismatch", {kWatchdog}},
        Case{"DataStall", "f25_data_stall", {"recovery.watchdog_s=20", "faults.0.delay_s=0.5", kUndisturbed}},
        Case{"DataError",
             "f25_data_stall",
             {kWatchdog, R"(faults=[{"kind":"data_error","rank":1,"step":2,"micro_batch":1}])", kUndisturbed}},
        Case{"DeviceError", "f27_device_error", {kWatchdog}}),
    name_of);

// ---- red -----------------------------------------------------------------------------------------------------------

TEST_F(Mpi, AFaultThatNobodyNoticesTurnsTheGoldenRed) {
  const Ran ran = mpi(4, "faults/f13_gradient_flip",
                      {"sweep=[]", "recovery.rerun_and_compare=false", R"(checks=["golden:bitwise"])"});
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("golden:bitwise"), std::string::npos) << ran.text;
}

TEST_F(Mpi, AFaultThatNeverFiresIsRed) {
  const Ran ran = mpi(4, "faults/f14_message_lost", {"sweep=[]", "faults.0.step=99", R"(checks=["golden:bitwise"])"});
  EXPECT_EQ(ran.status, 1) << ran.text;
  EXPECT_NE(ran.text.find("faults_fired"), std::string::npos) << ran.text;
}

// All at once, each by its name.
TEST_F(Mpi, WhatOnlyASimulatorMakesIsRefusedByName) {
  const Ran ran =
      mpi(1, "faults/f14_message_lost",
          {"sweep=[]", R"(checks=["golden:bitwise"])", R"(expect={"check_fails":"no_races"})", "world.collectives=nccl",
           "world.storage.capacity_gib=1", "bug=skip_wait:gradients_reduced", "schedule.strategy=first",
           R"(faults=[{"kind":"straggler","rank":1,"step":1},{"kind":"slow_link","link":{"from":0,"to":1},"step":1},)"
           R"({"kind":"kernel_hang","rank":1,"step":1},{"kind":"message_drop","step":1},)"
           R"({"kind":"rank_crash","rank":1,"step":1,"op":"vote","mode":"after"},)"
           R"({"kind":"collective_timeout","rank":1,"step":1,"mode":"never"}])"});
  EXPECT_EQ(ran.status, 2) << ran.text;
  for (const char* words :
       {"straggler: real durations", "slow_link: a bandwidth is not made up", "kernel_hang: nothing can free",
        "message_drop: each process counts for itself", "rank_crash: a process is ended on its way",
        "collective_timeout: a process that never comes", "rank_crash ends a process, and the job with it",
        "each message between processes says what it is", "the size of a real file system cannot be set",
        "skip_wait is caught by no_races", "expect.check_fails: --backend mpi: no_races",
        "which of several processes runs next"})
    EXPECT_NE(ran.text.find(words), std::string::npos) << "not said: " << words << '\n' << ran.text;
}

TEST_F(Mpi, ACrashNeedsASupervisor) {
  const Ran ran = mpi(
      4, "faults/f14_message_lost",
      {"sweep=[]", R"(checks=["golden:bitwise"])", R"(faults=[{"kind":"rank_crash","rank":1,"step":1,"op":"vote"}])"});
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find("Start it with seeksim launch"), std::string::npos) << ran.text;
}

}  // namespace
}  // namespace seeksim
