// The program from its arguments to its files and exit status, on scenarios that run in milliseconds.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "harness/commands/cli.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/run/forked.h"
#include "harness/run/one_run.h"
#include "harness/run/run.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/files/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// The small scenario in a file, and what a run of it left behind.
class Run : public ::testing::Test {
 protected:
  Run() : scenario(folder.write("small.json", small_text())) {}
  Json report_of(std::vector<std::string> arguments, int status = 0) {
    const std::string file = folder.file("report.json");
    arguments.insert(arguments.begin(), {"run", scenario, "--report", file});
    const Ran ran = seeksim(arguments);
    EXPECT_EQ(ran.status, status) << ran.out << ran.err;
    return Json::parse(read_all(file));
  }
  std::vector<runtime::TensorBytes> tensors(const std::string& name) {
    return runtime::read_safetensors(read_all(folder.file(name)));
  }

  TemporaryFolder folder;
  std::string scenario;
};

TEST_F(Run, TheMainJobInSmall) {
  const Json report = report_of({});
  EXPECT_EQ(report["verdict"], "pass");
  EXPECT_EQ(report["steps_committed"], 4);
  ASSERT_EQ(report["recoveries"].size(), 1u);
  const Json& recovery = report["recoveries"][0];
  EXPECT_EQ(recovery["culprits"], Json::array({2}));
  EXPECT_EQ(recovery["fault"], "collective_timeout");
  EXPECT_EQ(recovery["steps_lost"], 0);
  EXPECT_LT(recovery["t_inject_s"], recovery["t_detect_s"]);
  EXPECT_LE(recovery["t_detect_s"], recovery["t_agree_s"]);
  EXPECT_LE(recovery["t_agree_s"], recovery["t_rebuild_s"]);
  EXPECT_LT(recovery["t_rebuild_s"], recovery["t_resumed_s"]);
  EXPECT_EQ(report["golden"]["stored"], false);
}

TEST_F(Run, AnotherSeedIsAnotherScheduleWithTheSameBits) {
  const Json one = report_of({"--seed", "1"}), two = report_of({"--seed", "2"});
  EXPECT_NE(one["fingerprint"], two["fingerprint"]);
  EXPECT_EQ(one["params_digest"], two["params_digest"]);
  EXPECT_EQ(one["loss"], two["loss"]);
  EXPECT_EQ(two["seed"], 2);
  const Json other = report_of({"--set", "training_seed=2"});
  EXPECT_NE(other["params_digest"], one["params_digest"]);
}

TEST_F(Run, TheSameSeedIsTheSameRun) {
  Json one = report_of({}), two = report_of({});
  for (Json* report : {&one, &two}) {
    report->erase("wall_s");
    (*report)["golden"].erase("origin");
  }
  EXPECT_EQ(one, two);
  const Json verified = report_of({"--verify-determinism"});
  EXPECT_EQ(verified["checks"].back()["name"], "deterministic");
  EXPECT_EQ(verified["checks"].back()["ok"], true);
}

TEST_F(Run, ARedCheckIsOne) {
  const Json report = report_of({"--set", "checks.2=culprit:1"}, 1);
  EXPECT_EQ(report["verdict"], "fail");
  EXPECT_EQ(report["exit_code"], 1);
  EXPECT_EQ(report_of({"--set", "faults.0.step=99", "--set", "checks=[]"}, 1)["checks"].back()["ok"], false)
      << "a fault that never fired";
  report_of({"--set", "checks.2=culprit:1", "--set", "expect={\"check_fails\":\"culprit\"}"}, 0);
}

TEST_F(Run, BadInputIsTwoAndSaysSoInTheReport) {
  const Json report = report_of({"--set", "steps=0"}, 2);
  EXPECT_EQ(report["verdict"], "bad_input");
  EXPECT_NE(report["problems"][0].get<std::string>().find("--set steps=0: steps: 0 is out of range"),
            std::string::npos);
}

