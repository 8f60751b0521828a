#include "harness/loading/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/input/schema.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using faults::FaultInfo;
using faults::FaultKind;
using faults::Rule;
using faults::Trigger;

// A word that the reader looks up; the schema lists what there is.
Shape one_of(const std::vector<std::string>& words) { return text().with("enum", words).with(kReaderSays, true); }

// A member of a rule, whichever of its parts declares it.
template <class M, class Part>
M Rule::*of_rule(M Part::*member) {
  return member;
}

// Fills what a word names; a word that is none is reported.
template <class E>
void read_word(const Reader& reader, const char* key, const char* what, std::optional<E>& to) {
  const std::string word = reader.text(key);
  if (word.empty()) return;
  const std::vector<std::string> known = words_of<E>();
  const auto found = std::find(known.begin(), known.end(), word);
  if (found != known.end()) {
    to = E(found - known.begin());
  } else {
    reader.problem(key, fmt::format("there is no {} {}", what, in_quotes(word)), did_you_mean(word, known));
  }
}

const Keys<Rule>& link_keys() {
  static const Keys<Rule> keys = {
      {"from", at(of_rule(&Rule::from)), integer(0).unset(), kNoBit, "Sending rank."},
      {"to", at(of_rule(&Rule::to)), integer(0).unset(), kNoBit, "Receiving rank."},
      {"nodes", by_hand, list(integer(0)).entries(2, 2), kNoBit, "Every link between two machines."},
  };
  return keys;
}

void read_link(const Reader& reader, Rule& rule) {
  if (!reader.has("link")) return;
  const Reader link = reader.child("link");
  const Json* nodes = link.find("nodes");
  if (nodes != nullptr && (link.has("from") || link.has("to"))) {
    reader.problem("link", "names both ranks and nodes", "Give {\"from\", \"to\"} or {\"nodes\"}.");
  }
  if (nodes != nullptr) {
    if (!nodes->is_array() || nodes->size() != 2 || !(*nodes)[0].is_number_integer() ||
        !(*nodes)[1].is_number_integer()) {
      return;  // the schema said so
    }
    rule.nodes = true;
    rule.from = int((*nodes)[0].get<std::int64_t>());
    rule.to = int((*nodes)[1].get<std::int64_t>());
    return;
  }
  link_keys().read(link, rule);
}

std::vector<std::vector<int>> read_sides(const Reader& reader) {
  std::vector<std::vector<int>> sides;
  const Json* given = reader.find("sides");
  if (given == nullptr || !given->is_array()) return sides;
  for (const Json& side : *given) {
    std::vector<int>& ranks = sides.emplace_back();
    for (const Json& rank : side.is_array() ? side : Json::array())
      ranks.push_back(rank.is_number_integer() ? int(std::clamp<std::int64_t>(rank.get<std::int64_t>(), -1, 1 << 30))
                                               : -1);
  }
  return sides;
}

Rule read_rule(const Reader& reader, FaultKind kind) {
  Rule rule;
  rule.kind = kind;
  read_word(reader, "op", "operation", rule.when.op);
  read_word(reader, "phase", "phase", rule.when.phase);
  read_link(reader, rule);
  rule_keys().read(reader, rule);
  rule.mode = faults::mode(reader.text("mode"));
  rule.site = faults::site(reader.text("site"));
  rule.sides = read_sides(reader);
  return rule;
}

bool is_key(const std::string& key) {
  const std::vector<Key<Rule>>& rows = rule_keys().rows();
  return std::any_of(rows.begin(), rows.end(), [&](const Key<Rule>& row) { return row.name == key; });
}

