// The search over orders, and the names of what it is about.
#include "sim/order_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/check.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::sim {

namespace {
constexpr runtime::EnumNames<ObjectKind> kKinds({{ObjectKind::none, "none"},
                                                 {ObjectKind::host, "host"},
                                                 {ObjectKind::park, "park"},
                                                 {ObjectKind::signals, "signals"},
                                                 {ObjectKind::answer, "answer"},
                                                 {ObjectKind::operations, "operations"},
                                                 {ObjectKind::queue, "queue"},
                                                 {ObjectKind::group, "group"},
                                                 {ObjectKind::meeting, "meeting"},
                                                 {ObjectKind::network, "network"},
                                                 {ObjectKind::center, "center"},
                                                 {ObjectKind::fence, "fence"},
                                                 {ObjectKind::disk, "disk"}});
constexpr runtime::EnumNames<Arrival> kArrivals({{Arrival::deadline, "a deadline of"},
                                                 {Arrival::sleep, "the end of a sleep of"},
                                                 {Arrival::kernel, "a kernel of"},
                                                 {Arrival::operation, "the end of an operation of"},
                                                 {Arrival::to_center, "a message from"},
                                                 {Arrival::poll_deadline, "a vote's deadline"},
                                                 {Arrival::reply, "an answer to"},
                                                 {Arrival::revoke, "a revoke to"},
                                                 {Arrival::death, "the death of"},
                                                 {Arrival::noticed, "the news of the death of"},
                                                 {Arrival::silence, "the silence of"},
                                                 {Arrival::built, "a communicator that is built"},
                                                 {Arrival::error, "an error of"},
                                                 {Arrival::zombie, "a message that comes twice to"},
                                                 {Arrival::dies, "the death by a fault of"},
                                                 {Arrival::fault, "a fault of"}});
}  // namespace

std::string_view name(ObjectKind kind) { return kKinds.of(kind); }

std::string describe_process(std::uint64_t process) {
  if (process >> 63 == 0) {
    const std::uint64_t rank = process >> 32;
    return (process & 1) != 0 ? fmt::format("a queue of rank {}", rank) : fmt::format("rank {}'s host", rank);
  }
  const std::size_t kind = process >> 56 & 127;
  const std::int64_t rank = std::int64_t(process >> 36 & 0xfffff) - 1;
  const std::string_view what = kArrivals.of(Arrival(kind), "something");
  return rank < 0 ? std::string(what) : fmt::format("{} rank {}", what, rank);
}

void Heard::add(int rank, std::uint64_t what) {
  std::uint64_t& heard = by_rank_[rank];
  heard = (heard ^ what) * 0xff51afd7ed558ccdull;
  heard ^= heard >> 33;
}

std::uint64_t Heard::digest() const {
  std::uint64_t all = 0x243f6a8885a308d3ull;
  for (const auto& [rank, what] : by_rank_) all = (all ^ what ^ std::uint64_t(rank) << 48) * 0x9fb21c651e98df25ull;
  return all ^ all >> 32;
}

// ---- what concerns what ------------------------------------------------------------------------------------------

bool OrderSearch::concern(Access a, Access b) {
  if (a == Access::after || b == Access::after) return false;
  if (a == Access::write || b == Access::write) return true;
  return a != b;  // reads among themselves do not, nor does what is added
}

bool OrderSearch::concern(const Touches& a, const Touches& b) {
  for (const Touch& one : a) {
    for (const Touch& other : b) {
      if (one.object == other.object && concern(one.how, other.how)) return true;
    }
  }
  return false;
}

bool OrderSearch::Node::can(Process process) const { return std::binary_search(able.begin(), able.end(), process); }

bool OrderSearch::Node::follows(std::uint32_t step) const {
  if (step < since) return true;
  const std::uint32_t bit = step - since;
  return bit / 64 < history.size() && (history[bit / 64] >> (bit % 64) & 1) != 0;
}

// ---- runs --------------------------------------------------------------------------------------------------------

