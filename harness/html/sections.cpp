#include "harness/html/sections.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/html/escape.h"
#include "harness/html/page.h"

namespace seeksim::harness::html {
namespace {

std::string fact(const char* name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
}

std::string facts(const Json& report) {
  std::string out;
  const auto add = [&](const char* name, const char* key, const char* unit) {
    const Json& value = member(report, key);
    if (!value.is_null()) out += fact(name, shown(value) + unit);
  };
  const Json& world = member(report, "world");
  if (world.is_object())
    out += fact("world", fmt::format("{} ranks ({} &times; {}), {}", shown(member(world, "ranks")),
                                     shown(member(world, "nodes")), shown(member(world, "ranks_per_node")),
                                     shown(member(world, "network"))));
  add("backend", "backend", "");
  add("device", "device", "");
  add("numerics", "numerics", "");
  add("steps committed", "steps_committed", "");
  add(on_processes(report) ? "time of the ranks" : "virtual time", "virtual_s", " s");
  add("rows of the sweep", "combinations", "");
  add("red rows", "rows_red", "");
  add("wall time", "wall_s", " s");
  add("seed", "seed", "");
  add("training seed", "training_seed", "");
  add("weights", "params_digest", "");
  add("fingerprint", "fingerprint", "");
  add("planted bug", "bug", "");
  add("quirks", "quirks", "");
  const Json& golden = member(report, "golden");
  if (golden.is_object()) out += fact("golden", shown(member(golden, "origin")));
  return "<dl class=\"facts\">" + out + "</dl>\n";
}

std::string word_of(const Json& report) {
  const std::string verdict = text_member(report, "verdict");
  const int status = member(report, "exit_code").is_number_integer() ? member(report, "exit_code").get<int>() : 4;
  if (status == 0) return "PASS";
  if (verdict == "no_progress") return "NO PROGRESS";
  if (verdict == "bad_input") return "NOT RUN";
  return verdict == "bug" ? "BUG" : "FAIL";
}

}  // namespace

bool on_processes(const Json& report) {
  const std::string backend = text_member(report, "backend");
  return !backend.empty() && backend != "sim";
}

std::string verdict_part(const Json& report) {
  const bool good = member(report, "exit_code") == Json(0);
  std::string out = verdict_box(good, word_of(report), escaped(text_member(report, "sentence")));
  if (const std::string stopped = text_member(report, "stopped"); !stopped.empty())
    out +=
        paragraph(fmt::format("Training stopped: {}. Failure domain: {}; outlook: {}.", escaped(stopped),
                              escaped(text_member(report, "failure_domain")), escaped(text_member(report, "outlook"))));
  return out + facts(report);
}

std::string problems_part(const Json& report) {
  std::string items;
  for (const Json& problem : member(report, "problems")) items += "<li>" + shown(problem) + "</li>";
  return items.empty() ? "" : "<ul>" + items + "</ul>\n";
}

std::string checks_part(const Json& report) {
  std::vector<Cells> red, others;
  for (const Json& check : member(report, "checks")) {
    const bool ok = member(check, "ok") == Json(true);
    const bool looked = member(check, "looked") != Json(false);
    const char* state = ok       ? "<span class=\"ok\">&#10003; holds</span>"
                        : looked ? "<span class=\"no\">&#10007; red</span>"
                                 : "<span class=\"blind\">? saw nothing</span>";
    (ok ? others : red).push_back({shown(member(check, "name")), state, shown(member(check, "detail"))});
  }
  if (red.empty() && others.empty()) return "";
  const std::size_t wrong = red.size();
  red.insert(red.end(), others.begin(), others.end());
  const std::string count = wrong == 0 ? fmt::format("all {} hold", red.size())
                                       : fmt::format("{} of {} are red; these come first", wrong, red.size());
  return table(count, {"check", "verdict", "what it saw"}, red);
}

std::string names_part(const Json& report) {
  const Json& names = member(report, "names");
  if (!names.is_object()) return "";
  std::string out = paragraph(fmt::format(
      "<b>{} {}</b> in {}{}", escaped(text_member(names, "kind")), escaped(text_member(names, "tensor")),
      escaped(text_member(names, "phase")),
      text_member(names, "check").empty() ? "" : ", told by the check " + escaped(text_member(names, "check"))));
  if (!text_member(names, "how").empty()) out += paragraph(escaped(text_member(names, "how")));
  const auto side = [&](const char* key, const char* whose) {
    const Json& value = member(names, key);
    if (value.is_null() || value == Json("")) return std::string();
    return fmt::format("<div class=\"{}\"><b>{}</b><code>{}</code></div>", key, whose, shown(value));
  };
  const std::string values = side("have", "this run has") + side("want", "it should be");
  if (!values.empty()) out += "<div class=\"side\">" + values + "</div>\n";
  std::vector<Cells> rows;
  for (const auto& [key, value] : names.items()) {
    const bool empty = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
    if (!empty && key != "have" && key != "want" && key != "how") rows.push_back({escaped(key), shown(value)});
  }
  return out + table("", {"field", "value"}, rows);
}

std::string fault_plan_part(const Json& report) {
  const Json& plan = member(report, "fault_plan");
  if (!plan.is_object()) return "";
  std::vector<Cells> rows;
  for (const auto& [key, value] : plan.items()) {
    if (!value.is_structured()) rows.push_back({escaped(key), shown(value)});
  }
  std::string out = table("runs", {"what", "count"}, rows);
  rows.clear();
  for (const Json& red : member(plan, "first"))
    rows.push_back({shown(member(red, "run")), shown(member(red, "why")), shown(member(red, "about")),
                    "<code>" + shown(member(red, "faults")) + "</code>"});
  if (!rows.empty()) out += table("the first red runs", {"run", "why", "where", "faults"}, rows);
  rows.clear();
  const Json& groups = member(plan, "groups");
  if (groups.is_object()) {
    for (const auto& [name, counts] : groups.items())
      rows.push_back({escaped(name), shown(counts.at(0)), shown(counts.at(1))});
  }
  if (!rows.empty()) out += table("by group", {"group", "runs", "red"}, rows);
  return out;
}

std::string processes_part(const Json& report) {
  const Json& jobs = member(report, "jobs_before");
  if (!jobs.is_array()) return "";
  const bool judged = member(report, "checks").is_array();
  std::string out = paragraph(jobs.empty() ? "The first job came to its end."
                                           : fmt::format("{} job{} ended before the time{}.", jobs.size(),
                                                         jobs.size() == 1 ? "" : "s",
                                                         judged ? ", and the one after it came to this verdict" : ""));
  if (judged) out += paragraph("Ranks were processes, so all times on this page are of a real clock.");
  std::vector<Cells> rows;
  for (const Json& job : jobs)
    rows.push_back({fmt::format("{}", rows.size() + 1), shown(member(job, "after_s")), shown(member(job, "status")),
                    shown(member(job, "why"))});
  return rows.empty() ? out : out + table("", {"job", "ended after, s", "exit status", "what was seen before"}, rows);
}

std::string again_part(const Json& report, const std::string& command) {
  if (command.empty()) return "";
  std::string line = command;
  const Json& schedule = member(report, "schedule");
  if (schedule.is_object() && schedule.contains("string"))
    line += " --schedule " + text_member(schedule, "string");
  else if (member(report, "seed").is_number())
    line += " --seed " + member(report, "seed").dump();
  return paragraph("This command makes the same run again, to the bit:") + "<pre>" + escaped(line) + "</pre>\n";
}

}  // namespace seeksim::harness::html
