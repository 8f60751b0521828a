#include "harness/torch/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/input/files.h"
#include "harness/input/reader.h"
#include "harness/input/schema.h"
#include "harness/loading/faults.h"
#include "harness/loading/reference.h"
#include "harness/torch/faults.h"
#include "harness/torch/judges.h"

namespace seeksim::harness::torch {
namespace {

using namespace shapes;

constexpr int kRanksMax = 64;

const Keys<RecordPlan>& record_keys() {
  static const Keys<RecordPlan> keys = {
      {"hashes", at(&RecordPlan::hashes), flag(), kNoBit, "Hash what each collective takes and gives."},
      {"norms", at(&RecordPlan::norms), flag(), kNoBit,
       "Norms of what collectives take and give; those of weights and gradients are always there."},
      {"stacks", at(&RecordPlan::stacks), flag(), kNoBit, "The script's frames behind each collective."},
      {"weights_every", at(&RecordPlan::weights_every), integer(0, 1'000'000), kNoBit,
       "A hash of each parameter that a forward pass used, every this many steps; 0: never."},
      {"gradients", at(&RecordPlan::gradients), flag(), kNoBit, "A hash of each gradient, as the optimizer gets it."},
      {"whole", at(&RecordPlan::whole), flag(), kNoBit,
       "Gather weights and gradients of tensor parallel layers, by collectives that the script does not make."},
      {"max_mib", at(&RecordPlan::max_mib), integer(1, 1 << 20), kNoBit,
       "Size limit of a rank's record, in MiB. What no longer fits is counted, and the run is red."},
  };
  return keys;
}

const Keys<Expect>& expect_keys() {
  static const Keys<Expect> keys = {
      {"check_fails", by_hand, either(text().length(1), list(text()).entries(1)), kNoBit,
       "This check fails, or all of these, and no other."},
  };
  return keys;
}

Json faults_of(const TorchScenario& scenario) {
  Json list = Json::array();
  for (const faults::Rule& rule : scenario.faults) list.push_back(harness::to_json(rule));
  return list;
}

Json checks_of(const TorchScenario& scenario) {
  Json list = Json::array();
  for (const CheckSpec& check : scenario.checks) list.push_back(check.text());
  return list;
}

Json expect_of(const TorchScenario& scenario) {
  if (scenario.expect.what != Expect::What::check_fails) return "pass";
  const std::vector<std::string> names = scenario.expect.names();
  return {{"check_fails", names.size() == 1 ? Json(names.front()) : Json(names)}};
}

void read_replicas(const Reader& torch, TorchPlan& plan) {
  const Json* groups = torch.find("replicas");
  if (groups == nullptr || !groups->is_array()) return;
  std::set<int> seen;
  for (const Json& group : *groups) {
    std::vector<int>& ranks = plan.replicas.emplace_back();
    for (const Json& one : group.is_array() ? group : Json::array()) {
      if (!one.is_number_integer()) return;  // the schema said so
      const std::int64_t rank = one.get<std::int64_t>();
      if (rank < 0 || rank >= plan.ranks) {
        torch.problem("replicas", fmt::format("there is no rank {}", rank),
                      fmt::format("Ranks go from 0 to {}.", plan.ranks - 1));
        return;
      }
      if (!seen.insert(int(rank)).second) {
        torch.problem("replicas", fmt::format("rank {} is there twice", rank), "Give each rank once.");
        return;
      }
      ranks.push_back(int(rank));
    }
  }
}

void read_rules(const Reader& top, TorchScenario& scenario) {
  const std::size_t before = top.findings().document().problems().size();
  for (const faults::Rule& rule : read_faults(top, {}, is_key_in_torch)) scenario.faults.push_back(as_in_torch(rule));
  if (scenario.faults.empty() || before != 0) return;
  if (scenario.torch.backend == Backend::own) {
    top.problem("faults", "torch's own backend injects none",
                "Use torch.backend \"seeksim\" or \"forwarded\", or leave the faults out.");
    return;
  }
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    std::set<std::string> said;
    if (scenario.faults[i].kind == faults::FaultKind::device_error && scenario.torch.backend == Backend::seeksim)
      top.findings().add(fmt::format("/faults/{}/kind", i), "device_error strikes NCCL, which this backend never calls",
                         "Use torch.backend \"forwarded\", on GPUs.");
    for (const faults::Problem& problem : problems_in_torch(scenario.faults[i], scenario.torch.ranks)) {
      if (said.insert(problem.key).second)
        top.findings().add(fmt::format("/faults/{}/{}", i, problem.key), problem.what, "");
    }
  }
}

void read_checks(const Reader& top, TorchScenario& scenario) {
  const Json* list = top.find("checks");
  if (list == nullptr || !list->is_array()) return;
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_string()) continue;  // the schema said so
    const std::string written = (*list)[i].get<std::string>();
    const std::size_t colon = written.find(':');
    const CheckSpec check{written.substr(0, colon), colon == std::string::npos ? "" : written.substr(colon + 1)};
    const CheckProblem wrong = problem_of(check, scenario.torch.ranks);
    if (wrong.what.empty())
      scenario.checks.push_back(check);
    else
      top.findings().add(fmt::format("/checks/{}", i), wrong.what, wrong.next);
  }
}