// Keys that the kind has no use for. Returns them, so that nothing else is said about them.
std::set<std::string> refuse_foreign_keys(const Reader& reader, const FaultInfo& info, MoreKeys more) {
  std::set<std::string> foreign;
  for (const auto& [key, value] : reader.value()->items()) {
    const bool known = is_key(key);  // else it was reported as unknown already
    const bool fits = key == "kind" || (more != nullptr && more(info.kind, key)) ||
                      std::find(info.parameters.begin(), info.parameters.end(), key) != info.parameters.end();
    if (fits || !known) continue;
    foreign.insert(key);
    reader.problem(key.c_str(), fmt::format("means nothing for {}", name(info.kind)),
                   fmt::format("Its keys: {}.", fmt::join(info.parameters, ", ")));
  }
  return foreign;
}

void read_one(const Reader& reader, const std::vector<int>& nodes, MoreKeys more, std::vector<Rule>& rules) {
  const std::string word = reader.text("kind");
  if (reader.value() == nullptr || word.empty()) return;  // the schema said so
  const FaultKind kind = faults::fault_kind(word);
  if (kind == FaultKind::count_) {
    reader.problem("kind", fmt::format("there is no fault {}", in_quotes(word)),
                   did_you_mean(word, words_of<FaultKind>()) + " `seeksim list faults` describes them.");
    return;
  }
  const FaultInfo* info = nullptr;
  for (const FaultInfo& one : faults::catalogue()) {
    if (one.kind == kind) info = &one;
  }
  const std::set<std::string> foreign = refuse_foreign_keys(reader, *info, more);
  const Rule rule = read_rule(reader, kind);
  if (!nodes.empty()) {
    std::set<std::string> said = foreign;
    for (const faults::Problem& problem : faults::problems(rule, nodes)) {
      if (said.insert(problem.key).second) reader.problem(problem.key.c_str(), problem.what, "");
    }
  }
  rules.push_back(rule);
}

}  // namespace

