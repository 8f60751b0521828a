#include "runtime/decide/membership.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/layout/grid.h"
#include "runtime/seams/words.h"

namespace seeksim::runtime {

namespace {

// The part of the model that sits on a seat.
int part_of(const ParallelPlan& plan, const Seats& seats, int seat) {
  const GridPlace place = launch_place(plan, seats.count, seat);
  return place.stage * plan.ways() + place.way;
}

// Gives each waiting rank a free seat of the part with the fewest holders, its own seat if possible. The rest wait on.
std::vector<int> seat_joiners(const ParallelPlan& plan, Seats& seats, const std::vector<int>& stay,
                              const std::vector<int>& waiting) {
  std::set<int> free;
  for (int seat = 0; seat < seats.count; ++seat) free.insert(seat);
  std::vector<int> holders(std::size_t(plan.ranks()));
  const auto take = [&](int seat) {
    free.erase(seat);
    ++holders[std::size_t(part_of(plan, seats, seat))];
  };
  for (const int rank : stay) take(seats.of(rank));
  std::erase_if(seats.elsewhere,
                [&](const auto& entry) { return !std::binary_search(stay.begin(), stay.end(), entry.first); });
  std::vector<int> joiners;
  for (const int rank : waiting) {
    if (free.empty()) break;
    if (std::binary_search(stay.begin(), stay.end(), rank)) continue;
    const auto held = [&](int seat) { return holders[std::size_t(part_of(plan, seats, seat))]; };
    const int fewest =
        held(*std::min_element(free.begin(), free.end(), [&](int a, int b) { return held(a) < held(b); }));
    const bool own = free.contains(rank) && held(rank) == fewest;
    const int seat = own ? rank : *std::find_if(free.begin(), free.end(), [&](int s) { return held(s) == fewest; });
    if (seat != rank) seats.elsewhere[rank] = seat;
    joiners.push_back(rank);
    take(seat);
  }
  return joiners;
}

}  // namespace

NextWorld next_world(const ParallelPlan& plan, const Seats& seats, const std::vector<int>& stay,
                     const std::vector<int>& waiting) {
  const auto with = [&](const std::vector<int>& who_waits) {
    NextWorld next;
    next.roster.seats = seats;
    std::vector<int> all = stay;
    std::sort(all.begin(), all.end());
    const std::vector<int> joiners = seat_joiners(plan, next.roster.seats, all, who_waits);
    std::vector<int> everybody = all;
    everybody.insert(everybody.end(), joiners.begin(), joiners.end());
    std::sort(everybody.begin(), everybody.end());
    const Grid grid(plan, next.roster.seats, everybody);
    next.problem = grid.problem();
    next.roster.members = grid.used();
    const auto is_used = [&](int rank) {
      return std::binary_search(next.roster.members.begin(), next.roster.members.end(), rank);
    };
    std::copy_if(joiners.begin(), joiners.end(), std::back_inserter(next.joiners), is_used);
    std::copy_if(all.begin(), all.end(), std::back_inserter(next.idle), [&](int rank) { return !is_used(rank); });
    std::erase_if(next.roster.seats.elsewhere, [&](const auto& entry) { return !is_used(entry.first); });
    return next;
  };
  NextWorld alone = with({});
  if (waiting.empty()) return alone;
  // Waiting ranks are of use only if they make more replicas.
  NextWorld more = with(waiting);
  return more.roster.members.size() > alone.roster.members.size() ? more : alone;
}

// ---- as words ----------------------------------------------------------------------------------------------------

template <class Archive>
void fields(Archive& a, SkipState& s) {
  a(s.steps, s.skipped, s.consecutive, s.first_step, s.last_step, s.first_scale, s.last_scale, s.nonfinite_min,
    s.nonfinite_max);
}

template <class Archive>
void fields(Archive& a, LossScalerState& s) {
  LossScalerWords words = to_words(s);
  a(words);
  if constexpr (Archive::kReads) s = from_words(words);
}

template <class Archive>
void fields(Archive& a, SamplerState& s) {
  a(s.seed, s.epoch, s.index);
}

template <class Archive>
void fields(Archive& a, Fp8State& s) {
  a(s.scale, s.amax_history);
}

template <class Archive>
void fields(Archive& a, RunState& s) {
  a(s.contract_version, s.definition, s.step, s.data_position, s.sampler, s.training_seed, s.optimizer_steps, s.skips,
    s.dropped_batches, s.undone_changes, s.scaler, s.fp8, s.epoch);
}

template <class Archive>
void fields(Archive& a, Roster& r) {
  a(r.members, r.seats.count, r.seats.elsewhere);
}

template <class Archive>
void fields(Archive& a, DivergenceMonitor::Step& s) {
  a(s.loss, s.grad_norm);
}

template <class Archive>
void fields(Archive& a, HandOver& h) {
  a(h.run, h.world, h.joiners, h.load_most, h.shards, h.window, h.left_out, h.leaves_out_more);
}

std::vector<std::int64_t> to_words(const HandOver& all) {
  WordWriter out;
  out(all);
  return out.take();
}

HandOver hand_over_from(std::span<const std::int64_t> words) {
  WordReader in(words);
  HandOver all;
  in(all);
  return all;
}

}  // namespace seeksim::runtime
