// P: trained parameters; N: ranks.
#include "harness/oracles/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/scenario/variants.h"
#include "runtime/parts/compressed_reduction.h"
#include "runtime/parts/low_rank.h"

namespace seeksim::harness {

Finding compression_conserves(const Evidence& e, const std::string&) {
  const RunRecord::Numbers::Compressed& c = e.run.numbers.compressed;
  if (!e.run.has_values || c.elements == 0) return blind("no gradients were compressed");
  if (c.unconserved > 0)
    return bad(
        fmt::format("{} of {} elements of gradients are not what was sent and what is kept; first on rank {} in "
                    "step {}",
                    c.unconserved, c.elements, c.rank, c.step));
  return good(fmt::format("{} elements: what was sent and what is kept add up {}; {:.2f} bits an element", c.elements,
                          e.scenario.train.definition.compression.in_factors() ? "but for one rounding" : "exactly",
                          8 * double(c.bytes) / double(c.elements)));
}

namespace {

// Steps of a run, by what was sent in them.
struct Steps {
  explicit Steps(const Evidence& e) {
    const runtime::CompressionPlan& plan = e.scenario.train.definition.compression;
    for (const runtime::StepRecord& step : e.run.steps) {
      const std::int64_t made = step.optimizer_steps - (step.skipped ? 0 : 1);  // before it
      plain += plan.compresses(step.step, made) ? 0 : 1;
      all += 1;
      applied += step.skipped ? 0 : 1;
    }
  }
  std::int64_t all = 0, applied = 0, plain = 0;
  std::int64_t compressed() const { return all - plain; }
};

// What compression makes of a shard.
double wire_of(const runtime::Parameters& parameters, kernels::WireForm form, runtime::ShardInfo shard) {
  double bytes = 0;
  for (const kernels::WireRun& run : runtime::wire_runs(parameters, form, shard))
    bytes += double(kernels::wire_bytes(form, run.n));
  return bytes;
}

// Of an all-reduce over the groups' tree: subtree roots that the rank with most of them has, and its own sums.
double parts_sent(const Scenario& scenario) {
  const int ranks = data_size(scenario);
  std::size_t roots = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const runtime::TreeOwnership groups{scenario.train.definition.compression.groups, ranks};
    roots = std::max(roots, groups.nodes(rank).size());
  }
  return double(roots + 1);
}

// All-reduces of so many elements in all, in so many of them; and what is gathered beside them.
BudgetLine all_reduces(const Scenario& scenario, double elements, double sums, double gathered, const char* formula) {
  const int ranks = data_size(scenario);
  const double parts = parts_sent(scenario);
  return {"all_reduce", sizeof(float) * parts * elements * (ranks - 1) / ranks + gathered,
          sizeof(float) * double(kernels::kBlock) * sums * parts * ranks, false, formula};
}

// Two sums of factors in place of one of a gradient.
BudgetLine factor_sums(const Scenario& scenario, const runtime::Parameters& parameters, const Steps& steps) {
  const runtime::LowRankLayout layout(parameters, scenario.train.definition.compression);
  const double plain = double(steps.plain), compressed = double(steps.compressed());
  return all_reduces(
      scenario, plain * double(parameters.gradient_size()) + compressed * double(layout.first_size() + layout.q_size),
      plain + 2 * compressed, 0,
      "(roots of its groups + 1)(N-1)/N of P + H a plain step, and of the factors and what has none a "
      "compressed one");
}

}  // namespace

// A rank sends what compression makes of its groups to their owners; then, where gradients are replicated, its own sums
// to all others.
std::vector<BudgetLine> compressed_traffic(const Evidence& e) {
  const Scenario& scenario = e.scenario;
  const Steps steps(e);
  const runtime::Definition& d = scenario.train.definition;
  const runtime::Parameters parameters(d.model, d.optimizer);
  const int ranks = data_size(scenario);
  std::vector<BudgetLine> lines = traffic_budget(scenario, steps.all, steps.applied);
  std::erase_if(lines,
                [](const BudgetLine& line) { return line.name == "all_reduce" || line.name == "reduce_scatter"; });
  if (d.compression.in_factors()) {
    lines.push_back(factor_sums(scenario, parameters, steps));
    return lines;
  }
  const runtime::Partition partition(parameters, ranks);
  const kernels::WireForm form = runtime::wire_form(d.compression);
  const double all = wire_of(parameters, form, {0, parameters.trainable_size()}),
               losses = sizeof(float) * (ranks - 1.0);
  double reduced = 0, gathered = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const runtime::ShardInfo own = partition.shard(rank);
    const double groups = double(runtime::Residuals::groups_of(d.compression, ranks, rank).size());
    const double on_wire = wire_of(parameters, form, own);
    reduced = std::max(reduced, groups * (all - on_wire + losses));
    const double sums = d.compression.of_momentum() ? on_wire : sizeof(float) * double(own.size);
    gathered = std::max(gathered, sums * (ranks - 1));
  }
  lines.push_back({"reduce_scatter", double(steps.compressed()) * reduced, 0, false,
                   "groups x what compression makes of P(N-1)/N, and a loss"});
  if (d.compression.of_momentum())
    lines.push_back(all_reduces(scenario, double(steps.plain) * double(parameters.gradient_size()), double(steps.plain),
                                double(steps.compressed()) * gathered,
                                "(roots of its groups + 1)(P + H)(N-1)/N a plain step, and what compression makes of "
                                "P(N-1)/N a compressed one"));
  else if (scenario.train.layout.zero.stage == 0)
    lines.push_back({"all_gather", double(steps.all) * gathered, 0, false, "P(N-1)/N sums a step"});
  return lines;
}

std::vector<BudgetLine> compressed_calls(const Evidence& e) {
  const Steps steps(e);
  const runtime::Definition& d = e.scenario.train.definition;
  const double ranks = data_size(e.scenario), evaluations = double(d.evaluation.count(steps.all));
  const auto line = [&](const char* of, double times, const char* formula) {
    return BudgetLine{of, times * ranks, 0, true, formula};
  };
  if (d.compression.in_factors())
    return {line("all_reduce", double(steps.plain + 2 * steps.compressed()) + evaluations,
                 "one a rank and plain step or evaluation, two a compressed step")};
  std::vector<BudgetLine> lines = {
      line("reduce_scatter", double(steps.compressed()), "one a rank and compressed step")};
  if (d.compression.of_momentum()) {
    lines.push_back(line("all_reduce", double(steps.plain) + evaluations, "one a rank and plain step or evaluation"));
    lines.push_back(line("all_gather", double(steps.all) + evaluations, "one a rank and step or evaluation"));
  } else if (e.scenario.train.layout.zero.stage == 0) {
    lines.push_back(line("all_gather", double(steps.all), "one a rank and step"));
  }
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
