#include "harness/campaign/nodes.h"

#include <algorithm>
#include <set>

#include "runtime/seams/bounded.h"

namespace seeksim::harness::campaign {

Nodes::Nodes(const Study& study) : study_(study) {
  const std::int64_t members = study.cluster.nodes, hot = study.spares.hot, all = members + hot + study.spares.cold;
  is_.assign(std::size_t(all), Is::cold);
  seat_of_.assign(std::size_t(all), -1);
  for (std::int64_t node = 0; node < members; ++node) {
    is_[std::size_t(node)] = Is::member;
    seat_of_[std::size_t(node)] = node;
    node_at_.push_back(node);
  }
  // The lowest number steps in first.
  for (std::int64_t node = all - 1; node >= members; --node) {
    const bool is_hot = node < members + hot;
    is_[std::size_t(node)] = is_hot ? Is::hot : Is::cold;
    (is_hot ? hot_ : cold_).push_back(node);
  }
}

void Nodes::hit_node(std::int64_t node, bool leaves, TimeNs back_ns, Hit& hit) {
  if (node < 0 || node >= std::int64_t(is_.size())) return;  // the last rack is not full
  Is& is = is_[std::size_t(node)];
  if (is == Is::away || is == Is::cold) return;
  hit.job = hit.job || is == Is::member;
  if (!leaves) return;
  if (is == Is::member) {
    std::int64_t& seat = seat_of_[std::size_t(node)];
    hit.seats.push_back(seat);
    node_at_[std::size_t(seat)] = -1;
    seat = -1;
    ++empty_;
  } else {
    hot_.erase(std::find(hot_.begin(), hot_.end(), node));
  }
  is = Is::away;
  away_.push({back_ns, node});
}

Nodes::Hit Nodes::strike(const Failure& failure, TimeNs back_ns) {
  Hit hit;
  const std::int64_t first = failure.of_the_job ? node_of_the_job(failure.pick) : failure.node;
  for (std::int64_t node = first; node < first + failure.nodes; ++node)
    hit_node(node, failure.repair_ns > 0, back_ns, hit);
  return hit;
}

void Nodes::settle(TimeNs now) {
  while (!away_.empty() && away_.top().back_ns <= now) {
    const std::int64_t node = away_.top().node;
    away_.pop();
    const bool is_hot = std::int64_t(hot_.size()) < study_.spares.hot;
    is_[std::size_t(node)] = is_hot ? Is::hot : Is::cold;
    (is_hot ? hot_ : cold_).push_back(node);
  }
}

TimeNs Nodes::next_back() const { return away_.empty() ? runtime::kForever : away_.top().back_ns; }

TimeNs Nodes::fill() {
  double slowest_s = 0;
  for (std::int64_t seat = 0; empty_ > 0 && spares() > 0 && seat < std::int64_t(node_at_.size()); ++seat) {
    if (node_at_[std::size_t(seat)] >= 0) continue;
    const bool is_hot = !hot_.empty();
    std::vector<std::int64_t>& from = is_hot ? hot_ : cold_;
    const std::int64_t node = from.back();
    from.pop_back();
    is_[std::size_t(node)] = Is::member;
    seat_of_[std::size_t(node)] = seat;
    node_at_[std::size_t(seat)] = node;
    --empty_;
    ++filled_;
    slowest_s = std::max(slowest_s, is_hot ? study_.spares.swap_hot_s : study_.spares.swap_cold_s);
  }
  return runtime::to_time_ns(slowest_s * 1e9);
}

std::int64_t Nodes::node_of_the_job(double pick) const {
  const std::size_t seats = node_at_.size();
  const std::size_t first = std::min(seats - 1, std::size_t(pick * double(seats)));
  for (std::size_t i = 0; i < seats; ++i) {
    const std::int64_t node = node_at_[(first + i) % seats];
    if (node >= 0) return node;
  }
  return -1;
}

bool copies_last(const std::vector<std::int64_t>& lost, std::int64_t seats, std::int64_t copies, std::int64_t stride) {
  const std::set<std::int64_t> gone(lost.begin(), lost.end());
  return std::all_of(gone.begin(), gone.end(), [&](std::int64_t seat) {
    for (std::int64_t k = 1; k <= copies; ++k) {
      if (!gone.contains((seat + k * stride) % seats)) return true;
    }
    return false;
  });
}

std::int64_t stride_of(const Cluster& cluster, std::int64_t given) {
  if (given > 0) return given;
  return std::max<std::int64_t>(1, cluster.nodes_per_rack);
}

}  // namespace seeksim::harness::campaign
