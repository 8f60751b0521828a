// What makes a rule impossible: each check is one line, with its key.
#include <algorithm>
#include <cmath>
#include <string>

#include "faults/catalogue.h"
#include "faults/trigger.h"

namespace seeksim::faults {

using runtime::OpKind;

namespace {

constexpr double kSlowerAtMost = 1e9;

bool allows(const FaultInfo& of, std::string_view key) {
  return std::find(of.parameters.begin(), of.parameters.end(), key) != of.parameters.end();
}

// Collects problems of one rule; each check is one line below.
class Review {
 public:
  explicit Review(std::vector<Problem>& into) : into_(into) {}
  void require(bool fine, std::string_view key, const std::string& what) {
    if (!fine) into_.push_back({std::string(key), what});
  }

 private:
  std::vector<Problem>& into_;
};

// Every rank is on one of two sides.
void review_sides(Review& review, const Rule& rule, int ranks) {
  std::vector<int> seen(std::size_t(ranks), 0);
  bool inside = rule.sides.size() == 2;
  for (const std::vector<int>& side : rule.sides) {
    inside = inside && !side.empty();
    for (const int rank : side) {
      if (rank >= 0 && rank < ranks)
        ++seen[std::size_t(rank)];
      else
        inside = false;
    }
  }
  const bool once = std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; });
  review.require(inside && once, "sides",
                 "give two lists, in which each rank from 0 to " + std::to_string(ranks - 1) + " is once");
  review.require(!rule.store_side || *rule.store_side == 0 || *rule.store_side == 1, "store_side", "sides are 0 and 1");
}

void review_places(Review& review, const Rule& rule, const FaultInfo& of, const std::vector<int>& node_of) {
  const int ranks = int(node_of.size());
  const int nodes = node_of.empty() ? 0 : *std::max_element(node_of.begin(), node_of.end()) + 1;
  const std::string world = "ranks go from 0 to " + std::to_string(ranks - 1);
  const auto is_rank = [&](const std::optional<int>& r) { return !r || (*r >= 0 && *r < ranks); };
  review.require(is_rank(rule.when.rank), "rank", world);
  review.require(is_rank(rule.when.peer), "peer", world);
  review.require(!rule.when.rank || rule.when.rank != rule.when.peer, "peer", "a rank sends no message to itself");
  if (is_link(rule.kind) && rule.kind != FaultKind::partition) {
    review.require(rule.from && rule.to, "link", "give the link: {\"from\": 0, \"to\": 1} or {\"nodes\": [0, 1]}");
    const int limit = rule.nodes ? nodes : ranks;
    const auto inside = [&](const std::optional<int>& end) { return !end || (*end >= 0 && *end < limit); };
    review.require(inside(rule.from) && inside(rule.to), "link",
                   rule.nodes ? "nodes go from 0 to " + std::to_string(nodes - 1) : world);
    review.require(!rule.from || rule.from != rule.to, "link", "a link has two different ends");
  } else {
    review.require(!rule.from && !rule.to, "link", std::string(name(of.kind)) + " has no link");
  }
  review.require(!is_slow(rule.kind) || rule.when.rank, "rank", "say which rank is slow");
  const bool crashes = rule.kind == FaultKind::rank_crash || rule.kind == FaultKind::pause;
  review.require(!crashes || !is_timed(rule.when) || rule.when.rank, "rank", "a crash at a time needs its rank");
  review.require(!rule.when.node || (*rule.when.node >= 0 && *rule.when.node < nodes), "node",
                 "nodes go from 0 to " + std::to_string(nodes - 1));
  review.require(rule.kind != FaultKind::node_crash || rule.when.node, "node", "say which machine");
  review.require(rule.kind != FaultKind::clock_skew || rule.when.rank, "rank", "say whose clock");
  const bool told = rule.kind == FaultKind::preemption_notice;
  review.require(!told || rule.when.rank.has_value() != rule.when.node.has_value(), "rank", "give a rank or a node");
  if (rule.kind == FaultKind::partition) review_sides(review, rule, ranks);
}

void review_trigger(Review& review, const Rule& rule, const FaultInfo& of) {
  const Trigger& when = rule.when;
  const std::string kind(name(of.kind));
  review.require(!when.peer || allows(of, "peer"), "peer", kind + " has no peer");
  review.require(!when.rank || allows(of, "rank"), "rank", kind + " is not about a single rank");
  review.require(!when.op || (allows(of, "op") && can_concern(rule, *when.op)), "op",
                 kind + " cannot happen in " + std::string(when.op ? runtime::name(*when.op) : ""));
  review.require(!when.sample || allows(of, "sample"), "sample", kind + " is about no single sample");
  review.require(!when.sample || *when.sample >= 0, "sample", "samples are counted from 0");
  const bool at_message = rule.site == Site::message;
  const bool needs_time = is_of_the_control_plane(rule.kind) || rule.kind == FaultKind::preemption_notice;
  review.require(!needs_time || when.at_ns, "at_s", "say when: in virtual seconds, from the start of the run");
  review.require(!is_value(rule.kind) || at_message || (!when.peer && !when.op), when.peer ? "peer" : "op",
                 "only site message has one");
  review.require(!at_message || (!when.layer && when.tensor.empty()), when.layer ? "layer" : "tensor",
                 "a message is told by op, peer, step and phase");
  review.require(!when.call || *when.call >= 1, "call", "calls are counted from 1");
  review.require(!when.at_ns || *when.at_ns >= 0, "at_s", "a run starts at 0");
  review.require(when.probability > 0 && when.probability <= 1, "probability", "must be above 0 and at most 1");
  review.require(rule.count >= 0, "count", "must be at least 1, or 0 for without limit");
}

