// A rule as one line of JSON, with the keys of scenario files. Reports print it, shrunk plans are written in it, and it
// names a rule's random stream.
#include <cstdio>

#include "faults/plan.h"
#include "faults/trigger.h"

namespace seeksim::faults {

namespace {

class Line {
 public:
  void raw(const char* key, const std::string& value) {
    text_ += text_.empty() ? "{" : ", ";
    text_ += '"';
    text_ += key;
    text_ += "\": ";
    text_ += value;
  }
  void word(const char* key, std::string_view value) { raw(key, '"' + std::string(value) + '"'); }
  template <class T>
  void integer(const char* key, const std::optional<T>& value) {
    if (value) raw(key, std::to_string(*value));
  }
  // The shortest digits that read back as the same double.
  void number(const char* key, double value) {
    char digits[40];
    for (int precision = 6; precision <= 17; ++precision) {
      std::snprintf(digits, sizeof digits, "%.*g", precision, value);
      double back = 0;
      if (std::sscanf(digits, "%lf", &back) == 1 && back == value) break;
    }
    raw(key, digits);
  }
  void seconds(const char* key, TimeNs ns) {
    if (ns != 0) number(key, double(ns) / double(runtime::kSecond));
  }
  std::string close() const { return text_ + '}'; }

 private:
  std::string text_;
};

void write_trigger(Line& line, const Trigger& when) {
  line.integer("rank", when.rank);
  line.integer("node", when.node);
  line.integer("peer", when.peer);
  line.integer("step", when.step);
  line.integer("micro_batch", when.micro_batch);
  line.integer("attempt", when.attempt);
  line.integer("sample", when.sample);
  line.integer("layer", when.layer);
  if (!when.tensor.empty()) line.word("tensor", when.tensor);
  if (when.op) line.word("op", runtime::name(*when.op));
  if (when.phase) line.word("phase", runtime::name(*when.phase));
  line.integer("call", when.call);
  if (when.at_ns) line.number("at_s", double(*when.at_ns) / double(runtime::kSecond));
  if (when.probability != 1.0) line.number("probability", when.probability);
}

std::string sides_text(const std::vector<std::vector<int>>& sides) {
  std::string text;
  for (const std::vector<int>& side : sides) {
    std::string ranks;
    for (const int rank : side) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    text += (text.empty() ? "[" : ", [") + ranks + ']';
  }
  return '[' + text + ']';
}

std::string link_text(const Rule& rule) {
  const std::string from = std::to_string(*rule.from);
  const std::string to = std::to_string(*rule.to);
  return rule.nodes ? "{\"nodes\": [" + from + ", " + to + "]}" : "{\"from\": " + from + ", \"to\": " + to + "}";
}

}  // namespace

std::string text(const Rule& rule) {
  const Rule plain;
  Line line;
  line.word("kind", name(rule.kind));
  if (rule.from && rule.to) line.raw("link", link_text(rule));
  if (!rule.both_directions) line.raw("both_directions", "false");
  write_trigger(line, rule.when);
  if (rule.count != plain.count) line.raw("count", std::to_string(rule.count));
  if (rule.mode != Mode::unset) line.word("mode", name(rule.mode));
  line.seconds("delay_s", rule.delay_ns);
  line.seconds("returns_s", rule.returns_ns);
  if (!rule.signal.empty()) line.word("signal", rule.signal);
  line.seconds("down_s", rule.down_ns);
  line.seconds("up_s", rule.up_ns);
  if (rule.cycles != plain.cycles) line.raw("cycles", std::to_string(rule.cycles));
  if (rule.factor != plain.factor) line.number("factor", rule.factor);
  line.seconds("period_s", rule.period_ns);
  if (rule.duty != plain.duty) line.number("duty", rule.duty);
  line.seconds("ramp_s", rule.ramp_ns);
  line.seconds("cool_s", rule.cool_ns);
  if (rule.loss != plain.loss) line.number("loss", rule.loss);
  if (rule.bit != plain.bit) line.raw("bit", std::to_string(rule.bit));
  if (rule.checksum != plain.checksum) line.raw("checksum", "false");
  if (rule.site != Site::unset) line.word("site", name(rule.site));
  if (rule.element != plain.element) line.raw("element", std::to_string(rule.element));
  if (rule.elements != plain.elements) line.raw("elements", std::to_string(rule.elements));
  if (rule.value != plain.value) line.number("value", rule.value);
  if (rule.negative) line.raw("negative", "true");
  if (!rule.tag.empty()) line.word("tag", rule.tag);
  if (rule.bytes != 0) line.raw("bytes", std::to_string(rule.bytes));
  if (!rule.path.empty()) line.word("path", rule.path);
  if (!rule.lose_local_storage) line.raw("lose_local_storage", "false");
  if (rule.code != plain.code) line.raw("code", std::to_string(rule.code));
  if (!rule.sticky) line.raw("sticky", "false");
  line.seconds("offset_s", rule.offset_ns);
  if (rule.drift_ppm != 0) line.number("drift_ppm", rule.drift_ppm);
  line.seconds("notice_s", rule.notice_ns);
  if (rule.cancelled != 0) line.number("cancelled", rule.cancelled);
  if (!rule.sides.empty()) line.raw("sides", sides_text(rule.sides));
  if (rule.store_side) line.raw("store_side", std::to_string(*rule.store_side));
  if (rule.staleness != plain.staleness) line.raw("staleness", std::to_string(rule.staleness));
  if (rule.token != plain.token) line.raw("token", std::to_string(rule.token));
  return line.close();
}

namespace {

std::string whose(const Rule& rule) {
  return rule.when.rank ? "rank " + std::to_string(*rule.when.rank) : std::string("its ranks");
}

std::string met_list(const RuleStatus& status) {
  std::string list;
  for (const Met& met : status.met) {
    list += (list.empty() ? "" : ", ") + std::string(name(met.kind)) + " in " + std::string(name(met.phase)) + " (" +
            std::to_string(met.times) + ")";
  }
  return status.met.size() < kMetKept ? list : list + ", ...";
}

}  // namespace

std::string met_text(const Rule& rule, const RuleStatus& status) {
  const std::string step = rule.when.step ? " in step " + std::to_string(*rule.when.step) : std::string();
  if (status.matched > 0) {
    const std::string n = std::to_string(status.matched);
    const bool waits = rule.when.call && status.matched < *rule.when.call;
    return waits
               ? "it fires at match " + std::to_string(*rule.when.call) + ", and met " + n
               : "it met " + n + " operation" + (n == "1" ? "" : "s") + " that fit, and no draw of its probability hit";
  }
  if (!status.met.empty()) return "of " + whose(rule) + step + " it met " + met_list(status);
  if (status.last_step >= 0)
    return "it met no operation of " + whose(rule) + step + "; their last step was " + std::to_string(status.last_step);
  return rule.when.at_ns ? "the run was over before its time" : "it met no operation that it could strike";
}

}  // namespace seeksim::faults