TEST_F(Run, OutOfTimeIsThree) {
  const Json report =
      report_of({"--wall-limit", "0.05", "--set", "steps=1000000", "--set", "faults=[]", "--set", "checks=[]"}, 3);
  EXPECT_EQ(report["verdict"], "no_progress");
  // The golden that has to be run first counts too.
  const Json golden =
      report_of({"--wall-limit", "0.05", "--set", "steps=1000000", "--set", "checks=[\"golden:bitwise\"]"}, 3);
  EXPECT_EQ(golden["verdict"], "no_progress");
}

TEST_F(Run, AnUnknownInstructionSetIsTwo) {
  // In a process of its own: the set is chosen once.
  const auto forced = [&] {
    ::setenv("SEEKSIM_ISA", "avx1024", 1);
    std::_Exit(main_of({"run", scenario}));
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(forced(), ::testing::ExitedWithCode(2), "this machine: .*avx1024");
}

TEST_F(Run, AFullStandardOutputIsNotSuccess) {
  const std::string command = seeksim::paths::program() + " run " + scenario + " > /dev/full 2> " + folder.file("err");
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_NE(read_all(folder.file("err")).find("standard output: cannot be written"), std::string::npos);
}

TEST_F(Run, OutHoldsEverything) {
  const std::string out = folder.file("a/b");
  const Ran ran = seeksim({"run", scenario, "--out", out, "--junit", folder.file("j.xml")});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(Json::parse(read_all(out + "/report.json"))["verdict"], "pass");
  EXPECT_EQ(read_all(out + "/junit.xml"), read_all(folder.file("j.xml")));
  EXPECT_EQ(read_all(out + "/story.txt"), ran.out);
  EXPECT_EQ(seeksim({"run", out + "/scenario.json"}).status, 0) << "the scenario as it was run can be run";
}

TEST_F(Run, WhatWasSavedIsWhatWasTrained) {
  const Json report = report_of({"--save-initial", folder.file("i"), "--save-final", folder.file("f"), "--save-batches",
                                 folder.file("b"), "--save-gradients", "1:" + folder.file("g")});
  const auto initial = tensors("i"), final_weights = tensors("f"), gradients = tensors("g");
  ASSERT_EQ(initial.size(), final_weights.size());
  ASSERT_EQ(initial.size(), gradients.size());
  double norm2 = 0;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    EXPECT_EQ(initial[i].shape, final_weights[i].shape);
    EXPECT_NE(initial[i].bytes, final_weights[i].bytes) << initial[i].name;
    EXPECT_EQ(initial[i].name, gradients[i].name);
    for (const float g : runtime::to_floats(gradients[i]).values) norm2 += double(g) * double(g);
  }
  EXPECT_NEAR(std::sqrt(norm2), report["grad_norm"][0].get<double>(), 1e-5) << "of the first step, before clipping";
  const auto batches = tensors("b");
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].name, "tokens");
  EXPECT_EQ(batches[0].shape, (std::vector<runtime::Index>{4, 8, 9}));

  // From the same weights on the same batches, the same bits.
  const Json again =
      report_of({"--init", folder.file("i"), "--set", "data={\"batches\":\"" + folder.file("b") + "\"}"});
  EXPECT_EQ(again["params_digest"], report["params_digest"]);
  EXPECT_EQ(again["loss"], report["loss"]);
  const Json other = report_of({"--init", folder.file("f")});
  EXPECT_NE(other["params_digest"], report["params_digest"]);
}

// The mean over all tokens of log-sum-exp minus the target's logit, in double.
double loss_of(const std::vector<float>& logits, const std::vector<std::int32_t>& tokens, std::size_t context,
               std::size_t vocab) {
  double sum = 0;
  const std::size_t rows = logits.size() / vocab;
  for (std::size_t row = 0; row < rows; ++row) {
    double exps = 0;
    for (std::size_t v = 0; v < vocab; ++v) exps += std::exp(double(logits[row * vocab + v]));
    const std::size_t sample = row / context, place = row % context;
    sum += std::log(exps) - double(logits[row * vocab + std::size_t(tokens[sample * (context + 1) + place + 1])]);
  }
  return sum / double(rows);
}