bool OrderSearch::begin_run() {
  if (complete_) return false;
  if (ran_) {  // the deepest decision with a way that was not gone
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      node.asleep[node.chosen] = node.touches;
      const auto next = std::find_if(node.to_go.begin(), node.to_go.end(),
                                     [&](Process process) { return !node.asleep.contains(process); });
      if (next != node.to_go.end()) {
        node.chosen = *next;
        break;
      }
      nodes_.pop_back();
    }
    complete_ = nodes_.empty();
    if (complete_) return false;
  }
  fixed_ = std::uint32_t(nodes_.size());
  at_ = since_ = 0;
  gave_up_ = false;
  by_object_.clear();
  last_step_.clear();
  made_able_.clear();
  heard_.clear();
  ran_ = true;
  return true;
}

bool OrderSearch::end_run() {
  if (at_ > 0 && !gave_up_) step_over();
  SEEKSIM_CHECK(at_ >= fixed_, "a run ended before the step at which it was to go another way (%u of %u)", at_, fixed_);
  ++(gave_up_ ? counts_.given_up : counts_.runs);
  counts_.steps += at_;
  counts_.depth = std::max<std::size_t>(counts_.depth, at_);
  return !gave_up_;
}

std::uint64_t OrderSearch::left() const {
  std::uint64_t n = 0;
  for (const Node& node : nodes_) {
    for (const Process process : node.to_go) n += process != node.chosen && !node.asleep.contains(process) ? 1 : 0;
  }
  return n;
}

// ---- steps -------------------------------------------------------------------------------------------------------

std::uint32_t OrderSearch::choose(std::span<const std::uint64_t> processes) {
  if (gave_up_) return kEnough;
  if (at_ > 0) step_over();
  if (processes.size() > 1) ++counts_.decisions;
  const auto place = [&](Process process) {
    return std::uint32_t(std::lower_bound(processes.begin(), processes.end(), process) - processes.begin());
  };
  if (at_ < fixed_) {
    Node& node = nodes_[at_];
    SEEKSIM_CHECK(std::equal(node.able.begin(), node.able.end(), processes.begin(), processes.end()),
                  "step %u of a run that was to repeat another one finds others who can run", at_);
    node.touches.clear();
    ++at_;
    return place(node.chosen);
  }
  Node node;
  node.able.assign(processes.begin(), processes.end());
  node.since = since_;
  if (at_ > 0) fall_asleep(node, nodes_[at_ - 1]);
  const auto awake =
      std::find_if(node.able.begin(), node.able.end(), [&](Process process) { return !node.asleep.contains(process); });
  if (awake == node.able.end()) {
    gave_up_ = true;
    return kEnough;
  }
  node.chosen = *awake;
  if (options_.reduce)
    node.to_go = {node.chosen};
  else
    node.to_go = {node.able.begin(), node.able.end()};
  if (!options_.reduce && node.able.size() > 1) ++counts_.points;
  nodes_.push_back(std::move(node));
  ++at_;
  return place(nodes_.back().chosen);
}

// A process that slept before the last step, and is not concerned by that step, sleeps on.
void OrderSearch::fall_asleep(Node& node, const Node& last) const {
  if (!options_.reduce) return;
  for (const auto& [process, touches] : last.asleep) {
    if (process == last.chosen || concern(touches, last.touches)) continue;
    if (node.can(process)) node.asleep[process] = touches;
  }
}

void OrderSearch::touched(Object object, Access how) {
  if (at_ == 0 || gave_up_ || object.kind() == options_.blind_to) return;
  Touches& touches = nodes_[at_ - 1].touches;
  for (Touch& known : touches) {
    if (known.object != object) continue;
    if (known.how == how || known.how == Access::write) return;
    if (how == Access::write || known.how == Access::after) {
      known.how = how;
      return;
    }
    if (how == Access::after) return;
    known.how = Access::write;  // read and added to
    return;
  }
  touches.push_back({object, how});
}

void OrderSearch::enabled(std::uint64_t process) {
  if (at_ > since_ && !gave_up_) made_able_[process].push_back(at_ - 1);
}

