// P: trained parameters; N: ranks.
#include "harness/oracles/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/scenario/variants.h"
#include "runtime/zero/compressed_reduction.h"

namespace seeksim::harness {

Finding compression_conserves(const Evidence& e, const std::string&) {
  const RunRecord::Numbers::Compressed& c = e.run.numbers.compressed;
  if (!e.run.has_values || c.elements == 0) return blind("no gradients were compressed");
  if (c.unconserved > 0)
    return bad(
        fmt::format("{} of {} elements of gradients are not what was sent and what is kept; first on rank {} in "
                    "step {}",
                    c.unconserved, c.elements, c.rank, c.step));
  return good(fmt::format("{} elements: what was sent and what is kept add up exactly; {:.2f} bits an element",
                          c.elements, 8 * double(c.bytes) / double(c.elements)));
}

// A rank sends what compression makes of its groups to their owners; then, where gradients are replicated, its own sums
// to all others.
std::vector<BudgetLine> compressed_traffic(const Scenario& scenario, std::int64_t steps, std::int64_t applied) {
  const runtime::Definition& d = scenario.train.definition;
  const runtime::Parameters parameters(d.model, d.optimizer);
  const int ranks = data_size(scenario);
  const runtime::Partition partition(parameters, ranks);
  const kernels::WireForm form = runtime::wire_form(d.compression);
  const auto wire = [&](runtime::ShardInfo shard) {
    double bytes = 0;
    for (const kernels::WireRun& run : runtime::wire_runs(parameters, form, shard))
      bytes += double(kernels::wire_bytes(form, run.n));
    return bytes;
  };
  const double all = wire({0, parameters.trainable_size()}), losses = sizeof(float) * (ranks - 1.0);
  double reduced = 0, gathered = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const runtime::ShardInfo own = partition.shard(rank);
    const double groups = double(runtime::Residuals::groups_of(d.compression, ranks, rank).size());
    reduced = std::max(reduced, groups * (all - wire(own) + losses));
    gathered = std::max(gathered, sizeof(float) * double(own.size) * (ranks - 1));
  }
  std::vector<BudgetLine> lines = traffic_budget(scenario, steps, applied);
  std::erase_if(lines,
                [](const BudgetLine& line) { return line.name == "all_reduce" || line.name == "reduce_scatter"; });
  lines.push_back(
      {"reduce_scatter", double(steps) * reduced, 0, false, "groups x what compression makes of P(N-1)/N, and a loss"});
  if (scenario.train.layout.zero.stage == 0)
    lines.push_back({"all_gather", double(steps) * gathered, 0, false, "P(N-1)/N sums a step"});
  return lines;
}

std::vector<BudgetLine> compressed_calls(const Scenario& scenario, std::int64_t steps) {
  const double each = double(steps) * data_size(scenario);
  std::vector<BudgetLine> lines = {{"reduce_scatter", each, 0, true, "one a rank and step"}};
  if (scenario.train.layout.zero.stage == 0) lines.push_back({"all_gather", each, 0, true, "one a rank and step"});
  return lines;
}

// ---- gradients that come late --------------------------------------------------------------------------------------

namespace {

// Of one worker, by clock: what each applied step was made of. A recovery that goes back begins an epoch in which
// clocks come again; those hold.
std::map<std::int64_t, std::vector<std::int64_t>> applied_by(std::vector<const runtime::LateRecord*> told) {
  std::stable_sort(told.begin(), told.end(), [](const auto* a, const auto* b) { return a->epoch < b->epoch; });
  std::map<std::int64_t, std::vector<std::int64_t>> by_clock;
  std::uint32_t epoch = 0;
  for (const runtime::LateRecord* one : told) {
    if (one->epoch > epoch) by_clock.erase(by_clock.lower_bound(one->clock), by_clock.end());
    epoch = one->epoch;
    by_clock[one->clock] = one->made;
  }
  return by_clock;
}

std::string wrong_of(std::int64_t worker, std::int64_t bound,
                     const std::map<std::int64_t, std::vector<std::int64_t>>& applied, std::int64_t& latest) {
  std::int64_t next = 0, clock = 0;
  for (const auto& [at, made] : applied) {
    clock = at;
    for (const std::int64_t one : made) {
      const std::string which =
          fmt::format("applied step {}: of worker {} the gradient of clock {} enters", at, worker, one);
      if (one != next) return fmt::format("{}, and the next that is due is that of clock {}", which, next);
      if (at - one > bound) return fmt::format("{} {} steps late; the bound is {}", which, at - one, bound);
      latest = std::max(latest, at - one);
      ++next;
    }
  }
  if (clock - next >= bound)
    return fmt::format("worker {}: after applied step {} the gradient of clock {} still waits; the bound is {}", worker,
                       clock, next, bound);
  return {};
}

}  // namespace

