#include "runtime/decide/membership.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "kernels/check.h"
#include "runtime/layout/grid.h"

namespace seeksim::runtime {

namespace {

// The part of the model that sits on a seat.
int part_of(const ParallelPlan& plan, const Seats& seats, int seat) {
  const GridPlace place = launch_place(plan, seats.count, seat);
  return place.stage * plan.tensor + place.way;
}

// Gives each who waits a free seat of a part that has the fewest, its own where that is one. Who finds none waits on.
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
  // Whoever waits is of use only if more replicas come to be.
  NextWorld more = with(waiting);
  return more.roster.members.size() > alone.roster.members.size() ? more : alone;
}

// ---- as words ----------------------------------------------------------------------------------------------------

namespace {

class Writer {
 public:
  template <class... T>
  void all(T... values) {
    (words.push_back(std::bit_cast<std::int64_t>(values)), ...);
  }
  template <class T>
  void list(const std::vector<T>& values) {
    words.push_back(std::int64_t(values.size()));
    words.insert(words.end(), values.begin(), values.end());
  }
  void roster(const Roster& roster) {
    list(roster.members);
    words.push_back(roster.seats.count);
    words.push_back(std::int64_t(roster.seats.elsewhere.size()));
    for (const auto& [rank, seat] : roster.seats.elsewhere) all(std::int64_t(rank), std::int64_t(seat));
  }
  std::vector<std::int64_t> words;
};

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> words) : words_(words) {}
  std::int64_t next() {
    SEEKSIM_CHECK(at_ < words_.size(), "%zu words are handed over, and more are read", words_.size());
    return words_[at_++];
  }
  template <class... T>
  void all(T&... values) {
    ((values = std::bit_cast<T>(next())), ...);
  }
  template <class T>
  void list(std::vector<T>& values) {
    for (std::int64_t left = next(); left > 0; --left) values.push_back(T(next()));
  }
  void roster(Roster& roster) {
    list(roster.members);
    roster.seats.count = int(next());
    for (std::int64_t left = next(); left > 0; --left) {
      const int rank = int(next());
      roster.seats.elsewhere[rank] = int(next());
    }
  }

 private:
  std::span<const std::int64_t> words_;
  std::size_t at_ = 0;
};

// The same fields in the same order, to write and to read.
template <class Words, class Run>
void each_field(Words& words, Run& run) {
  words.all(run.contract_version, run.definition, run.step, run.data_position, run.training_seed, run.optimizer_steps);
  auto& skips = run.skips;
  words.all(skips.steps, skips.skipped, skips.consecutive, skips.first_step, skips.last_step, skips.first_scale,
            skips.last_scale, skips.nonfinite_min, skips.nonfinite_max);
  words.list(run.dropped_batches);
}

}  // namespace

std::vector<std::int64_t> to_words(const HandOver& all) {
  Writer out;
  each_field(out, all.run);
  for (const std::uint64_t word : to_words(all.run.scaler)) out.all(word);
  out.all(std::int64_t(all.run.epoch));
  out.roster(all.world);
  out.list(all.joiners);
  out.all(all.load_most);
  out.roster(all.shards);
  out.all(std::int64_t(all.window.size()));
  for (const DivergenceMonitor::Step& step : all.window) out.all(step.loss, step.grad_norm);
  out.list(all.left_out);
  out.all(all.leaves_out_more);
  return std::move(out.words);
}

HandOver hand_over_from(std::span<const std::int64_t> words) {
  Reader in(words);
  HandOver all;
  each_field(in, all.run);
  LossScalerWords scaler{};
  for (std::uint64_t& word : scaler) in.all(word);
  all.run.scaler = from_words(scaler);
  all.run.epoch = std::uint32_t(in.next());
  in.roster(all.world);
  in.list(all.joiners);
  in.all(all.load_most);
  in.roster(all.shards);
  all.window.resize(std::size_t(in.next()));
  for (DivergenceMonitor::Step& step : all.window) in.all(step.loss, step.grad_norm);
  in.list(all.left_out);
  in.all(all.leaves_out_more);
  return all;
}

}  // namespace seeksim::runtime
