// Loading: every problem of a scenario, each with its line and the next thing to do.
#include <rapidcheck.h>

#include <filesystem>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

TEST(Loading, TheSmallScenarioIsFine) { EXPECT_EQ(problems_of(small_text()), ""); }

struct Case {
  int line;             // of the small scenario that is replaced
  std::string text;     // by this
  std::string message;  // and the problem that is then reported
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {2, R"(  "nmae": "small",)", "s.json:2: nmae: unknown key \"nmae\". Did you mean \"name\"?"},
      {2, R"(  "nmae": "small",)", "s.json:1: the key \"name\" is missing"},
      {2, R"(  "name": "a/b",)", "s.json:2: name: \"a/b\" cannot name files"},
      {2, R"(  "name": 3,)", "s.json:2: name: a string was expected, found an integer \"3\""},
      {2, R"(  "name": "",)", "s.json:2: name: an empty string"},
      {2, R"(  "name": "small", "seed": -1,)", "s.json:2: seed: -1 is out of range: it must be at least 0"},
      {3, R"(  "model": { "layers": 1, "width": 15, "heads": 2, "context": 8, "vocab": 256 },)",
       "s.json:3: model.width: 15 is not a multiple of 2 heads. For example 14."},
      {3, R"(  "model": { "layers": "1", "width": 16, "heads": 2, "context": 8, "vocab": 256 },)",
       "s.json:3: model.layers: an integer was expected, found a string \"1\". Write it without quotes."},
      {3, R"(  "model": { "layers": 1.5, "width": 16, "heads": 2, "context": 8, "vocab": 256 },)",
       "model.layers: an integer was expected, found a number"},
      {3, R"(  "model": { "width": 16, "heads": 2, "context": 8, "vocab": 256 },)",
       "s.json:3: model: the key \"layers\" is missing. Add it: Transformer blocks."},
      {3, R"(  "model": { "family": "gpt3", "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256 },)",
       "model.family: \"gpt3\" is not one of: gpt2, llama"},
      {3,
       R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "frozen": ["wte.wieght"] },)",
       "s.json:3: model.frozen.0: no parameter of this model is called \"wte.wieght\". Did you mean \"wte.weight\"?"},
      {3, R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "frozen": ["h.1.*"] },)",
       "model.frozen.0: no parameter of this model is called \"h.1.*\""},
      {3, R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "frozen": ["*"] },)",
       "s.json:3: model.frozen: all 16 parameters are frozen. Leave one to be trained."},
      {3, R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "frozen": "wte.weight" },)",
       "model.frozen: a list [...] was expected"},
      {3, R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "kv_heads": 1 },)",
       "s.json:3: model.kv_heads: a GPT-2 has none. Remove it, or set \"family\" to \"llama\"."},
      {3,
       R"(  "model": { "family": "llama", "layers": 1, "width": 18, "heads": 3, "kv_heads": 2, "context": 8, "vocab": 256 },)",
       "s.json:3: model.kv_heads: 3 heads are no whole number of groups for 2 of keys. Use a divisor of \"heads\"."},
      {3, R"(  "model": { "family": "llama", "layers": 1, "width": 15, "heads": 3, "context": 8, "vocab": 256 },)",
       "s.json:3: model.width: heads of 5 have no two halves for rotary positions. For example 18."},
      {3,
       R"(  "model": { "family": "llama", "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "frozen": ["wte.weight"] },)",
       "model.frozen.0: no parameter of this model is called \"wte.weight\""},
      {3, R"(  "model": 7,)", "s.json:3: model: an object {...} or a string was expected, found an integer"},
      {3, R"(  "model": { "layers": 256, "width": 900000, "heads": 2, "context": 8, "vocab": 256 },)",
       "s.json:5: world: about "},
      {3,
       R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256, "init": "nowhere.safetensors" },)",
       "s.json:3: there is no file \"nowhere.safetensors\""},
      {4, R"(  "data": {},)", "s.json:4: data: no training data is given"},
      {4, R"(  "data": { "text": "no/such/file.txt" },)", "s.json:4: data.text: there is no file \"no/such/file.txt\""},
      {4, R"(  "data": { "text": "golden" },)", "golden cannot be read: it is a folder"},
      {4, R"(  "data": { "text": "/dev/null" },)", "it is not a regular file"},
      {4, R"(  "data": { "text": "golden/corpus.txt", "synthetic": true },)", "more than one data source is given"},
      {4, R"(  "data": { "batches": "golden/corpus.txt" },)",
       "data.batches: \"golden/corpus.txt\" cannot be trained on"},
      {5, R"(  "world": { "nodes": 2, "ranks_per_node": 2, "network": "infiniband" },)",
       "s.json:5: world.network: \"infiniband\" is not one of: ideal, nvlink, pcie, ib, tcp"},
      {5, R"(  "world": { "nodes": 2, "ranks_per_node": 2, "netwrok": "ib" },)",
       "s.json:5: world.netwrok: unknown key \"netwrok\". Did you mean \"network\"?"},
      {5, R"(  "world": { "nodes": 2, "ranks_per_node": 2, "pipeline": 2 },)",
       "s.json:5: world.pipeline: 1 layers do not make 2 pieces of a pipeline"},
      {5, R"(  "world": { "nodes": 0, "ranks_per_node": 2 },)",
       "s.json:5: world.nodes: 0 is out of range: it must be at least 1"},
      {5, R"(  "world": { "nodes": 90000, "ranks_per_node": 90000 },)",
       "s.json:5: world: 90000 x 90000 = 8100000000 ranks are more than"},
      {6, R"(  "deepspeed": "no_such_config.json",)", "s.json:6: there is no file \"no_such_config.json\""},
      {6, R"(  "deepspeed": { "train_batch_size": 8, "fp16": { "enabeld": true } },)",
       "s.json:6: deepspeed.fp16.enabeld: unknown key \"enabeld\". Did you mean \"enabled\"?"},
      {7, R"(  "steps": 0,)", "s.json:7: steps: 0 is out of range: it must be at least 1"},
      {7, R"(  "steps": 1e30,)", "s.json:7: steps: an integer was expected"},
      {7, R"(  "steps": null,)", "s.json:7: steps: an integer was expected, found null"},
      {7, R"(  "steps": 4, "decay": "some",)", "s.json:7: decay: \"some\" is not one of: matrices, all"},
      {7, R"(  "steps": 4, "numerics": "loose",)", "s.json:7: numerics: \"loose\" is not one of: exact, shapes, fast"},
      {7, R"(  "steps": 4, "golden": { "skip_steps": [4] },)", "golden.skip_steps: there is no step 4"},
      {7, R"(  "steps": 4, "lr_table": [],)", "s.json:7: lr_table: a list of at least 1 was expected, found 0"},
      {7, R"(  "steps": 4, "steps": 5,)", "s.json:7: steps: this key is here twice"},
      {8, R"(  "faults": [ { "kind": "colective_timeout", "rank": 2 } ],)",
       "s.json:8: faults.0.kind: there is no fault \"colective_timeout\". Did you mean \"collective_timeout\"?"},
      {8, R"(  "faults": [ { "rank": 2 } ],)", "s.json:8: faults.0: the key \"kind\" is missing"},
      {8, R"(  "faults": [ { "kind": "collective_timeout", "rank": 4 } ],)",
       "s.json:8: faults.0.rank: ranks go from 0 to 3"},
      {8, R"(  "faults": [ { "kind": "collective_timeout", "op": "allreduce" } ],)",
       "s.json:8: faults.0.op: there is no operation \"allreduce\". Did you mean \"all_reduce\"?"},
      {8, R"(  "faults": [ { "kind": "collective_timeout", "phase": "forwards" } ],)",
       "faults.0.phase: there is no phase \"forwards\". Did you mean \"forward\"?"},
      {8, R"(  "faults": [ { "kind": "collective_timeout", "bit": 3 } ],)",
       "s.json:8: faults.0.bit: means nothing for collective_timeout. Its keys: rank, step"},
      {8, R"(  "faults": [ { "kind": "collective_timeout", "rnk": 3 } ],)",
       "s.json:8: faults.0.rnk: unknown key \"rnk\". Did you mean \"rank\"?"},
      {8, R"(  "faults": [ { "kind": "collective_timeout", "mode": "lat" } ],)",
       "faults.0.mode: \"lat\" is not one of"},
      {8, R"(  "faults": [ { "kind": "link_drop" } ],)", "s.json:8: faults.0.link: give the link"},
      {8, R"(  "faults": [ { "kind": "link_drop", "link": { "from": 0, "to": 0 } } ],)",
       "a link has two different ends"},
      {8, R"(  "faults": [ { "kind": "link_drop", "link": { "nodes": [0, 2] } } ],)",
       "faults.0.link: nodes go from 0 to 1"},
      {8, R"(  "faults": [ { "kind": "link_drop", "link": { "nodes": [0, 1], "from": 1 } } ],)",
       "names both ranks and nodes"},
      {8, R"(  "faults": [ { "kind": "message_drop", "at_s": 1e300 } ],)",
       "faults.0.at_s: 1e+300 seconds are more than a run can last"},
      {8, R"(  "faults": [ { "kind": "message_drop", "probability": 0 } ],)",
       "faults.0.probability: 0 is out of range: it must be greater than 0"},
      {8, R"(  "faults": [ { "kind": "message_drop", "step": -1 } ],)", "faults.0.step: -1 is out of range"},
      {8, R"(  "faults": [ { "kind": "rank_crash", "rank": 1, "signal": "exit:256" } ],)",
       "s.json:8: faults.0.signal: \"exit:256\" ends no process: give kill, segv, abrt, or exit:N with N from 0 to "
       "255"},
      {8, R"(  "faults": [ { "kind": "rank_crash", "rank": 1, "signal": 9 } ],)",
       "faults.0.signal: a string was expected"},
      {8, R"(  "faults": [ { "kind": "pause", "rank": 1, "delay_s": 1, "signal": "kill" } ],)",
       "s.json:8: faults.0.signal: means nothing for pause"},
      {8, R"(  "faults": [ { "kind": "data_error", "sample": -1 } ],)", "faults.0.sample: -1 is out of range"},
      {8, R"(  "faults": [ { "kind": "bit_flip", "sample": 1 } ],)",
       "s.json:8: faults.0.sample: means nothing for bit_flip"},
      {8, R"(  "faults": { "kind": "message_drop" },)", "s.json:8: faults: a list [...] was expected, found an object"},
      {9, R"(  "recovery": { "policy": "stop", "memory_ladder": true },)",
       "s.json:9: recovery.memory_ladder: the policy is to stop, so there is nothing to try"},
      {9, R"(  "recovery": { "policy": "restart" },)",
       "s.json:9: recovery.policy: \"restart\" is not one of: stop, retry_step, rebuild_and_redo"},
      {9, R"(  "recovery": { "watchdog": 60 },)",
       "s.json:9: recovery.watchdog: unknown key \"watchdog\". Did you mean \"watchdog_s\"?"},
      {9, R"(  "recovery": { "watchdog_s": 0 },)", "recovery.watchdog_s: 0 is out of range: it must be greater than 0"},
      {9, R"(  "recovery": { "watchdog_s": "600" },)",
       "recovery.watchdog_s: a number was expected, found a string \"600\". Write it without quotes."},
      {10, R"(  "checks": [ "golden:bitwse" ])",
       "s.json:10: checks.0: golden is compared bitwise: write golden:bitwise"},
      {10, R"(  "checks": [ "ranks_agre" ])",
       "s.json:10: checks.0: there is no check \"ranks_agre\". Did you mean \"ranks_agree\"?"},
      {10, R"(  "checks": [ "culprit:9" ])", "s.json:10: checks.0: culprit names rank 9, and ranks go from 0 to 3"},
      {10, R"(  "checks": [ "culprit" ])", "culprit names ranks; \"\" is none. For example culprit:5 | link:1->0."},
      {10, R"(  "checks": [ "culprit:link:1" ])", "culprit names a link as link:FROM->TO"},
      {10, R"(  "checks": [ { "recoveries": "one" } ])", "s.json:10: checks.0.recoveries: an integer was expected"},
      {10, R"(  "checks": [ { "recoverys": 1 } ])",
       "checks.0.recoverys: unknown key \"recoverys\". Did you mean \"recoveries\"?"},
      {10, R"(  "checks": [ 5 ])", "s.json:10: checks.0: a string or an object {...} was expected"},
      {10, R"(  "checks": [ "no_recovery" ], "expect": "fail")",
       "s.json:10: expect: \"fail\" is not known. Use \"pass\""},
      {10, R"(  "checks": [ "no_recovery" ], "expect": { "check_fails": "ranks_agree" })",
       "s.json:10: expect.check_fails: no check \"ranks_agree\" is made here"},
      {10, R"(  "checks": [ "no_recovery" ], "expect": { "stop": "x" })",
       "expect.stop: unknown key \"stop\". Did you mean \"stops\"?"},
  };
  return all;
}