const Keys<Rule>& rule_keys() {
  static const Keys<Rule> keys = {
      {"kind", by_hand, one_of(words_of<FaultKind>()).required(), kNoBit, "`seeksim list faults` prints them."},
      {"rank", at(of_rule(&Rule::when), &Trigger::rank), integer(0).unset(), kNoBit,
       "Only what this rank does (launch rank); for messages: the sender."},
      {"node", at(of_rule(&Rule::when), &Trigger::node), integer(0).unset(), kNoBit,
       "Only what ranks of this machine do."},
      {"peer", at(of_rule(&Rule::when), &Trigger::peer), integer(0).unset(), kNoBit, "Only messages to this rank."},
      {"step", at(of_rule(&Rule::when), &Trigger::step), integer(0).unset(), kNoBit,
       "Only in this step, numbered from 0."},
      {"micro_batch", at(of_rule(&Rule::when), &Trigger::micro_batch), integer(0).unset(), kNoBit,
       "Only in this micro-batch of the step, from 0."},
      {"attempt", at(of_rule(&Rule::when), &Trigger::attempt), integer(0).unset(), kNoBit,
       "Of scripts of one's own: only in this start of the job. 0 is the first one; 1 is the first start again, by a "
       "launcher, or as `seeksim torch recovers` and `explore` resume it."},
      {"sample", at(of_rule(&Rule::when), &Trigger::sample), integer(0).unset(), kNoBit,
       "Only what brings this sample, by its number in the data order of the run, from 0: step s uses those from s * "
       "train_batch_size on."},
      {"layer", at(of_rule(&Rule::when), &Trigger::layer), integer(0).unset(), kNoBit,
       "Only what is done for this layer."},
      {"tensor", at(of_rule(&Rule::when), &Trigger::tensor), text().unset(), kNoBit,
       "Only operations on this tensor, e.g. h.0.mlp.c_fc.weight, attention, gelu."},
      {"op", by_hand, one_of(words_of<runtime::OpKind>()), kNoBit,
       "Only this kind of operation, e.g. all_reduce, vote, compute, send."},
      {"phase", by_hand, one_of(words_of<runtime::Phase>()), kNoBit,
       "Only in this phase, e.g. forward, backward, grad_reduce, commit."},
      {"call", at(of_rule(&Rule::when), &Trigger::call), integer(1, kExact).unset(), kNoBit,
       "From the n-th operation of a rank on that matches all the rest, counted from 1; how often is said by count."},
      {"at_s", in_seconds(of_rule(&Rule::when), &Trigger::at_ns), number().least(0).unset(), kNoBit,
       "Not before this virtual time, in seconds."},
      {"probability", at(of_rule(&Rule::when), &Trigger::probability), number().above(0).most(1), kNoBit,
       "Drawn from the rule's own random stream at each match."},
      {"count", at(of_rule(&Rule::count)), integer(0), kNoBit,
       "How many times it fires, retries and epochs included; 0: without limit."},
      {"mode", by_hand,
       choice({"never",        "late",     "transient", "permanent", "constant", "periodic",      "ramp",      "before",
               "during",       "after",    "op",        "count",     "dtype",    "swap_order",    "skip",      "count0",
               "wrong_nranks", "dup_rank", "truncate",  "flip",      "missing",  "delayed_apply", "dup_apply", "drop"}),
       kNoBit, "Which form of the fault; faults/README.md says which kind has which."},
      {"link", by_hand, link_keys().shape(), kNoBit,
       "A link by launch ranks {\"from\": 0, \"to\": 1} or by machines {\"nodes\": [0, 1]}."},
      {"both_directions", at(of_rule(&Rule::both_directions)), flag(), kNoBit,
       "false: only from the first to the second."},
      {"delay_s", in_seconds(of_rule(&Rule::delay_ns)), number().least(0).unset(), kNoBit,
       "How late, or how much latency is added, in seconds."},
      {"returns_s", in_seconds(of_rule(&Rule::returns_ns)), number().least(0), kNoBit,
       "So long after a crash the rank's process starts again, and waits to be admitted; 0: never."},
      {"signal", at(of_rule(&Rule::signal)), text().standard("kill"), kNoBit,
       "How a rank_crash ends a real process: kill, segv or abrt by that signal, exit:N with that exit status (0 to "
       "255) and without a word to the others."},
      {"down_s", in_seconds(of_rule(&Rule::down_ns)), number().least(0).unset(), kNoBit,
       "How long a transient cut lasts, in seconds."},
      {"up_s", in_seconds(of_rule(&Rule::up_ns)), number().least(0).unset(), kNoBit,
       "How long until the next cut, in seconds."},
      {"cycles", at(of_rule(&Rule::cycles)), integer(1), kNoBit, "How many cuts."},
      {"factor", at(of_rule(&Rule::factor)), number().above(0).most(1e9), kNoBit,
       "How many times slower a straggler is; share of the bandwidth that a slow link keeps."},
      {"period_s", in_seconds(of_rule(&Rule::period_ns)), number().least(0).unset(), kNoBit,
       "Period of a periodic straggler, in seconds."},
      {"duty", at(of_rule(&Rule::duty)), number().above(0).most(1), kNoBit, "Share of the period in which it is slow."},
      {"ramp_s", in_seconds(of_rule(&Rule::ramp_ns)), number().least(0).unset(), kNoBit,
       "Time from full speed to factor, in seconds."},
      {"cool_s", in_seconds(of_rule(&Rule::cool_ns)), number().least(0).unset(), kNoBit,
       "Time from factor back to full speed, in seconds; then it begins again."},
      {"loss", at(of_rule(&Rule::loss)), number().above(0).most(1), kNoBit,
       "Share of a link's messages that are lost."},
      {"bit", at(of_rule(&Rule::bit)), integer(0, kExact), kNoBit,
       "Which bit of the message flips, modulo its length."},
      {"checksum", at(of_rule(&Rule::checksum)), flag(), kNoBit,
       "The receiver notices a flipped bit; false: silently wrong."},
      {"site", by_hand,
       choice({"activation", "activation_gradient", "loss", "parameter", "gradient", "reduced_gradient",
               "optimizer_state", "message"}),
       kNoBit, "Which memory a fault of values strikes, and when: faults/README.md."},
      {"element", at(of_rule(&Rule::element)), integer(0, kExact), kNoBit,
       "Which number of what the operation touches, modulo its size."},
      {"elements", at(of_rule(&Rule::elements)), integer(1), kNoBit, "How many numbers a zero_tile covers."},
      {"value", at(of_rule(&Rule::value)), number(), kNoBit,
       "What an overflow puts there; 65520 is the least that fp16 cannot hold."},
      {"negative", at(of_rule(&Rule::negative)), flag(), kNoBit, "The same with a minus sign."},
      {"token", at(of_rule(&Rule::token)), integer(0), kNoBit,
       "The target that a loss_spike puts everywhere, or the token that a token_imbalance does."},
      {"tag", at(of_rule(&Rule::tag)), text().unset(), kNoBit,
       "Only memory for this: parameters, activations, ... as the report's memory part names it."},
      {"bytes", at(of_rule(&Rule::bytes)), integer(0, kExact), kNoBit,
       "oom: what the device may hold; 0: the allocation itself fails, whatever is free. nvme_short_read, "
       "nvme_torn_write: how much arrives; 0: half."},
      {"path", at(of_rule(&Rule::path)), text().unset(), kNoBit, "Only files whose path has this in it."},
      {"lose_local_storage", at(of_rule(&Rule::lose_local_storage)), flag(), kNoBit,
       "What the machine's own disk holds is gone with it."},
      {"code", at(of_rule(&Rule::code)), choice({214, 220, 226}), kNoBit,
       "CUDA's error: 214 uncorrectable ECC, 220 NVLink, 226 contained."},
      {"sticky", at(of_rule(&Rule::sticky)), flag(), kNoBit, "The device's context is gone; false: one launch failed."},
      {"offset_s", in_seconds(of_rule(&Rule::offset_ns)), number(), kNoBit,
       "What a rank's clock shows too much, in seconds."},
      {"drift_ppm", at(of_rule(&Rule::drift_ppm)), number(), kNoBit, "How much too fast it runs, in millionths."},
      {"notice_s", in_seconds(of_rule(&Rule::notice_ns)), number().least(0), kNoBit,
       "Seconds between the notice (at_s) and the end."},
      {"cancelled", at(of_rule(&Rule::cancelled)), number().least(0).most(1), kNoBit,
       "The chance that a notice is called off halfway."},
      {"sides", by_hand, list(list(integer(0)).entries(1)).entries(2, 2), kNoBit,
       "The ranks on either side of a partition."},
      {"store_side", at(of_rule(&Rule::store_side)), choice({0, 1}).unset(), kNoBit,
       "Which side still reaches the control plane. Unless said it is split too, and the side goes on that has more "
       "than half of the members, or half and the lowest rank."},
      {"staleness", at(of_rule(&Rule::staleness)), integer(1), kNoBit,
       "How many steps old the gradients of a delayed_apply are."},
  };
  return keys;
}

std::vector<faults::Rule> read_faults(const Reader& scenario, const std::vector<int>& nodes, MoreKeys more) {
  std::vector<Rule> rules;
  const Json* list = scenario.find("faults");
  if (list == nullptr || !list->is_array()) return rules;
  for (std::size_t i = 0; i < list->size(); ++i) {
    read_one(Reader((*list)[i], scenario.at("faults") + '/' + std::to_string(i), scenario.findings()), nodes, more,
             rules);
  }
  return rules;
}

void check_tokens(const Reader& top, const Scenario& scenario) {
  const int vocab = scenario.train.definition.model.vocab;
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    const faults::Rule& rule = scenario.faults[i];
    if (rule.kind != FaultKind::loss_spike && rule.kind != FaultKind::token_imbalance) continue;
    if (rule.token < vocab) continue;
    top.findings().add(fmt::format("/faults/{}/token", i),
                       fmt::format("token {} is none of the vocabulary's {}", rule.token, vocab),
                       fmt::format("Use one from 0 to {}.", vocab - 1));
  }
}

Json to_json(const faults::Rule& rule) { return Json::parse(faults::text(rule)); }

}  // namespace seeksim::harness
