#include "harness/explain/named_by_checks.h"

#include <algorithm>
#include <regex>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct RedCheck {
  std::string name, detail;
};

// Those that looked at something and are red.
std::vector<RedCheck> red_of(const Json& report) {
  std::vector<RedCheck> red;
  for (const Json& check : report.value("checks", Json::array())) {
    if (check.value("ok", true) || !check.value("looked", true)) continue;
    const std::string name = check.value("name", "");
    red.push_back({name.substr(0, name.find(':')), check.value("detail", "")});
  }
  return red;
}

const RedCheck* find(const std::vector<RedCheck>& red, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto found = std::find_if(red.begin(), red.end(), [&](const RedCheck& one) { return one.name == name; });
    if (found != red.end()) return &*found;
  }
  return nullptr;
}

// Where in a step the runtime calls what is named by its kind alone.
std::string_view phase_of(std::string_view kind) {
  if (kind == "send_activation") return "forward";
  if (kind == "send_gradient") return "backward";
  if (kind == "publish") return "publish";
  if (kind == "all_reduce" || kind == "reduce_scatter" || kind == "all_gather" || kind == "tied_gradient")
    return "grad_reduce";
  return "";
}

void forget_operation(Names& names) {
  names.culprit.reset();
  names.phase.clear();
  names.kind.clear();
  names.tensor.clear();
}

void told_by(const RedCheck& check, Mistake mistake, Names& names) {
  names.mistake = mistake;
  names.check = check.name;
  names.detail = check.detail;
}

// By the check and its words alone: what values show is a consequence.
void told_alone(const RedCheck& check, Mistake mistake, Names& names) {
  forget_operation(names);
  told_by(check, mistake, names);
  operation_in(check.detail, names);
}

bool machine_failed(const Scenario& scenario, const Json& report) {
  const Json faults = report.value("faults", Json::array());
  for (std::size_t i = 0; i < faults.size() && i < scenario.faults.size(); ++i) {
    if (faults[i].value("fired", 0) > 0) return true;
  }
  return false;
}

// What is not about values, or about when they may be used. True: it is told.
bool heed_structure(const std::vector<RedCheck>& red, Names& names) {
  if (const RedCheck* check = find(red, {"no_races"})) return told_alone(*check, Mistake::order, names), true;
  if (const RedCheck* check = find(red, {"collectives_match"}))
    return told_alone(*check, Mistake::matching, names), true;
  if (const RedCheck* check = find(red, {"partition"})) {
    forget_operation(names);
    return told_by(*check, Mistake::placement, names), true;
  }
  if (const RedCheck* check = find(red, {"checkpoints_valid"})) {
    forget_operation(names);
    return told_by(*check, Mistake::state, names), true;
  }
  return false;
}

// Steps that some commit and others do not, or twice, or though they should not.
bool heed_history(const std::vector<RedCheck>& red, bool joined, Names& names) {
  const RedCheck* const golden = find(red, {"golden"});
  if (golden != nullptr && has(golden->detail, "which the golden skips")) {
    forget_operation(names);
    return told_by(*golden, Mistake::agreement, names), true;
  }
  const RedCheck* const check = find(red, {"one_history"});
  if (check == nullptr || joined) return false;
  const RedCheck* const files = find(red, {"no_recovery"});
  if (files != nullptr && has(files->detail, "failed: io")) {
    forget_operation(names);
    return told_by(*files, Mistake::state, names), true;
  }
  const bool known = names.culprit && !names.culprit->struck;
  if (has(check->detail, "learning rate")) {  // which only updates use
    if (known) return true;                   // and this one tells more
    told_by(*check, Mistake::update, names);
    names.phase = "optimizer";
    names.kind = "compute";
    return true;
  }
  const bool by_numbers = has(check->detail, "loss scale") && known;
  if (!by_numbers) forget_operation(names);
  told_by(*check, Mistake::agreement, names);
  return true;
}