std::string all_tags() {
  std::string all;
  for (int tag = 0; tag < int(runtime::MemoryTag::count_); ++tag)
    all += (tag > 0 ? ", " : "") + std::string(name(runtime::MemoryTag(tag)));
  return all;
}

bool is_tag(const std::string& word) {
  for (int tag = 0; tag < int(runtime::MemoryTag::count_); ++tag) {
    if (word == name(runtime::MemoryTag(tag))) return true;
  }
  return false;
}

void review_numbers(Review& review, const Rule& rule, const FaultInfo& of) {
  const bool site_fits = std::find(of.sites.begin(), of.sites.end(), rule.site) != of.sites.end();
  review.require(site_fits || (of.sites.empty() && rule.site == Site::unset), "site",
                 std::string(name(of.kind)) + " cannot strike \"" + std::string(name(rule.site)) + "\"");
  review.require(rule.elements > 0, "elements", "must be at least 1");
  review.require(rule.token >= 0, "token", "must not be negative");
  review.require(rule.tag.empty() || is_tag(rule.tag), "tag", "no memory has this tag; they are: " + all_tags());
  const bool mode_fits = std::find(of.modes.begin(), of.modes.end(), rule.mode) != of.modes.end();
  review.require(rule.mode == Mode::unset || mode_fits, "mode",
                 std::string(name(of.kind)) + " has no mode \"" + std::string(name(rule.mode)) + "\"");
  review.require(rule.delay_ns >= 0, "delay_s", "must not be negative");
  review.require(rule.returns_ns >= 0, "returns_s", "must not be negative");
  review.require(rule.signal.empty() || allows(of, "signal"), "signal", std::string(name(of.kind)) + " has no signal");
  review.require(rule.signal.empty() || process_ending(rule.signal), "signal",
                 "\"" + rule.signal + "\" ends no process: give kill, segv, abrt, or exit:N with N from 0 to 255");
  const bool needs_delay =
      rule.kind == FaultKind::pause || rule.kind == FaultKind::data_stall || rule.kind == FaultKind::zombie_message;
  review.require(!needs_delay || rule.delay_ns > 0, "delay_s", "say how long: above 0");
  review.require(rule.down_ns >= 0, "down_s", "must not be negative");
  review.require(rule.notice_ns >= 0, "notice_s", "must not be negative");
  review.require(rule.cancelled >= 0 && rule.cancelled <= 1, "cancelled", "a chance: from 0 to 1");
  review.require(rule.loss > 0 && rule.loss <= 1, "loss", "a share: above 0 and at most 1");
  review.require(rule.kind == FaultKind::link_drop || rule.loss == 1, "loss", "only link_drop has one");
  review.require(rule.cool_ns >= 0, "cool_s", "must not be negative");
  review.require(rule.staleness >= 1, "staleness", "must be at least 1 step");
  const bool too_early = rule.mode == Mode::delayed_apply && rule.when.step && *rule.when.step < rule.staleness;
  review.require(!too_early, "step", "so many steps before there are no gradients yet");
  review.require(rule.kind != FaultKind::device_error || rule.code == 214 || rule.code == 220 || rule.code == 226,
                 "code", "CUDA has 214, 220 and 226 for this");
  review.require(rule.kind != FaultKind::clock_skew || rule.offset_ns != 0 || rule.drift_ppm != 0, "offset_s",
                 "give an offset_s or a drift_ppm that is not 0");
  review.require(std::abs(rule.drift_ppm) <= 1e9, "drift_ppm", "from -1e9 to 1e9: a thousand seconds a second");
  if (rule.kind == FaultKind::collective_timeout) {
    review.require(rule.mode != Mode::late || rule.delay_ns > 0, "delay_s", "mode late needs a delay_s above 0");
    review.require(rule.mode == Mode::late || rule.delay_ns == 0, "delay_s", "only mode late has a delay");
  }
  if (rule.kind == FaultKind::link_drop && rule.mode == Mode::transient) {
    review.require(rule.down_ns > 0, "down_s", "must be above 0");
    review.require(rule.up_ns >= 0, "up_s", "must not be negative");
    review.require(rule.cycles >= 1, "cycles", "must be at least 1");
  }
  if (rule.kind == FaultKind::slow_link) {
    review.require(rule.factor >= 1 / kSlowerAtMost && rule.factor <= 1, "factor",
                   "the share of bandwidth left: from 1e-9 to 1");
  }
  if (is_slow(rule.kind)) {
    review.require(rule.factor >= 1 && rule.factor <= kSlowerAtMost, "factor", "how many times slower: from 1 to 1e9");
    review.require(rule.mode != Mode::periodic || rule.period_ns > 0, "period_s", "must be above 0");
    review.require(rule.mode != Mode::periodic || (rule.duty > 0 && rule.duty <= 1), "duty", "above 0 and at most 1");
    review.require(rule.mode != Mode::ramp || rule.ramp_ns > 0, "ramp_s", "must be above 0");
  }
}

}  // namespace

std::vector<Problem> problems(const Rule& given, const std::vector<int>& node_of) {
  if (given.kind >= FaultKind::count_) return {{"kind", "no such fault; `seeksim list faults` names them"}};
  const Rule rule = with_defaults(given);
  const FaultInfo& of = info(rule.kind);
  std::vector<Problem> found;
  Review review(found);
  review_places(review, rule, of, node_of);
  review_trigger(review, rule, of);
  review_numbers(review, rule, of);
  return found;
}

}  // namespace seeksim::faults