// Names of parameters are made for so many; what is cut into ways asks for each of them.
TEST(Loading, MoreLayersThanHaveNamesAreBadInput) {
  for (const char* layers : {"257", "300", "1000000000000"}) {
    const std::string found = problems_of(small_text(), {std::string("model.layers=") + layers, "world.tensor=2"});
    EXPECT_NE(found.find(std::string(layers) + " is out of range: it must be at most 256"), std::string::npos) << found;
  }
  EXPECT_EQ(problems_of(small_text(), {"model.layers=256"}), "");
}

TEST(Loading, TellsEachProblemWithItsLine) {
  for (const Case& one : cases()) {
    const std::string found = problems_of(small_text_with(one.line, one.text));
    EXPECT_NE(found.find(one.message), std::string::npos)
        << one.text << "\n  gave: " << found << "\n  not:  " << one.message;
  }
}

TEST(Loading, TellsAllProblemsAtOnce) {
  std::string text =
      small_text_with(3, R"(  "model": { "layer": 1, "width": 15, "heads": 2, "context": 8, "vocab": 256 },)");
  text.replace(text.find("\"steps\": 4"), 10, "\"stepz\": 0");
  text.replace(text.find("\"rank\": 2"), 9, "\"rank\": 9");
  const std::string found = problems_of(text);
  for (const char* part : {"s.json:3: model.layer: unknown key", "s.json:3: model: the key \"layers\" is missing",
                           "s.json:3: model.width: 15", "s.json:7: stepz: unknown key",
                           "s.json:1: the key \"steps\" is missing", "s.json:8: faults.0.rank: ranks go from"}) {
    EXPECT_NE(found.find(part), std::string::npos) << part << " is missing in:\n" << found;
  }
}