Finding staleness_bounded(const Evidence& e, const std::string&) {
  std::map<std::int64_t, std::vector<const runtime::LateRecord*>> by_worker;
  std::size_t gradients = 0;
  for (const runtime::LateRecord& told : e.run.agreement.late) by_worker[told.worker].push_back(&told);
  if (by_worker.empty()) return blind("no step applied a worker's gradient");
  std::int64_t latest = 0;
  const std::int64_t bound = e.scenario.train.definition.staleness.bound;
  for (const auto& [worker, told] : by_worker) {
    const auto applied = applied_by(told);
    for (const auto& [clock, made] : applied) gradients += made.size();
    if (const std::string wrong = wrong_of(worker, bound, applied, latest); !wrong.empty()) return bad(wrong);
  }
  return good(
      fmt::format("{} gradients of {} workers entered one step each, in order, at most {} late ({} are allowed)",
                  gradients, by_worker.size(), latest, bound));
}

// ---- workers that train apart --------------------------------------------------------------------------------------

Finding workers_meet(const Evidence& e, const std::string&) {
  const RunRecord::Agreement::Workers& all = e.run.agreement.workers;
  if (!all.wrong.empty()) return bad(all.wrong);
  if (all.meetings + all.apart == 0) return blind("no worker reported its weights");
  return good(
      fmt::format("workers had equal weights after outer steps ({} times one looked), and their own between them "
                  "({} times)",
                  all.meetings, all.apart));
}

bool workers_to_judge(const Evidence& e) {
  const runtime::LocalSgdPlan& plan = e.scenario.train.definition.local_sgd;
  const auto moved = [](const runtime::StepRecord& step) { return !step.skipped && step.lr > 0 && step.grad_norm > 0; };
  return e.run.has_values && plan.on() &&
         (plan.meetings(std::int64_t(e.run.steps.size())) > 0 ||
          std::any_of(e.run.steps.begin(), e.run.steps.end(), moved));
}

// W: workers. In an outer step a rank sends the subtree roots of its workers' weights to the owners of their parts, and
// then its own part of the mean to all.
std::vector<BudgetLine> workers_traffic(const Scenario& scenario, std::int64_t steps, std::int64_t applied) {
  const runtime::Definition& d = scenario.train.definition;
  const int ranks = data_size(scenario);
  const double P = double(runtime::Parameters(d.model, d.optimizer).trainable_size());
  std::size_t roots = 0;
  for (int rank = 0; rank < ranks; ++rank)
    roots = std::max(roots, runtime::TreeOwnership{d.local_sgd.workers, ranks}.nodes(rank).size());
  const double meetings = double(d.local_sgd.meetings(steps)), sent = meetings * double(roots + 1);
  std::vector<BudgetLine> lines = traffic_budget(scenario, steps, applied);
  std::erase_if(lines, [](const BudgetLine& line) { return line.name == "all_reduce"; });
  lines.push_back({"all_reduce", sizeof(float) * sent * P * (ranks - 1) / ranks,
                   sizeof(float) * double(kernels::kBlock) * sent * ranks, false,
                   "(roots of its workers + 1)P(N-1)/N an outer step"});
  return lines;
}

std::vector<BudgetLine> workers_calls(const Scenario& scenario, std::int64_t steps) {
  const runtime::Definition& d = scenario.train.definition;
  const double all = double(d.local_sgd.meetings(steps) + d.evaluation.count(steps)) * data_size(scenario);
  return {{"all_reduce", all, 0, true, "one a rank and outer step, and one a rank and evaluation"}};
}

}  // namespace seeksim::harness
