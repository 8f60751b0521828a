#include "harness/torch/hunt/state.h"

#include <nlohmann/json.hpp>

#include "harness/input/document.h"
#include "harness/input/problem.h"

namespace seeksim::harness::torch {
namespace {

Json refusal_json(const Refusal& one) { return {{"case", one.part}, {"words", one.words}, {"times", one.times}}; }

Json finding_json(const HuntFinding& one) {
  return {{"signature", one.key},
          {"case", case_text(one.drawn)},
          {"first", case_text(one.first)},
          {"number", one.number},
          {"times", one.times},
          {"shown", one.shown},
          {"check", one.check},
          {"text", one.text},
          {"where", one.where},
          {"expected", one.expected},
          {"why", one.why},
          {"script", one.script}};
}

HuntFinding finding_of(const Json& json) {
  HuntFinding one;
  one.key = json.at("signature");
  one.drawn = case_of(json.at("case"));
  one.first = case_of(json.at("first"));
  one.number = json.at("number");
  one.times = json.at("times");
  one.shown = json.at("shown");
  one.check = json.at("check");
  one.text = json.at("text");
  one.where = json.at("where");
  one.expected = json.at("expected");
  one.why = json.at("why");
  one.script = json.at("script");
  return one;
}

HuntOf of_json(const Json& json) {
  HuntOf of;
  of.torch = json.at("torch");
  of.frameworks = json.at("frameworks").get<Versions>();
  of.seed = json.at("seed");
  of.only = json.at("only").get<std::vector<std::string>>();
  of.imports = json.at("imports").get<std::vector<std::string>>();
  return of;
}

void read(const Json& json, HuntState& state, Coverage& coverage) {
  state.number = json.at("number");
  state.runs = json.at("runs");
  state.wall_s = json.at("wall_s");
  state.processor_s = json.at("processor_s");
  state.ends = json.at("ends").get<std::map<std::string, int>>();
  state.known = json.at("known").get<std::map<std::string, int>>();
  for (const Json& one : json.at("refusals"))
    state.refusals.push_back({one.at("case").get<Case>(), one.at("words"), one.at("times")});
  for (const Json& one : json.at("found")) state.found.push_back(finding_of(one));
  for (const Refusal& one : state.refusals) coverage.refuse(one.part);
  for (const Json& pair : json.at("covered")) coverage.add(pair.get<std::string>());
}

}  // namespace

Json to_json(const HuntState& state, const Coverage& coverage) {
  Json refusals = Json::array(), found = Json::array();
  for (const Refusal& one : state.refusals) refusals.push_back(refusal_json(one));
  for (const HuntFinding& one : state.found) found.push_back(finding_json(one));
  int cases = 0;
  for (const auto& [end, count] : state.ends) cases += count;
  return {{"schema", kHuntSchema},
          {"torch", state.of.torch},
          {"frameworks", state.of.frameworks},
          {"seed", state.of.seed},
          {"only", state.of.only},
          {"imports", state.of.imports},
          {"number", state.number},
          {"cases", cases},
          {"runs", state.runs},
          {"wall_s", state.wall_s},
          {"processor_s", state.processor_s},
          {"ends", state.ends},
          {"known", state.known},
          {"pairs", {{"covered", coverage.covered().size()}, {"possible", coverage.possible()}}},
          {"refusals", refusals},
          {"found", found},
          {"covered", coverage.covered()}};
}

void load_state(const std::string& file, HuntState& state, Coverage& coverage) {
  const Json json = Document::load(file).json();
  if (!json.is_object() || json.value("schema", "") != kHuntSchema)
    throw BadInput(file, "it is no state of a hunt", "Use another --out.");
  try {
    if (!(of_json(json) == state.of))
      throw BadInput(file, "it is of another hunt: other releases, or another --seed, --only or --import",
                     "Use another --out.");
    read(json, state, coverage);
  } catch (const Json::exception& wrong) {
    throw BadInput(file, std::string("it cannot be read: ") + wrong.what(), "Use another --out.");
  }
}

}  // namespace seeksim::harness::torch