TEST_F(Run, SavedLogitsGiveTheFirstLossAndOthersDoNot) {
  const std::string halves = "deepspeed.bf16={\"enabled\":true}", experts = "model.experts=4";
  for (const std::string& set : {std::string(), halves, experts}) {
    std::vector<std::string> options = {"--save-logits", folder.file("l"), "--save-batches", folder.file("b")};
    if (!set.empty()) options.insert(options.end(), {"--set", set});
    if (set == experts)
      options.insert(options.end(), {"--set", "model.experts_per_token=2", "--set", "model.family=llama"});
    const Json report = report_of(options);
    const auto logits = tensors("l"), batches = tensors("b");
    ASSERT_EQ(logits.size(), 1u);
    EXPECT_EQ(logits[0].name, "logits");
    ASSERT_EQ(logits[0].shape.size(), 3u);
    EXPECT_EQ(logits[0].shape[0], 8);
    EXPECT_EQ(logits[0].shape[1], 8);
    std::vector<std::int32_t> tokens(batches[0].bytes.size() / 4);
    std::memcpy(tokens.data(), batches[0].bytes.data(), batches[0].bytes.size());
    const auto vocab = std::size_t(logits[0].shape[2]);
    const std::vector<float> values = runtime::to_floats(logits[0]).values;
    const double loss = report["loss"][0].get<double>();
    EXPECT_NEAR(loss_of(values, tokens, 8, vocab), loss, set == halves ? 1e-3 : 1e-6) << set;
    // Of the second batch they say another loss.
    const std::vector<std::int32_t> second(tokens.begin() + 8 * 9, tokens.end());
    EXPECT_GT(std::abs(loss_of(values, second, 8, vocab) - loss), 1e-3);
  }
}

TEST_F(Run, GradientsOfALaterStepAreOfThatStep) {
  const Json report = report_of({"--save-gradients", "3:" + folder.file("g")});
  double norm2 = 0;
  for (const auto& tensor : tensors("g")) {
    for (const float g : runtime::to_floats(tensor).values) norm2 += double(g) * double(g);
  }
  EXPECT_NEAR(std::sqrt(norm2), report["grad_norm"][2].get<double>(), 1e-5);
}

// docs/goldens.md, "Hold a run against PyTorch", from the command line: other weights, given batches, a table of rates.
TEST(RunAgainstPyTorch, StaysWithinTheStatedTolerance) {
  for (const std::string name : {"tiny", "tiny_untied"}) {
    const std::string reference = seeksim::paths::source_dir() + "/golden/pytorch/" + name;
    const Json config = Json::parse(read_all(reference + "/config.json"));
    const Json expected = Json::parse(read_all(reference + "/expected.json"));
    TemporaryFolder folder;
    const Json scenario = {
        {"name", name},
        {"model",
         {{"layers", config["layers"]},
          {"width", config["width"]},
          {"heads", config["heads"]},
          {"context", config["context"]},
          {"vocab", config["vocab"]},
          {"tied", config["tied"]}}},
        {"data", {{"batches", reference + "/batches.safetensors"}}},
        {"world", {{"nodes", 1}, {"ranks_per_node", 4}}},
        {"deepspeed",
         {{"train_batch_size", 8},
          {"optimizer",
           {{"type", "AdamW"},
            {"params",
             {{"betas", config["betas"]}, {"eps", config["eps"]}, {"weight_decay", config["weight_decay"]}}}}},
          {"gradient_clipping", config["grad_clip"]}}},
        {"decay", config["decay"]},
        {"lr_table", config["lr"]},
        {"steps", config["lr"].size()},
        {"checks", {"golden:bitwise", "ranks_agree"}}};
    const Ran ran = seeksim({"run", folder.write("s.json", scenario.dump()), "--init", reference + "/init.safetensors",
                             "--report", folder.file("r.json")});
    ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
    const Json report = Json::parse(read_all(folder.file("r.json")));
    ASSERT_EQ(report["loss"].size(), expected["loss"].size());
    for (std::size_t i = 0; i < expected["loss"].size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double ours = report[key][i].get<double>(), theirs = expected[key][i].get<double>();
        EXPECT_NEAR(ours, theirs, 2e-6 * theirs) << name << ' ' << key << " of step " << i;
      }
      EXPECT_EQ(report["lr"][i], config["lr"][i]);
    }
  }
}

