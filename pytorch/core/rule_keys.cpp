// A rule out of its keys, as plan.json has them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "pytorch/core/rules.h"

namespace seeksim::pytorch {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;
using faults::Site;
using runtime::OpKind;
using runtime::Phase;

constexpr double kLongest_s = 1e6;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("plan.json: faults: " + what); }

std::int64_t integer(const std::string& key, const RuleValue& value) {
  if (const auto* n = std::get_if<std::int64_t>(&value)) return *n;
  refuse(key + " has to be an integer");
}
double number(const std::string& key, const RuleValue& value) {
  if (const auto* x = std::get_if<double>(&value)) return *x;
  return double(integer(key, value));
}
const std::string& word(const std::string& key, const RuleValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  refuse(key + " has to be a word");
}
bool truth(const std::string& key, const RuleValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  refuse(key + " has to be true or false");
}
template <class E>
E known(const std::string& key, const std::string& text, E value, E none) {
  if (value == none) refuse(fmt::format("{}: there is no \"{}\"", key, text));
  return value;
}

using Setter = std::function<void(Rule&, const std::string&, const RuleValue&)>;

template <class M>
Setter whole(M Rule::*member) {
  return [member](Rule& r, const std::string& k, const RuleValue& v) { r.*member = M(integer(k, v)); };
}
// A span of time, as seconds.
template <class M>
Setter seconds(faults::TimeNs M::*member, double least_s = 0) {
  return [member, least_s](Rule& r, const std::string& k, const RuleValue& v) {
    const double s = number(k, v);
    if (!(s >= least_s && s <= kLongest_s))
      refuse(fmt::format("{} has to be from {:.0f} to {:.0f}", k, least_s, kLongest_s));
    r.*member = faults::TimeNs(s * 1e9);
  };
}
template <class M>
Setter real(double M::*member) {
  return [member](Rule& r, const std::string& k, const RuleValue& v) { r.*member = number(k, v); };
}
Setter end_of(std::optional<int> faults::LinkRule::*member) {
  return [member](Rule& r, const std::string& k, const RuleValue& v) { r.*member = int(integer(k, v)); };
}
template <class M>
Setter trigger(std::optional<M> faults::Trigger::*member) {
  return [member](Rule& r, const std::string& k, const RuleValue& v) { r.when.*member = M(integer(k, v)); };
}

// One row a key that may stand in a rule about a script of one's own.
const std::vector<std::pair<const char*, Setter>>& setters() {
  static const std::vector<std::pair<const char*, Setter>> rows = {
      {"kind",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         r.kind = known(k, word(k, v), faults::fault_kind(word(k, v)), FaultKind::count_);
       }},
      {"rank", trigger(&faults::Trigger::rank)},
      {"peer", trigger(&faults::Trigger::peer)},
      {"step", trigger(&faults::Trigger::step)},
      {"micro_batch", trigger(&faults::Trigger::micro_batch)},
      {"attempt", trigger(&faults::Trigger::attempt)},
      {"call", trigger(&faults::Trigger::call)},
      {"tensor", [](Rule& r, const std::string& k, const RuleValue& v) { r.when.tensor = word(k, v); }},
      {"op",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         r.when.op = known(k, word(k, v), runtime::op_kind(word(k, v)), OpKind::count_);
       }},
      {"phase",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         r.when.phase = known(k, word(k, v), runtime::phase(word(k, v)), Phase::count_);
       }},
      {"probability", [](Rule& r, const std::string& k, const RuleValue& v) { r.when.probability = number(k, v); }},
      {"count", whole(&Rule::count)},
      {"mode", [](Rule& r, const std::string& k,
                  const RuleValue& v) { r.mode = known(k, word(k, v), faults::mode(word(k, v)), Mode::unset); }},
      {"site", [](Rule& r, const std::string& k,
                  const RuleValue& v) { r.site = known(k, word(k, v), faults::site(word(k, v)), Site::unset); }},
      {"delay_s", seconds(&Rule::delay_ns)},
      {"link.from", end_of(&Rule::from)},
      {"link.to", end_of(&Rule::to)},
      {"both_directions", [](Rule& r, const std::string& k, const RuleValue& v) { r.both_directions = truth(k, v); }},
      {"factor", real(&Rule::factor)},
      {"period_s", seconds(&Rule::period_ns)},
      {"duty", real(&Rule::duty)},
      {"ramp_s", seconds(&Rule::ramp_ns)},
      {"cool_s", seconds(&Rule::cool_ns)},
      {"offset_s", seconds(&Rule::offset_ns, -kLongest_s)},
      {"drift_ppm", real(&Rule::drift_ppm)},
      {"path", [](Rule& r, const std::string& k, const RuleValue& v) { r.path = word(k, v); }},
      {"signal", [](Rule& r, const std::string& k, const RuleValue& v) { r.signal = word(k, v); }},
      {"element", [](Rule& r, const std::string& k, const RuleValue& v) { r.element = std::uint64_t(integer(k, v)); }},
      {"elements", [](Rule& r, const std::string& k, const RuleValue& v) { r.elements = int(integer(k, v)); }},
      {"bit", [](Rule& r, const std::string& k, const RuleValue& v) { r.bit = std::uint64_t(integer(k, v)); }},
      {"checksum", [](Rule& r, const std::string& k, const RuleValue& v) { r.checksum = truth(k, v); }},
      {"value", [](Rule& r, const std::string& k, const RuleValue& v) { r.value = number(k, v); }},
      {"negative", [](Rule& r, const std::string& k, const RuleValue& v) { r.negative = truth(k, v); }},
  };
  return rows;
}

}  // namespace

Rule rule_of(const RuleKeys& keys) {
  Rule rule;
  for (const auto& [key, value] : keys) {
    const auto& rows = setters();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return key == r.first; });
    if (row == rows.end()) refuse(fmt::format("\"{}\" is no key of a rule about a script", key));
    row->second(rule, key, value);
  }
  if (rule.kind == FaultKind::count_) refuse("a rule has no kind");
  if (const std::string no = does_not_apply(rule); !no.empty()) refuse(no);
  return rule;
}

}  // namespace seeksim::pytorch
