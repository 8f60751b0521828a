#include "harness/loading/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/verdict/checks.h"

namespace seeksim::harness {

using namespace shapes;

Shape check_shape() {
  std::vector<Key<Scenario>> forms;
  for (const CheckInfo& row : check_catalogue()) {
    if (row.form) forms.push_back({row.name, by_hand, *row.form, kNoBit, row.description});
  }
  return Keys<Scenario>(std::move(forms)).shape().keys(1, 1);
}

Shape check_text() {
  std::vector<std::string> names;
  for (const CheckInfo& row : check_catalogue()) names.emplace_back(row.name);
  return text().with("pattern", fmt::format("^({})(:.*)?$", fmt::join(names, "|")));
}

const Keys<Expect>& expect_keys() {
  static const Keys<Expect> keys = {
      {"check_fails", by_hand, either(text().length(1), list(text()).entries(1)), kNoBit,
       "The check or checks that must fail. No other may."},
      {"stops", by_hand, text().length(1), kNoBit,
       "Training stops: \"deadlock\", \"out_of_time\", or words of the reason that the recovery gives."},
  };
  return keys;
}

void read_checks(const Reader& top, int ranks, Scenario& scenario) {
  const Json* list = top.find("checks");
  if (list == nullptr || !list->is_array()) return;
  for (std::size_t i = 0; i < list->size() && !top.findings().full(); ++i) {
    const Json& one = (*list)[i];
    if (!one.is_string() && !(one.is_object() && one.size() == 1)) continue;  // the schema said so
    CheckSpec spec;
    const CheckProblem wrong = read_check(one, ranks, spec);
    if (!wrong.what.empty()) top.findings().add(fmt::format("/checks/{}", i), wrong.what, wrong.next);
    if (wrong.what.empty()) scenario.checks.push_back(spec);
  }
  if (top.findings().full()) top.findings().add("/checks", "further checks were not read", "");
}

void read_expect(const Reader& top, Scenario& scenario) {
  const Json* expect = top.find("expect");
  if (expect == nullptr) return;
  if (expect->is_string()) {
    if (*expect != "pass") {
      top.problem("expect", fmt::format("{} is not known", in_quotes(expect->get<std::string>())),
                  "Use \"pass\", {\"check_fails\": NAME} or {\"stops\": REASON}.");
    }
    return;
  }
  const Reader inner = top.child("expect");
  if (inner.has("stops")) scenario.expect = {Expect::What::stops, inner.text("stops")};
  if (!inner.has("check_fails")) return;
  const Json* wanted = inner.find("check_fails");
  std::vector<std::string> all;
  if (wanted->is_string()) all.push_back(wanted->get<std::string>());
  if (wanted->is_array()) {
    for (const Json& name : *wanted) all.push_back(name.is_string() ? name.get<std::string>() : "");
  }
  scenario.expect = {Expect::What::check_fails, fmt::format("{}", fmt::join(all, " "))};
  std::vector<std::string> named = {"finished"};  // always judged
  for (const CheckInfo& row : check_catalogue()) {
    if (row.unasked) named.emplace_back(row.name);
  }
  for (const CheckSpec& check : scenario.checks) named.insert(named.end(), {check.text(), check.name});
  for (const std::string& name : all) {
    if (std::find(named.begin(), named.end(), name) != named.end()) continue;
    inner.problem("check_fails", fmt::format("no check {} is made here", in_quotes(name)), did_you_mean(name, named));
  }
}

}  // namespace seeksim::harness