bool heed_poison(const std::vector<RedCheck>& red, Names& names) {
  const RedCheck* const check = find(red, {"no_poison"});
  if (check == nullptr) return false;
  const bool gradients = has(check->detail, "'gradient"), activations = has(check->detail, " (activations, ");
  const Mistake mistake = gradients ? Mistake::reduction : activations ? Mistake::forward : Mistake::publication;
  told_by(*check, mistake, names);
  if (!names.culprit) operation_in(check->detail, names);  // the one that reads
  return true;
}

// Ranks that wait for ever, or end without having come to the end.
bool heed_end(const std::vector<RedCheck>& red, bool machine, Names& names) {
  const RedCheck* const check = find(red, {"finished", "no_recovery"});
  // Values of a step that nobody committed tell what waiting ranks did with what had not come.
  if (check == nullptr || (names.culprit && (names.committed || machine))) return false;
  told_alone(*check, machine ? Mistake::machine : Mistake::matching, names);
  return true;
}

// "step 0: weight of wte.weight[0] is ...": the first quantity that the reference has otherwise. The golden makes the
// mistake too, so no value differs from it.
Mistake by_reference(const std::string& detail) {
  constexpr std::pair<std::string_view, Mistake> kQuantities[] = {
      {": gradient norm", Mistake::norm}, {": gradient", Mistake::gradient},   {": loss is", Mistake::forward},
      {": weight", Mistake::update},      {": first moment", Mistake::update}, {": second moment", Mistake::update}};
  for (const auto& [words, mistake] : kQuantities) {
    if (has(detail, words)) return mistake;
  }
  return Mistake::unknown;
}

// No operation is known: what the red checks are about.
void heed_the_rest(const std::vector<RedCheck>& red, bool machine, Names& names) {
  if (const RedCheck* check = find(red, {"memory_formula", "model_state_gb", "traffic_formula", "live_activations",
                                         "bubble_formula", "overlap_at_least"}))
    return told_by(*check, Mistake::budget, names);
  if (const RedCheck* check = find(red, {"straggler", "slowdown_at_least", "goodput_at_least"}))
    return told_by(*check, machine ? Mistake::machine : Mistake::budget, names);
  if (const RedCheck* check = find(red, {"within_bounds"}))
    return told_by(*check, has(check->detail, "over ranks") ? Mistake::reduction : Mistake::forward, names);
  if (const RedCheck* check = find(red, {"replicas_equal"}); check != nullptr && has(check->detail, "of the copy"))
    return told_by(*check, Mistake::state, names);
  if (const RedCheck* check = find(red, {"golden", "ranks_agree"}); check != nullptr && has(check->detail, "norm"))
    return told_by(*check, Mistake::norm, names);
  if (const RedCheck* check = find(red, {"compression_conserves"})) return told_by(*check, Mistake::reduction, names);
  if (const RedCheck* check = find(red, {"workers_meet"})) return told_by(*check, Mistake::update, names);
  if (const RedCheck* check = find(red, {"tracks_fp32"})) return told_by(*check, Mistake::update, names);
  if (const RedCheck* check = find(red, {"reference"})) return told_by(*check, by_reference(check->detail), names);
}

}  // namespace

bool operation_in(const std::string& words, Names& names) {
  static const std::regex kOp(R"(([a-z_]+) #\d+ of rank \d+[^']*?, ([a-z_]+), epoch \d+(?:, '([^']*)')?)");
  static const std::regex kShort(R"(([a-z_]+) #\d+ of step \d+)");
  std::smatch found;
  if (std::regex_search(words, found, kOp)) {
    names.kind = found[1];
    names.phase = found[2];
    names.tensor = found[3];
    return true;
  }
  if (!std::regex_search(words, found, kShort)) return false;
  names.kind = found[1];
  names.phase = phase_of(names.kind);
  return true;
}

void heed_checks(const Scenario& scenario, const Json& report, Names& names) {
  const std::vector<RedCheck> red = red_of(report);
  const bool machine = machine_failed(scenario, report);
  if (heed_structure(red, names) || heed_history(red, names.after_join, names) || heed_poison(red, names)) return;
  if (names.culprit && names.after_restart && names.mistake != Mistake::data) {
    names.mistake = Mistake::state;
    return;
  }
  if (heed_end(red, machine, names) || names.culprit) return;
  heed_the_rest(red, machine, names);
}

}  // namespace seeksim::harness