// All that ran before comes before all that follows.
void OrderSearch::clock_moved() {
  if (gave_up_) return;
  if (at_ > 0) step_over();
  since_ = at_;
  by_object_.clear();
  last_step_.clear();
  made_able_.clear();
}

void OrderSearch::step_over() {
  const std::uint32_t step = at_ - 1;
  if (step < since_) return;  // was over when the clock moved
  Node& node = nodes_[step];
  if (last_step_.contains(node.chosen) && last_step_[node.chosen] == step) return;
  node.since = since_;
  std::vector<std::pair<std::uint32_t, bool>> direct;  // steps that it follows on; whether it might have come first
  if (const auto last = last_step_.find(node.chosen); last != last_step_.end()) direct.push_back({last->second, false});
  if (const auto made = made_able_.find(node.chosen); made != made_able_.end()) {
    for (const std::uint32_t by : made->second) {
      if (by != step) direct.push_back({by, false});
    }
    std::erase_if(made->second, [step](std::uint32_t by) { return by != step; });
  }
  for (const Touch& touch : node.touches) {
    std::vector<Touched>& all = by_object_[touch.object.id];
    for (std::size_t i = all.size(); i-- > 0;) {
      const bool concerns = concern(all[i].how, touch.how);
      const bool made_possible =
          touch.how == Access::after && all[i].how != Access::after && all[i].how != Access::read;
      if (concerns || made_possible) direct.push_back({all[i].step, concerns});
      if (all[i].how == Access::write) break;
    }
    all.push_back({step, touch.how});
  }
  last_step_[node.chosen] = step;
  node.history.assign((step - since_) / 64 + 1, 0);
  for (const auto& [before, race] : direct) {
    const Node& other = nodes_[before];
    for (std::size_t i = 0; i < other.history.size(); ++i) node.history[i] |= other.history[i];
    node.history[(before - since_) / 64] |= std::uint64_t(1) << ((before - since_) % 64);
  }
  if (options_.reduce && step + 1 >= fixed_) find_races(step, direct);
}

void OrderSearch::find_races(std::uint32_t step, const std::vector<std::pair<std::uint32_t, bool>>& direct) {
  std::set<std::uint32_t> firsts;
  for (const auto& [first, race] : direct) {
    if (!race || nodes_[first].chosen == nodes_[step].chosen) continue;
    const bool between = std::any_of(direct.begin(), direct.end(), [&, first = first](const auto& other) {
      return other.first != first && nodes_[other.first].follows(first);
    });
    if (!between) firsts.insert(first);
  }
  for (const std::uint32_t first : firsts) go_the_other_way(first, step);
}

// Adds, before `first`, a process that can begin a run in which `second` comes first.
void OrderSearch::go_the_other_way(std::uint32_t first, std::uint32_t second) {
  ++counts_.races;
  // Takes `second` and the steps between that do not follow from `first`. Finds those that follow from no other one.
  Node& node = nodes_[first];
  std::vector<std::uint64_t> rest(nodes_[second].history.size(), 0);
  std::set<Process> begin;
  for (std::uint32_t step = first + 1; step <= second; ++step) {
    const Node& other = nodes_[step];
    if (step != second && other.follows(first)) continue;
    bool is_first = node.can(other.chosen);
    for (std::size_t i = 0; i < other.history.size() && is_first; ++i) is_first = (other.history[i] & rest[i]) == 0;
    if (is_first) begin.insert(other.chosen);
    rest[(step - node.since) / 64] |= std::uint64_t(1) << ((step - node.since) % 64);
  }
  begin.erase(node.chosen);
  for (const Process process : begin) {
    if (node.to_go.contains(process) || node.asleep.contains(process)) return;
  }
  if (begin.empty()) return;  // nothing could have made `second` possible without `first`
  if (node.to_go.size() == 1) ++counts_.points;
  node.to_go.insert(*begin.begin());
}

}  // namespace seeksim::sim