// ---- usage and files -----------------------------------------------------------------------------------------------

// A fault that never came: the check says what its rule met of that rank and step instead.
TEST_F(Run, AFaultThatNeverFiredSaysWhatItMet) {
  const Ran ran = seeksim({"run", scenario, "--set", "checks=[\"faults_fired\"]", "--set",
                           R"(faults=[{"kind": "rank_crash", "rank": 1, "step": 1, "op": "send_activation"}])"});
  EXPECT_EQ(ran.status, 1) << ran.out;
  EXPECT_NE(ran.out.find("faults.0 never fired"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("it met"), std::string::npos) << ran.out;
}

TEST_F(Run, WrongUsageIsTwoWithTheNextThingToDo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{}, "A subcommand is required"},
      {{"rnu", "x"}, "rnu: there is no such command. Did you mean \"run\"?"},
      {{"run"}, "which scenario? Name a file, a folder or a scenario"},
      {{"run", scenario, "--sed", "1"}, "--sed"},
      {{"run", scenario, "--seed", "-1"}, "--seed -1: a whole number"},
      {{"run", scenario, "--seed", "x"}, "--seed x: a whole number"},
      {{"run", scenario, "--wall-limit", "-1"}, "--wall-limit"},
      {{"run", scenario, "-j", "0"}, "-j"},
      {{"museum", "collectives_mismatch"}, "no such exhibit. `seeksim museum --markdown` lists them all."},
      {{"museum", "gradient_flipped"}, "Did you mean bit_flipped_in_a_gradient, or gradient_read_before_it_arrived"},
      {{"torch", "museum", "deepspeed_step_at_strat"}, "Did you mean deepspeed_step_at_start?"},
      {{"run", scenario, "--backend", "mpi", "--trace", "t.json"}, "--trace: --backend mpi: it draws virtual time"},
      {{"run", scenario, "--backend", "mpi", "--device", "emulated"},
       "--device emulated: processes of --backend mpi compute on the CPU"},
      {{"run", scenario, "--backend", "tpu"}, "--backend"},
      {{"run", scenario, "--device", "tpu"}, "--device"},
      {{"run", folder.file("none.json")}, "none.json: cannot be read: No such file or directory"},
      {{"run", "/dev/zero"}, "it is not a regular file"},
      {{"run", folder.write("empty.json", "")}, "empty.json:1:1: the file is empty"},
      {{"run", folder.write("half.json", small_text().substr(0, 300))},
       "half.json:6:83: the file ends inside a string"},
      {{"run", folder.write("deep.json", std::string(1'000'000, '['))}, "deep.json:1:66: nested deeper"},
      {{"run", scenario, "--report", folder.file("no/such/folder.json")},
       "--report " + folder.file("no/such/folder.json") + ": cannot be written"},
      {{"run", scenario, "--report", folder.path()}, "this is a folder"},
      {{"run", scenario, "--junit", "/proc/version/x"}, "--junit /proc/version/x: cannot be written"},
      {{"run", scenario, "--out", scenario}, "this is a file"},
      {{"run", scenario, "--out", scenario + "/x"}, "the folder cannot be made"},
      {{"run", scenario, "--out", "/proc/nowhere"}, "--out /proc/nowhere: the folder cannot be made"},
      {{"run", scenario, "--report", "/dev/full"}, "/dev/full: cannot be written: No space left on device"},
      {{"run", scenario, "--save-final", folder.file("no/f")},
       "--save-final " + folder.file("no/f") + ": cannot be written"},
      {{"run", scenario, "--save-gradients", "0:" + folder.file("g")}, "STEP:FILE is expected, the first step is 1"},
      {{"run", scenario, "--save-gradients", folder.file("g")}, "STEP:FILE is expected"},
      {{"run", scenario, "--save-gradients", "5:" + folder.file("g")}, "the scenario has 4 steps"},
      {{"run", scenario, scenario, "--save-final", folder.file("f")}, "several scenarios would write the same file"},
      {{"run", scenario, "--init", folder.file("none")},
       "--init " + folder.file("none") + ": " + folder.file("none") + " cannot be read"},
      {{"run", scenario, "--init", scenario}, "there is no \"weight_map\""},
      {{"run", scenario, "--init", folder.write("text", "some words")}, "not the weights of this model"},
      {{"list", "fault"}, "list fault: there is no such list. Did you mean \"faults\"?"},
      {{"explore"}, "scenario is required"},
      {{"golden", folder.file("none.json")}, "cannot be read"},
  };
  for (const auto& [arguments, message] : table) {
    const Ran ran = seeksim(arguments);
    EXPECT_EQ(ran.status, 2) << ran.out << ran.err;
    EXPECT_NE(ran.err.find(message), std::string::npos) << "gave: " << ran.err << "not:  " << message;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("report.json")));
}

