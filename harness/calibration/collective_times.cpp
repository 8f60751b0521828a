#include "harness/calibration/collective_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace seeksim::harness::calibration {
namespace {

using Planted = Choice::Planted;

// A way to carry it, as a pipeline: hops that a byte waits for, bytes that pass the narrowest place, and its rate.
struct Path {
  double hops_us = 0;
  double bytes = 0;
  double rate = 1;
  double ramp_us = 0;  // for which a chunk is worth cutting
  double begin_us = 0;
};

class Carrying {
 public:
  Carrying(Collective what, double bytes, const Group& group, const Platform& platform, Planted planted)
      : what_(what), bytes_(bytes), group_(group), platform_(platform), c_(platform.constants), planted_(planted) {
    nodes_ = planted == Planted::no_edge ? 1 : group.nodes();
    local_ = nodes_ > 1 ? group.per_node : group.ranks;
  }

  bool may(Algorithm algorithm, Protocol protocol) const {
    if (nodes_ > 1 && !platform_.has_flags_on_the_wire() && protocol != Protocol::simple) return false;
    if (algorithm == Algorithm::ring) return true;
    if (algorithm == Algorithm::tree) return what_ == Collective::all_reduce;
    const bool sums = what_ == Collective::all_reduce || planted_ == Planted::nvls_gathers;
    return sums && platform_.has_nvls() && local_ > 1 && protocol == Protocol::simple;
  }

  double us(Algorithm algorithm, Protocol protocol) const {
    const Path path = algorithm == Algorithm::ring   ? ring(protocol)
                      : algorithm == Algorithm::tree ? tree(protocol)
                                                     : nvls();
    const double stream = path.bytes / path.rate;
    // Chunks of a size s cost (stages * s / rate) to fill the pipeline and (overhead / s) each: the best s gives a
    // root.
    const double fill = protocol == Protocol::simple ? 2 * std::sqrt(stream * path.ramp_us) : 0;
    return c_.launch_us + c_.launch_each_us * (group_.process - 1) + path.begin_us + path.hops_us + stream + fill;
  }

 private:
  double share(Protocol p) const { return p == Protocol::ll ? c_.share_ll : p == Protocol::ll128 ? c_.share_ll128 : 1; }
  double hop(Protocol p) const {
    return p == Protocol::ll ? c_.hop_ll : p == Protocol::ll128 ? c_.hop_ll128 : c_.hop_simple;
  }
  double far_hop(Protocol p) const { return platform_.hop_us() * (p == Protocol::simple ? c_.net_simple : 1); }
  double wire() const { return platform_.wire_bytes_per_us(nodes_) * group_.adapters; }
  double ramp() const { return nodes_ > 1 ? platform_.ramp_us() : c_.ramp_node_us; }
  int rounds() const { return what_ == Collective::all_reduce ? 2 : 1; }
  double levels() const { return std::log2(double(nodes_)); }
  // A tree of two nodes sends each byte out once; of more, a node is inside one of two trees and a leaf of the other.
  double tree_wire() const { return nodes_ > 1 ? wire() / (nodes_ == 2 ? 1 : 2) : std::numeric_limits<double>::max(); }

  Path ring(Protocol p) const {
    const double steps = double(rounds()) * (group_.ranks - 1);
    const double far = nodes_ > 1 ? steps * nodes_ / group_.ranks : 0;
    Path path;
    if (planted_ != Planted::hops_are_free) path.hops_us = (steps - far) * hop(p) + far * far_hop(p);
    path.bytes = (steps + c_.own_chunk) / group_.ranks * bytes_;
    const double inside = local_ > 1 ? platform_.ring_bytes_per_us() : std::numeric_limits<double>::max();
    path.rate = (nodes_ > 1 ? std::min(inside, wire()) : inside) * share(p);
    path.ramp_us = ramp();
    return path;
  }

  Path tree(Protocol p) const {
    Path path;
    path.hops_us = 2 * (local_ - 1) * hop(p) + 2 * levels() * far_hop(p);
    path.bytes = bytes_;
    const double inside = local_ > 1 ? platform_.ring_bytes_per_us() * c_.tree / (2.0 * (local_ - 1) / local_)
                                     : std::numeric_limits<double>::max();
    path.rate = std::min(inside, tree_wire()) * share(p);
    path.ramp_us = ramp();
    return path;
  }

  // The switch adds and copies: a GPU sends its data once, and its share of the sum. A gather would have one way only.
  Path nvls() const {
    Path path;
    path.hops_us = 2 * hop(Protocol::simple) + 2 * levels() * far_hop(Protocol::simple);
    path.bytes = bytes_ / (3 - rounds());
    path.rate = std::min(platform_.nvlink_bytes_per_us() * c_.nvls * local_ / (local_ + 1.0), tree_wire());
    path.ramp_us = nodes_ > 1 ? platform_.ramp_us() : c_.ramp_nvls_us;
    path.begin_us = c_.nvls_us;
    return path;
  }

  Collective what_;
  double bytes_;
  Group group_;
  const Platform& platform_;
  const Constants& c_;
  Planted planted_;
  int nodes_ = 1, local_ = 1;
};

}  // namespace

const char* name(Collective what) {
  constexpr std::array<const char*, 3> kNames = {"all_reduce", "all_gather", "reduce_scatter"};
  return kNames[std::size_t(what)];
}
const char* name(Algorithm algorithm) {
  constexpr std::array<const char*, 3> kNames = {"ring", "tree", "NVLS"};
  return kNames[std::size_t(algorithm)];
}
const char* name(Protocol protocol) {
  constexpr std::array<const char*, 3> kNames = {"LL", "LL128", "Simple"};
  return kNames[std::size_t(protocol)];
}

CollectiveTime collective_time(Collective what, double bytes, const Group& group, const Platform& platform,
                               const Choice& choice) {
  CollectiveTime best;
  if (group.ranks < 2) return best;
  for (const Curve& curve : platform.curves) {
    if (curve.what == what && curve.ranks == group.ranks && curve.nodes == group.nodes() && !choice.algorithm &&
        !choice.protocol)
      return {curve.us(bytes), Algorithm::ring, Protocol::ll, true};
  }
  best.us = std::numeric_limits<double>::max();
  const Carrying carrying(what, bytes, group, platform, choice.planted);
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::nvls}) {
    if (choice.algorithm.value_or(algorithm) != algorithm) continue;
    for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
      if (choice.protocol.value_or(protocol) != protocol || !carrying.may(algorithm, protocol)) continue;
      const double us = carrying.us(algorithm, protocol);
      if (us < best.us) best = {us, algorithm, protocol};
    }
  }
  return best;
}

double bus_bandwidth(Collective what, double bytes, int ranks, double us) {
  const double factor = (what == Collective::all_reduce ? 2.0 : 1.0) * (ranks - 1) / ranks;
  return us > 0 ? bytes * factor / us / 1e3 : 0;
}

}  // namespace seeksim::harness::calibration