TEST(Loading, AFileIsTriedInSeveralFolders) {
  TemporaryFolder folder;
  folder.write("prose.txt", std::string(100, 'x'));
  const std::string file = folder.write("s.json", small_text_with(4, R"(  "data": { "text": "prose.txt" },)"));
  EXPECT_EQ(load_scenario(file).train.definition.data.bytes.size(), 100u);
  EXPECT_GT(
      load_scenario_text(small_text_with(4, R"(  "data": { "text": "golden/corpus.txt" },)"), folder.file("s.json"))
          .train.definition.data.bytes.size(),
      60'000u)
      << "from seeksim's own folder";
}

TEST(Loading, RefusesTextsThatCannotBeTrainedOn) {
  TemporaryFolder folder;
  const auto problem = [&](const std::string& name) {
    return problems_of(small_text_with(4, "  \"data\": { \"text\": \"" + folder.file(name) + "\" },"));
  };
  folder.write("empty.txt", "");
  folder.write("short.txt", "12345678");
  EXPECT_NE(problem("empty.txt").find("is empty"), std::string::npos);
  EXPECT_NE(problem("short.txt").find("holds 8 bytes; one sample takes context + 1 = 9"), std::string::npos);
  folder.write("enough.txt", "123456789");
  EXPECT_EQ(problem("enough.txt"), "");
  const std::string small_vocabulary =
      small_text_with(3, R"(  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 255 },)");
  EXPECT_EQ(problems_of(small_vocabulary), "") << "synthetic tokens need no 256";
  EXPECT_NE(problems_of(small_vocabulary, {"data={\"text\":\"" + folder.file("enough.txt") + "\"}"})
                .find("s.json:3: model.vocab: 255 is too small for a text"),
            std::string::npos);
}

// ---- --set ---------------------------------------------------------------------------------------------------------

// What bench/ times is loaded by no other test: a check that was renamed kept a step from being timed on a GPU.
TEST(Loading, TakesTheScenariosOfBench) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator("bench")) {
    if (entry.path().extension() != ".json") continue;
    ++seen;
    EXPECT_NO_THROW(load_scenario(entry.path())) << entry.path();
  }
  EXPECT_GE(seen, 6);
}

