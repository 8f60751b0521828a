// An attempt in which any rank computed other bits proves nothing about what else it found: its step is redone.
#include "harness/oracles/reruns.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "harness/oracles/numbers.h"

namespace seeksim::harness {
namespace {

Json find_json(const Rerun& rerun, const runtime::RerunFind& find) {
  return {{"rank", rerun.rank},
          {"step", rerun.told.step},
          {"micro_batch", find.micro_batch},
          {"parameter", find.parameter}};
}

std::string find_text(const Rerun& rerun, const runtime::RerunFind& find) {
  return fmt::format("rank {}, step {}, micro-batch {}, the gradient of '{}'", rerun.rank, rerun.told.step,
                     find.micro_batch, find.parameter);
}

std::vector<const Rerun*> differing(const RunRecord& run) {
  std::vector<const Rerun*> all;
  for (const Rerun& rerun : run.numbers.reruns) {
    if (rerun.told.differs) all.push_back(&rerun);
  }
  return all;
}

std::vector<const Rerun*> genuine(const RunRecord& run) {
  std::set<std::pair<std::uint32_t, std::int64_t>> redone;  // attempts, by epoch and step
  for (const Rerun* rerun : differing(run)) redone.insert({rerun->told.epoch, rerun->told.step});
  std::vector<const Rerun*> all;
  for (const Rerun& rerun : run.numbers.reruns) {
    if (rerun.told.nonfinite && redone.count({rerun.told.epoch, rerun.told.step}) == 0) all.push_back(&rerun);
  }
  return all;
}

Finding nothing_compared(const Evidence& e) {
  return blind(e.scenario.train.recovery.rerun_and_compare ? "no micro-batch was run twice"
                                                           : "recovery.rerun_and_compare is off");
}

}  // namespace

std::string want_rerun(const std::string& text, int) {
  if (text == "none") return "";
  const Json where = Json::parse(text, nullptr, false);
  if (!where.is_object() || where.empty()) return "needs none, or an object with rank, step, micro_batch or parameter";
  for (const auto& [key, value] : where.items()) {
    const bool word = key == "parameter";
    if (!word && key != "rank" && key != "step" && key != "micro_batch") return fmt::format("knows no {}", key);
    if (word ? !value.is_string() : !value.is_number_integer()) return fmt::format("has a wrong {}", key);
  }
  return "";
}

Finding rerun_found(const Evidence& e, const std::string& where) {
  if (e.run.numbers.rerun_ranges == 0) return nothing_compared(e);
  const std::vector<const Rerun*> found = differing(e.run);
  const std::string calm = fmt::format("{} micro-batches had the same bits twice", e.run.numbers.rerun_micro_batches);
  if (where == "none") return found.empty() ? good(calm) : bad(find_text(*found[0], *found[0]->told.differs));
  if (found.empty()) return bad(calm);
  const Json want = Json::parse(where);
  for (const Rerun* rerun : found) {
    const Json seen = find_json(*rerun, *rerun->told.differs);
    for (const auto& [key, value] : want.items()) {
      if (seen[key] == value) continue;
      return bad(fmt::format("{} {} instead of {}: {}", key, seen[key].dump(), value.dump(),
                             find_text(*rerun, *rerun->told.differs)));
    }
  }
  return good(fmt::format("{}{}", find_text(*found[0], *found[0]->told.differs),
                          found.size() > 1 ? fmt::format("; {} times in all", found.size()) : ""));
}

Finding rerun_genuine(const Evidence& e, const std::string& steps) {
  if (e.run.numbers.rerun_ranges == 0) return nothing_compared(e);
  std::set<std::int64_t> seen;
  for (const Rerun* rerun : genuine(e.run)) seen.insert(rerun->told.step);
  return same_steps({seen.begin(), seen.end()}, steps, "steps with the same values twice that are not finite");
}

std::string rerun_text(const RunRecord& run) {
  if (run.numbers.rerun_ranges == 0) return "";
  std::string text = fmt::format("  run twice {} micro-batches, {} ranges of gradients compared\n",
                                 run.numbers.rerun_micro_batches, run.numbers.rerun_ranges);
  for (const Rerun* rerun : differing(run))
    text += fmt::format("  hardware  other bits the second time: {}\n", find_text(*rerun, *rerun->told.differs));
  if (const auto all = genuine(run); !all.empty()) {
    text += fmt::format("  genuine   not finite, and the same bits twice: {}{}\n",
                        find_text(*all[0], *all[0]->told.nonfinite),
                        all.size() > 1 ? fmt::format("; and {} more", all.size() - 1) : "");
  }
  return text;
}

Json rerun_json(const RunRecord& run) {
  Json json = {{"micro_batches", run.numbers.rerun_micro_batches}, {"ranges", run.numbers.rerun_ranges}};
  json["mismatches"] = json["genuine"] = Json::array();
  for (const Rerun* rerun : differing(run)) json["mismatches"].push_back(find_json(*rerun, *rerun->told.differs));
  for (const Rerun* rerun : genuine(run)) json["genuine"].push_back(find_json(*rerun, *rerun->told.nonfinite));
  return json;
}

}  // namespace seeksim::harness
