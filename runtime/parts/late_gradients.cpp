#include "runtime/parts/late_gradients.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/parts/late_arrivals.h"
#include "runtime/parts/residuals.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

constexpr std::int64_t kEmpty = -1;  // stamp of a place that nothing was put into

}  // namespace

Index LateGradients::places() const {
  return plan_.definition.staleness.bound + 1 + (plan_.bug.is(Bug::late_beyond_bound) ? 1 : 0);
}

Index LateGradients::place_of(std::int64_t clock) const {
  const Index used = plan_.bug.is(Bug::late_place_reused) ? std::max<Index>(places() - 1, 1) : places();
  return clock % used;
}

void LateGradients::lay_out(Launcher& launch, const std::vector<int>& members, int position) {
  if (members_ == members) return;
  members_.clear();  // until there is memory for all of it: a device may have none left
  workers_ = workers_of(plan_.definition.staleness, int(members.size()), position);
  const Index values = workers_.size() * places() * elements_, words = 2 * workers_.size() * places();
  const auto make = [&](Index bytes, const char* name) {
    return device_.allocate(std::size_t(std::max<Index>(bytes, 8)), MemoryTag::communication, name);
  };
  gradients_ = make(values * Index(sizeof(float)), "late gradients");
  stamps_ = make(words * Index(sizeof(std::int64_t)), "clocks of late gradients");
  came_.assign(std::size_t(workers_.size()), 0);
  members_ = members;
  if (values == 0) return;
  launch(
      "late gradients", SEEKSIM_SITE, memory_cost(values, 0),
      [](Lane lane, Vec<float> x) { kernels::fill_bits(lane, x, 0); }, vec<float>(*gradients_, 0, values));
  launch(
      "clocks of late gradients", SEEKSIM_SITE, memory_cost(2 * words, 0),
      [](Lane, Vec<std::int64_t> x) { std::fill_n(x.data, x.n, kEmpty); }, vec<std::int64_t>(*stamps_, 0, words));
}

std::string LateGradients::lost(const std::vector<int>& members) const {
  const StalenessPlan& plan = plan_.definition.staleness;
  if (members_.empty() || members_ == members || plan.bound == 0) return {};
  return part_lost(plan.workers, members_, members, "the late gradients of worker");
}

VecView<float> LateGradients::place(Index worker, Index place) const {
  return vec<float>(*gradients_, (worker * places() + place) * elements_, elements_);
}

VecView<std::int64_t> LateGradients::stamps(Index worker) const {
  return vec<std::int64_t>(*stamps_, 2 * worker * places(), places());
}

VecView<const std::int64_t> LateGradients::came(Index worker) const {
  return vec<const std::int64_t>(*stamps_, (2 * worker + 1) * places(), came_[std::size_t(worker)]);
}

// What comes, with the mistakes that can be planted in it.
std::vector<std::int64_t> LateGradients::arrivals_of(Index worker, std::int64_t clock) const {
  const PlantedBug& bug = plan_.bug;
  const std::int64_t number = bug.is(Bug::late_by_rank) ? worker : workers_.begin + worker;
  if (bug.is(Bug::late_beyond_bound)) {  // one step after all others have it
    if (clock == 0) return {};
    return arrivals(plan_.definition, number, clock - 1);
  }
  std::vector<std::int64_t> come = arrivals(plan_.definition, number, clock);
  if (bug.is(Bug::late_older_dropped) && come.size() > 1) come.erase(come.begin(), come.end() - 1);
  if (bug.is(Bug::late_repeated) && come.empty()) {
    for (std::int64_t before = clock - 1; come.empty() && before >= 0; --before)
      come = arrivals(plan_.definition, number, before);
    if (!come.empty()) come.erase(come.begin(), come.end() - 1);
  }
  return come;
}

void LateGradients::exchange(Launcher& launch, std::int64_t clock, float unscale, float scale,
                             const std::vector<VecView<float>>& fresh) {
  SEEKSIM_CHECK_EQ(Index(fresh.size()), workers_.size());
  if (plan_.bug.is(Bug::late_in_scaled_units)) unscale = scale = 1;
  for (Index worker = 0; worker < workers_.size(); ++worker) {
    const VecView<float> own = fresh[std::size_t(worker)];
    launch(
        "late gradients", SEEKSIM_SITE, memory_cost(2 * elements_),
        [unscale](Lane lane, Vec<const float> x, Vec<float> kept) {
          kernels::copy(lane, x, kept);
          if (unscale != 1.0F) kernels::scale(lane, kept, unscale);
        },
        reads(own), place(worker, place_of(clock)));
    const std::vector<std::int64_t> come = arrivals_of(worker, clock);
    stamp(launch, worker, clock, come);
    give(launch, worker, come, scale, own);
  }
}

// The clock of what has just been put away, and those of what comes.
void LateGradients::stamp(Launcher& launch, Index worker, std::int64_t clock, const std::vector<std::int64_t>& come) {
  constexpr const char* kTensor = "clocks of late gradients";
  launch(
      kTensor, SEEKSIM_SITE, memory_cost(2, 0), [clock](Lane, Vec<std::int64_t> stamp) { stamp[0] = clock; },
      stamps(worker).part(place_of(clock), 1));
  came_[std::size_t(worker)] = Index(come.size());
  const VecView<std::int64_t> all = vec<std::int64_t>(*stamps_, (2 * worker + 1) * places(), places());
  for (std::size_t i = 0; i < come.size(); ++i) {
    launch(
        kTensor, SEEKSIM_SITE, memory_cost(4, 0),
        [](Lane, Vec<const std::int64_t> stamp, Vec<std::int64_t> seen) { seen[0] = stamp[0]; },
        reads(stamps(worker).part(place_of(come[i]), 1)), all.part(Index(i), 1));
  }
}

void LateGradients::continue_at(Launcher& launch, std::int64_t clock) {
  for (Index worker = 0; worker < workers_.size(); ++worker) {
    launch(
        "clocks of late gradients", SEEKSIM_SITE, memory_cost(2 * places(), 0),
        [clock](Lane, Vec<std::int64_t> stamps) {
          for (Index place = 0; place < stamps.n; ++place)
            stamps[place] = clock > place ? (clock - 1 - place) / stamps.n * stamps.n + place : kEmpty;
        },
        stamps(worker));
  }
}

// A chain, the oldest first.
void LateGradients::give(Launcher& launch, Index worker, const std::vector<std::int64_t>& come, float scale,
                         VecView<float> to) {
  const VecView<const float> oldest = come.empty() ? VecView<const float>{} : reads(place(worker, place_of(come[0])));
  launch(
      "gradients", SEEKSIM_SITE, memory_cost(2 * elements_),
      [](Lane lane, Vec<const float> one, Vec<float> sum) { kernels::replace_finite(lane, one, sum); }, oldest, to);
  for (std::size_t i = 1; i < come.size(); ++i) {
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(3 * elements_, 1.0 / 3),
        [](Lane lane, Vec<const float> one, Vec<float> sum) { kernels::tree_add(lane, sum, one, sum); },
        reads(place(worker, place_of(come[i]))), to);
  }
  if (scale == 1.0F) return;
  launch(
      "gradients", SEEKSIM_SITE, memory_cost(2 * elements_),
      [scale](Lane lane, Vec<float> sum) { kernels::scale(lane, sum, scale); }, to);
}

}  // namespace seeksim::runtime