TEST(Set, ChangesValuesByPath) {
  LoadOptions options;
  options.sets = {"faults.0.rank=3",        "steps=9",
                  "recovery.policy=stop",   "checks.3=no_recovery",
                  "checks.2=\"culprit:1\"", "deepspeed.optimizer.params.lr=0.5",
                  "why=a text with spaces", "expect={\"check_fails\":\"no_recovery\"}",
                  "world.device.tflops=100"};
  const Scenario s = load_scenario_text(small_text(), "s.json", options);
  EXPECT_EQ(s.faults[0].when.rank, 3);
  EXPECT_EQ(s.train.definition.steps, 9);
  EXPECT_EQ(s.train.recovery.policy, runtime::RecoveryPolicy::stop);
  EXPECT_EQ(s.checks[2].text(), "culprit:1");
  EXPECT_EQ(s.checks[3].text(), "no_recovery");
  EXPECT_EQ(s.train.definition.optimizer.lr, 0.5);
  EXPECT_EQ(s.why, "a text with spaces");
  EXPECT_EQ(s.expect.what, Expect::What::check_fails);
  EXPECT_EQ(s.world.device.flops_per_ns, 100e3);
}

TEST(Set, NamesTheOptionWhenItIsToBlame) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"steps=0", "--set steps=0: steps: 0 is out of range"},
      {"steps=many", "--set steps=many: steps: an integer was expected, found a string \"many\""},
      {"stpes=3", "--set stpes=3: stpes: unknown key \"stpes\". Did you mean \"steps\"?"},
      {"recovry.policy=stop",
       "--set recovry.policy=stop: recovry: unknown key \"recovry\". Did you mean \"recovery\"?"},
      {"faults.0.rank=17", "--set faults.0.rank=17: faults.0.rank: ranks go from 0 to 3"},
      {"faults.5.rank=1",
       "--set faults.5.rank=1: \"faults\" is a list of 1, and \"5\" is no place in it. Use a number from 0 to 1"},
      {"faults.first.rank=1", "\"first\" is no place in it"},
      {"steps.more=1", "--set steps.more=1: \"steps\" is a plain value, so it has no \"more\""},
      {"steps", "--set steps: a key and a value are expected"},
      {"=3", "--set =3: a key and a value are expected"},
      {"model..width=3", "a part of the key is empty"},
      {"sweep.seed.0=\xff", "the option is not UTF-8"},  // as JSON, it could not be written
      {"sweep.s\xc3=[1]", "the option is not UTF-8"},
      {"faults=[{\"kind\":", "--set faults=[{\"kind\":: the file ends in the middle"},
      {"data={\"text\":\"no_such_file\"}", "--set data={\"text\":\"no_such_file\"}: data.text: there is no file"},
      {"data.text=golden/corpus.txt", "s.json:4: data: more than one data source is given"},
      {"deepspeed=nowhere.json", "--set deepspeed=nowhere.json: there is no file \"nowhere.json\""},
      {"deepspeed.train_batch_size=9",
       "--set deepspeed.train_batch_size=9: deepspeed.train_batch_size: Check batch related parameters."},
  };
  for (const auto& [set, message] : table) {
    const std::string found = problems_of(small_text(), {set});
    EXPECT_NE(found.find(message), std::string::npos) << set << "\n  gave: " << found << "\n  not:  " << message;
  }
}