void read_expect(const Reader& top, TorchScenario& scenario) {
  const Json* expect = top.find("expect");
  if (expect == nullptr || (expect->is_string() && *expect == "pass")) return;
  if (expect->is_string()) {
    top.problem("expect", fmt::format("{} is not known", in_quotes(expect->get<std::string>())),
                "Use \"pass\" or {\"check_fails\": NAME}.");
    return;
  }
  const Json* wanted = top.child("expect").find("check_fails");
  if (wanted == nullptr) return;
  std::vector<std::string> names;
  if (wanted->is_string()) names.push_back(wanted->get<std::string>());
  for (const Json& one : wanted->is_array() ? *wanted : Json::array())
    if (one.is_string()) names.push_back(one.get<std::string>());
  const std::vector<std::string> known = judge_names();
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name.substr(0, name.find(':'))) != known.end()) continue;
    top.child("expect").problem("check_fails", fmt::format("there is no check {}", in_quotes(name)),
                                did_you_mean(name, known));
  }
  scenario.expect = {Expect::What::check_fails, fmt::format("{}", fmt::join(names, " "))};
}

// A file that is meant for simulated or launched ranks.
void refuse_other_scenarios(const Document& document) {
  if (document.json().contains("torch")) return;
  for (const char* key : {"model", "data", "world", "deepspeed", "steps"}) {
    if (!document.json().contains(key)) continue;
    throw BadInput(document.file(), fmt::format("it has \"{}\" and no \"torch\": seeksim trains this by itself", key),
                   "Run it with seeksim run, or write a scenario with \"torch\": {}.");
  }
}

void refuse_order(const Reader& torch, const TorchPlan& plan) {
  const bool own = plan.backend == Backend::own || plan.backend == Backend::forwarded;
  if (own && plan.sums != pytorch::SumOrder::canonical)
    torch.problem("sums", "the script's own backend has an order of its own",
                  "Use torch.backend \"seeksim\" or \"gathered\".");
  if (plan.backend == Backend::gathered && plan.sums > pytorch::SumOrder::rotated)
    torch.problem("sums", "this order needs parts of numbers that another backend does not carry",
                  "Use torch.backend \"seeksim\", or canonical, reversed or rotated.");
}

TorchScenario load(const Document& document, const std::optional<int>& np) {
  refuse_other_scenarios(document);
  TorchScenario scenario;
  scenario.file = document.file();
  Findings findings(document);
  for (const SchemaProblem& problem : explain(torch_scenario_schema(), document.json())) {
    const bool other = problem.pointer == "/model" || problem.pointer == "/data" || problem.pointer == "/world";
    findings.add(problem.pointer, other ? "the script brings it: a scenario has this or \"torch\"" : problem.what,
                 other ? "Leave it out, or leave \"torch\" out and use seeksim run." : problem.next);
  }
  const Reader top(document.json(), "", findings);
  torch_scenario_keys().read(top, scenario);
  const Reader torch = top.child("torch");
  torch_keys().read(torch, scenario.torch);
  scenario.torch.ranks = std::clamp(scenario.torch.ranks, 1, kRanksMax);
  if (np && torch.has("np") && *np != scenario.torch.ranks) {
    torch.problem("np", fmt::format("{} ranks, and --np says {}", scenario.torch.ranks, *np),
                  "Give one of the two, or --set torch.np=N.");
  }
  if (np) scenario.torch.ranks = *np;
  refuse_order(torch, scenario.torch);
  read_replicas(torch, scenario.torch);
  read_rules(top, scenario);
  read_checks(top, scenario);
  read_expect(top, scenario);
  if (!findings.empty()) throw BadInput(findings.take());
  return scenario;
}

}  // namespace

std::string_view name(Backend backend) {
  constexpr std::string_view kNames[] = {"seeksim", "forwarded", "gathered", "own"};
  return kNames[std::size_t(backend)];
}