TEST_F(Run, HostileWeightsAreToldNotTrusted) {
  EXPECT_EQ(seeksim({"run", scenario, "--save-initial", folder.file("good")}).status, 0);
  const std::string good = read_all(folder.file("good"));
  const auto number = [](std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); };
  const std::string header = good.substr(8, good.find("}}") + 2 - 8);
  const std::vector<std::string> bad = {
      "",
      "x",
      number(0),
      number(~0ull),
      number(1ull << 40) + "{}",
      number(2) + "{}",
      number(2) + "[]",
      number(3) + "{x}",
      good.substr(0, good.size() - 1),
      good + "x",
      good.substr(0, 100),
      number(header.size()) + header,
      number(64) + R"({"wte.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )",
      number(64) + R"({"wte.weight":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}  )",
      number(70) + R"({"wte.weight":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}        )",
      number(100) +
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}                              )",
      number(100'000) + std::string(100'000, '['),
  };
  for (const std::string& bytes : bad) {
    const Ran ran = seeksim({"run", scenario, "--init", folder.write("bad", bytes)});
    EXPECT_EQ(ran.status, 2) << ran.out << ran.err;
    EXPECT_NE(ran.err.find("not the weights of this model"), std::string::npos) << ran.err;
  }
  // One byte changed anywhere in the header: refused, or still the same weights, but never a crash.
  for (std::size_t at = 0; at < 8 + header.size(); at += 7) {
    std::string bytes = good;
    bytes[at] = char(bytes[at] ^ 0x15);
    const int status = seeksim({"run", scenario, "--init", folder.write("bad", bytes), "--set", "steps=1", "--set",
                                "faults=[]", "--set", "checks=[]"})
                           .status;
    EXPECT_TRUE(status == 2 || status == 0) << "byte " << at << " gave " << status;
  }
}

TEST_F(Run, HostileBatchesAreToldNotTrusted) {
  EXPECT_EQ(seeksim({"run", scenario, "--save-batches", folder.file("good")}).status, 0);
  runtime::TensorBytes tokens = tensors("good")[0];
  const auto refused = [&](const runtime::TensorBytes& changed, const std::string& message) {
    const std::string file = folder.write("bad", runtime::write_safetensors({changed}));
    const Ran ran = seeksim({"run", scenario, "--set", "data={\"batches\":\"" + file + "\"}"});
    EXPECT_EQ(ran.status, 2);
    EXPECT_NE(ran.err.find(message), std::string::npos) << ran.err;
  };
  runtime::TensorBytes changed = tokens;
  changed.bytes[1] = 1;  // 256 and more
  refused(changed, "is not below the vocabulary of 256");
  changed = tokens;
  changed.bytes[3] = char(0x80);
  refused(changed, "is not below the vocabulary");
  changed = tokens;
  changed.name = "token";
  refused(changed, "there is no tensor \"tokens\"");
  changed = tokens;
  changed.shape = {8, 4, 9};
  refused(changed, "train_batch_size is 8");
  changed.shape = {32, 9};
  refused(changed, "int32 (steps, batch, 9) is wanted");
}