TEST(Set, LaterOnesWin) {
  EXPECT_EQ(problems_of(small_text(), {"steps=0", "steps=3"}), "");
  EXPECT_NE(problems_of(small_text(), {"faults.0.rank=1", "faults=[{\"kind\":\"nonsense\"}]"}).find("--set faults=[{"),
            std::string::npos);
}

// ---- anything at all -----------------------------------------------------------------------------------------------

TEST(Loading, NeverCrashesOnDamagedScenarios) {
  const std::string good = small_text();
  EXPECT_TRUE(rc::check([&good]() {
    std::string text = good;
    const int edits = *rc::gen::inRange(1, 4);
    for (int i = 0; i < edits; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      switch (*rc::gen::inRange(0, 5)) {
        case 0:
          text.erase(at, 1);
          break;
        case 1:
          text[at] = *rc::gen::arbitrary<char>();
          break;
        case 2:
          text.insert(at, 1, *rc::gen::elementOf(std::string("{}[],:\"0123456789-.e\\tfn")));
          break;
        case 3:
          text.resize(at);
          break;
        default:
          text.insert(at, text.substr(*rc::gen::inRange<std::size_t>(0, text.size()), 12));
          break;
      }
      if (text.empty()) text = " ";
    }
    problems_of(text);  // throws nothing but BadInput
  }));
}

}  // namespace
}  // namespace seeksim::harness