const Keys<TorchPlan>& torch_keys() {
  static const Keys<TorchPlan> keys = {
      {"np", at(&TorchPlan::ranks), integer(1, kRanksMax), kNoBit, "Ranks, each a process; of all hosts together."},
      {"timeout_s", at(&TorchPlan::timeout_s), number().above(0).most(1e6), kNoBit,
       "How long a rank waits in a collective for the others, in seconds. Then the waiting ranks raise "
       "torch.distributed.DistBackendError and the run is red."},
      {"stall_s", at(&TorchPlan::stall_s), number().least(0).most(1e6).standard(0), kNoBit,
       "If no rank recorded, printed or computed anything for this many seconds, the run is ended as hung. 0: twice "
       "timeout_s and ten seconds more."},
      {"seed", at(&TorchPlan::seed), integer(0, kExact), kNoBit, "Of the random draws of faults with a probability."},
      {"backend", in_words(&TorchPlan::backend), choice(words_of<Backend>()), kNoBit,
       "seeksim: its own, which sums in rank order, injects faults and compares what the ranks mean. forwarded: the "
       "same before the script's own backend (gloo, NCCL), which carries the data and adds it up. gathered: the "
       "script's own carries, and sums are in rank order. own: torch's; losses and weights are recorded, collectives "
       "are not."},
      {"sums", in_words(&TorchPlan::sums), choice(words_of<pytorch::SumOrder>()), kNoBit,
       "In which order sums over ranks add. All but canonical are there to measure how far another order of summation "
       "moves a training: see docs/layouts.md."},
      {"record", inside(record_keys(), &TorchPlan::record), record_keys().shape(), kNoBit, "What is written down."},
      {"replicas",
       Binding<TorchPlan>{{},
                          [](const TorchPlan& plan) { return Json(plan.replicas); },
                          [](const TorchPlan& plan) { return !plan.replicas.empty(); }},
       list(list(integer(0)).entries(1)).unset(), kNoBit,
       "Groups of ranks that hold the same weights, for replicas_equal; without it all ranks do. With tensor or "
       "pipeline parallelism: [[0, 2], [1, 3]]."},
  };
  return keys;
}

const Keys<TorchScenario>& torch_scenario_keys() {
  static const Keys<TorchScenario> keys = {
      {"$schema", by_hand, text(), kNoBit, "Path of this schema, for editors. Not read."},
      {"name", at(&TorchScenario::name), text().length(1, 100).unset(), kNoBit, "What reports call the run."},
      {"why", at(&TorchScenario::why).when([](const TorchScenario& s) { return !s.why.empty(); }), text().unset(),
       kNoBit, "What this scenario shows, in a sentence."},
      {"torch", written_as<TorchScenario>([](const TorchScenario& s) { return torch_keys().written(s.torch); }),
       torch_keys().shape().required(), kNoBit, "How the script runs, in place of model, data and world."},
      {"faults", written_as<TorchScenario>(faults_of), list(rule_keys().shape()).standard(Json::array()), kNoBit,
       "What breaks, in the words of every scenario. One that never fires makes the run red."},
      {"checks", written_as<TorchScenario>(checks_of), list(text()).standard(Json::array()), kNoBit,
       "What must hold beside what is always judged: culprit:RANKS, loss_falls."},
      {"expect", written_as<TorchScenario>(expect_of),
       either(text(), expect_keys().shape().keys(1, 1)).standard("pass"), kNoBit,
       "\"pass\", or what must go red: {\"check_fails\": NAME}. Exit status 0 if and only if it is met."},
  };
  return keys;
}

const Json& torch_scenario_schema() {
  static const Json schema = [] {
    Json head = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "seeksim torch scenario"},
                 {"description", "One idea: what breaks in a PyTorch script, and what must hold afterwards."}};
    head.update(torch_scenario_keys().shape().schema());
    return head;
  }();
  return schema;
}

std::string torch_schema_text() { return schema_text(torch_scenario_schema()); }

TorchScenario load_torch_scenario(const std::string& file, const std::vector<std::string>& sets,
                                  const std::optional<int>& np) {
  if (file.empty()) return load_torch_scenario_text(R"({"torch": {}})", "the defaults", sets, np);
  return load(Document::load(file, sets), np);
}

TorchScenario load_torch_scenario_text(std::string_view text, const std::string& file,
                                       const std::vector<std::string>& sets, const std::optional<int>& np) {
  return load(Document::from_text(text, file, sets), np);
}

Json to_json(const TorchScenario& scenario) { return torch_scenario_keys().written(scenario); }

}  // namespace seeksim::harness::torch