TEST_F(Run, AnOldReportIsKeptWhenANewOneCannotBeWritten) {
  const std::string file = folder.write("r.json", "old");
  EXPECT_EQ(seeksim({"run", scenario, "--report", file, "--set", "steps=1", "--report", file, "--seed", "x"}).status,
            2);
  EXPECT_EQ(read_all(file), "old");
  EXPECT_THROW(write_file(folder.file("no/r.json"), "new"), BadInput);
  write_file(file, "new");
  EXPECT_EQ(read_all(file), "new");
  for (const std::string& name : list_folder(folder.path())) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

TEST_F(Run, AReadOnlyFolderIsToldBeforeTheRun) {
  ::mkdir(folder.file("closed").c_str(), 0555);
  ::chmod(folder.path().c_str(), 0755);
  const bool root = ::geteuid() == 0;  // whom permissions do not stop
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "cannot become anybody but root";
  const Ran ran = seeksim({"run", scenario, "--report", folder.file("closed/r.json")});
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(ran.status, 2);
  EXPECT_EQ(ran.out, "") << "before anything runs";
  EXPECT_NE(ran.err.find("closed/r.json: cannot be written: Permission denied. Check its permissions."),
            std::string::npos)
      << ran.err;
}

// ---- golden --------------------------------------------------------------------------------------------------------

TEST_F(Run, AStoredGoldenIsUsedAndMayDisagree) {
  // golden/ beside the scenario counts.
  std::filesystem::create_directory(folder.file("golden"));
  const Scenario s = load_scenario(scenario);
  const std::string key = golden_key(s.train.definition);
  Golden golden = run_golden(s, key);
  const std::string file = "golden/" + golden_file_name(s, key);
  folder.write(file, dump(to_json(golden, s)));
  EXPECT_EQ(report_of({})["golden"]["stored"], true);
  EXPECT_EQ(seeksim({"golden", scenario, "--check"}).status, 0);
  golden.state.params ^= 1;
  folder.write(file, dump(to_json(golden, s)));
  report_of({}, 1);
  const Ran ran = seeksim({"golden", scenario, "--check"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("differs from"), std::string::npos);
  folder.write(file, "{");
  EXPECT_NE(report_of({}, 2)["problems"][0].get<std::string>().find("the file ends"), std::string::npos);
}

TEST_F(Run, GoldenCheckIsRedWithoutAStoredOne) {
  EXPECT_EQ(seeksim({"golden", scenario, "--check"}).status, 1);
  const Ran ran = seeksim({"golden", scenario, "--explain"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_NE(ran.out.find("\"contract\": \"numerics v1\""), std::string::npos);
}

// ---- several at once -----------------------------------------------------------------------------------------------

TEST_F(Run, SeveralArePrintedInOrderAndCounted) {
  const std::string bad = folder.write("bad.json", "{");
  const std::string report = folder.file("all.json"), junit = folder.file("all.xml");
  const Ran ran = seeksim(
      {"run", scenario, bad, scenario, "-j", "2", "--report", report, "--junit", junit, "--out", folder.file("out")});
  EXPECT_EQ(ran.status, 2) << "the worst of them";
  const std::size_t first = ran.out.find("PASS small"),
                    second = ran.out.find("bad.json:1:2: the file ends inside an object"),
                    third = ran.out.rfind("PASS small");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(ran.out.find("2 of 3 scenarios as expected"), std::string::npos) << ran.out;
  const Json all = Json::parse(read_all(report));
  ASSERT_EQ(all["runs"].size(), 3u);
  EXPECT_EQ(all["exit_code"], 2);
  EXPECT_EQ(all["runs"][0]["params_digest"], all["runs"][2]["params_digest"]);
  EXPECT_EQ(all["runs"][1]["verdict"], "bad_input");
  EXPECT_NE(read_all(junit).find("errors=\"1\""), std::string::npos);
  for (const char* file : {"out/small/report.json", "out/small-2/report.json", "out/report.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.file(file))) << file;
  }
}

TEST_F(Run, TheSchemaAmongTheScenariosIsLeftOut) {
  const Ran ran = seeksim({"run", scenario, "scenarios/schema.json", scenario});
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_NE(ran.out.find("2 of 2 scenarios"), std::string::npos);
}

TEST_F(Run, ACrashOfOneIsItsOwn) {
  const std::string endless = folder.write("endless.json", small_text_with(7, R"(  "steps": 100000000,)"));
  // In a process of its own, whose children may each take a second of CPU time: the kernel ends the first scenario.
  const auto both = [&] {
    rlimit second{1, RLIM_INFINITY};
    ::getrlimit(RLIMIT_CPU, &second);
    second.rlim_cur = 1;
    ::setrlimit(RLIMIT_CPU, &second);
    LoadOptions load;
    load.sets = {"faults=[]", "checks=[]"};
    std::string printed;
    const auto print = [&](std::string_view text) { printed += text; };
    const std::vector<Outcome> outcomes = run_all({{endless, {}}, {scenario, {}}}, load, 2, print);
    const bool fine = outcomes.size() == 2 && outcomes[0].status == ExitStatus::bug &&
                      printed.find("was ended by signal") != std::string::npos &&
                      outcomes[1].status == ExitStatus::as_expected;
    std::fputs(printed.c_str(), stderr);
    std::_Exit(fine ? 0 : 1);
  };
  EXPECT_EXIT(both(), ::testing::ExitedWithCode(0), "was ended by signal 24");
}

// ---- the other commands --------------------------------------------------------------------------------------------

TEST(Commands, ListAndDoctorAnswer) {
  for (const char* what : {"scenarios", "faults", "checks", "keys"}) {
    const Ran ran = seeksim({"list", what});
    EXPECT_EQ(ran.status, 0);
    EXPECT_GT(ran.out.size(), 500u) << what;
  }
  EXPECT_NE(seeksim({"list", "faults"}).out.find("collective_timeout"), std::string::npos);
  EXPECT_NE(seeksim({"list", "keys"}).out.find("faults.N.rank"), std::string::npos);
  EXPECT_LE(seeksim({"doctor"}).status, 1) << "1: a variable of this environment cannot mean what was intended";
  EXPECT_EQ(seeksim({"--help"}).status, 0);
  EXPECT_NE(seeksim({"--version"}).out.find("commit"), std::string::npos);
  EXPECT_NE(seeksim({"run", "--help"}).out.find("--verify-determinism"), std::string::npos);
}

TEST(Files, RealStorageKeepsWhatItIsGiven) {
  TemporaryFolder folder;
  runtime::PosixStorage storage(folder.path());
  storage.write("a/b/c", "hello");
  storage.sync("a/b/c");
  storage.rename("a/b/c", "a/d");
  storage.sync("a");
  EXPECT_EQ(storage.read("a/d"), "hello");
  EXPECT_FALSE(storage.exists("a/b/c"));
  EXPECT_EQ(storage.list("a"), (std::vector<std::string>{"b", "d"}));
  EXPECT_GT(storage.free_bytes("a"), 0u);
  storage.remove("a/d");
  EXPECT_FALSE(storage.exists("a/d"));
  for (const auto& wrong : std::vector<std::function<void()>>{
           [&] { storage.read("a/none"); }, [&] { storage.read("a"); }, [&] { storage.write("../x", ""); },
           [&] { storage.read("a/../../x"); }, [&] { storage.list("none"); }, [&] { storage.remove("none"); }}) {
    EXPECT_THROW(wrong(), runtime::SeamError);
  }
}

TEST(Files, TheWallClockGoesForward) {
  runtime::WallClock clock;
  const runtime::TimeNs before = clock.now();
  clock.sleep_until(before + runtime::kMillisecond);
  EXPECT_GE(clock.now(), before + runtime::kMillisecond);
  clock.sleep_until(0);  // long ago
}

TEST(NamesOfARedRun, AreWantedWhereBitsWereSeenToDiffer) {
  Outcome outcome;
  outcome.status = ExitStatus::check_failed;
  const auto wanted = [&](const Json& check) {
    outcome.report = {{"checks", Json::array({check})}};
    return wants_names(outcome);
  };
  EXPECT_TRUE(wanted({{"name", "golden:bitwise"}, {"ok", false}}));
  EXPECT_FALSE(wanted({{"name", "golden:bitwise"}, {"ok", false}, {"looked", false}})) << "the run stopped before";
  EXPECT_FALSE(wanted({{"name", "golden:bitwise"}, {"ok", true}}));
  EXPECT_FALSE(wanted({{"name", "culprit:5"}, {"ok", false}}));
}

}  // namespace
}  // namespace seeksim::harness
