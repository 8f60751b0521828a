#include "harness/explain/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "harness/input/problem.h"
#include "harness/record/golden.h"
#include "harness/record/same_bits.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "kernels/cast.h"
#include "runtime/layout/shard_groups.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using runtime::ElementType;
using runtime::Op;
using runtime::SampleRange;
using sim::ValueEntry;

constexpr std::size_t kWayMax = 8;  // operations of the chain

struct Side {
  const Scenario& scenario;
  RunRecord record;
  std::vector<std::vector<ValueEntry>> logs;  // by rank
};

RunRecord run_steps(const Scenario& scenario, double wall_limit_s) {
  SimulationOptions options;
  options.digest_gradients = true;
  options.wall_limit_s = wall_limit_s;
  return Simulation(scenario, options).run();
}

// ---- the step
// ----------------------------------------------------------------------------------------------------------

std::string of_step(const RunRecord& a, const RunRecord& b, std::size_t i) {
  const runtime::StepRecord &x = a.steps[i], &y = b.steps[i];
  std::string text;
  const auto add = [&text](const std::string& one) { text += (text.empty() ? "" : "; ") + one; };
  if (!same_bits(x.loss, y.loss)) add(fmt::format("loss {:.9g} and {:.9g}", x.loss, y.loss));
  if (i < a.training.gradient_digests.size() && i < b.training.gradient_digests.size() &&
      a.training.gradient_digests[i] != b.training.gradient_digests[i])
    add("gradients");
  if (!same_bits(x.grad_norm, y.grad_norm))
    add(fmt::format("gradient norm {:.9g} and {:.9g}", x.grad_norm, y.grad_norm));
  if (x.lr != y.lr) add(fmt::format("rate {} and {}", x.lr, y.lr));
  if (x.loss_scale != y.loss_scale) add(fmt::format("loss scale {} and {}", x.loss_scale, y.loss_scale));
  if (x.skipped != y.skipped) add(x.skipped ? "skipped and not" : "not skipped and skipped");
  if (x.data_position != y.data_position) add(fmt::format("data position {} and {}", x.data_position, y.data_position));
  return text;
}

std::string of_state(const RunRecord& a, const RunRecord& b) {
  const auto x = a.state(), y = b.state();
  if (!x || !y) return x || y ? "one of them came to no end" : "";
  if (*x == *y) return "";
  std::size_t n = 0;
  std::string first;
  for (std::size_t i = 0; i < std::min(x->by_tensor.size(), y->by_tensor.size()); ++i) {
    if (x->by_tensor[i] != y->by_tensor[i] && n++ == 0) first = x->by_tensor[i].first;
  }
  if (n > 0) return fmt::format("{} of {} weights, the first is {}", n, x->by_tensor.size(), first);
  return x->optimizer != y->optimizer ? "optimizer state" : "what goes with the weights";
}

void find_step(const Side& a, const Side& b, Difference& difference) {
  const std::size_t both = std::min(a.record.steps.size(), b.record.steps.size());
  for (std::size_t i = 0; i < both; ++i) {
    difference.what = of_step(a.record, b.record, i);
    if (difference.what.empty()) continue;
    difference.any = true;
    difference.step = a.record.steps[i].step;
    return;
  }
  if (a.record.steps.size() != b.record.steps.size()) {
    difference.any = true;
    difference.what = fmt::format("{} and {} steps are committed", a.record.steps.size(), b.record.steps.size());
    difference.step = std::int64_t(both);
    return;
  }
  difference.what = of_state(a.record, b.record);
  difference.any = !difference.what.empty();
}

// ---- the operation
// -----------------------------------------------------------------------------------------------------

// Which samples of the step a rank's micro-batch holds. Unknown (empty) where the world is not the plan's any more.
SampleRange samples_of(const Scenario& scenario, int rank, int micro_batch) {
  const runtime::Layout& layout = scenario.train.layout;
  if (micro_batch < 0 || !layout.parallel.alone() || rank >= scenario.world.members()) return {};
  const runtime::StepCut cut = runtime::step_cut(scenario.train, scenario.world.members(), rank);
  const int place = runtime::shard_groups(layout, scenario.world.members()).place_of(rank);
  if (cut.interleaved) return micro_batch < cut.count() ? cut.samples(micro_batch, place) : SampleRange{};
  const std::vector<SampleRange> all = runtime::micro_batches(cut.samples(0, place), layout.micro_batch);
  return std::size_t(micro_batch) < all.size() ? all[std::size_t(micro_batch)] : SampleRange{};
}

// What an operation does, wherever and whenever it does it.
using ValueKey = std::tuple<std::int64_t, int, int, int, std::string, std::string, bool, std::size_t, std::int64_t,
                            std::int64_t, int>;

class ValueKeys {
 public:
  ValueKeys(const Side& side, bool by_samples) : side_(side), by_samples_(by_samples) {
    for (const runtime::StepRecord& step : side.record.steps) epoch_[step.step] = step.epoch;
  }
  // False: nothing on the other side is the same as this.
  bool key(int rank, const ValueEntry& entry, ValueKey& key) {
    const Op& op = entry.op;
    const auto epoch = epoch_.find(op.step);
    if (epoch == epoch_.end() || epoch->second != op.epoch) return false;  // of an attempt that was given up
    std::int64_t where = rank, until = op.micro_batch;
    if (by_samples_) {
      const SampleRange samples = samples_of(side_.scenario, rank, op.micro_batch);
      if (samples.size() <= 0) return false;
      where = samples.begin;
      until = samples.end;
    }
    key = {op.step,
           int(op.kind),
           int(op.phase),
           op.layer,
           op.tensor ? op.tensor : "",
           entry.buffer,
           entry.read,
           entry.hi - entry.lo,
           where,
           until,
           0};
    std::get<10>(key) = seen_[key]++;
    return true;
  }

 private:
  const Side& side_;
  bool by_samples_;
  std::map<std::int64_t, std::uint32_t> epoch_;  // in which a step was committed
  std::map<ValueKey, int> seen_;
};

void log_values(Side& side, std::int64_t first_step, double wall_limit_s) {
  SimulationOptions options;
  options.digest_gradients = true;
  options.wall_limit_s = wall_limit_s;
  options.values.on = true;
  options.values.first_step = std::max<std::int64_t>(0, first_step);
  Simulation simulation(side.scenario, options);
  simulation.run();
  for (int rank = 0; rank < side.scenario.world.ranks(); ++rank) {
    const sim::ValueLog* log = simulation.values(rank);
    side.logs.push_back(log != nullptr ? log->entries() : std::vector<ValueEntry>());
  }
}

std::vector<std::byte> bytes_of(const Scenario& scenario, const Sight& sight, std::int64_t first_step,
                                double wall_limit_s) {
  SimulationOptions options;
  options.digest_gradients = true;
  options.wall_limit_s = wall_limit_s;
  options.values = {true, std::max<std::int64_t>(0, first_step), sight.rank, sight.entry};
  Simulation simulation(scenario, options);
  simulation.run();
  const sim::ValueLog* log = simulation.values(sight.rank);
  return log != nullptr ? log->kept() : std::vector<std::byte>();
}

struct Found {
  Sight a, b;
  const ValueEntry* entry;  // of a
};

// All that differ, in the order in which they came to be in the first run.
std::vector<Found> differing(const Side& a, const Side& b, bool by_samples, std::uint64_t& compared) {
  std::map<ValueKey, Sight> of_b;
  std::map<ValueKey, std::uint64_t> digest_of_b;
  ValueKeys keys_b(b, by_samples), keys_a(a, by_samples);
  ValueKey key;
  for (std::size_t rank = 0; rank < b.logs.size(); ++rank) {
    for (std::size_t i = 0; i < b.logs[rank].size(); ++i) {
      const ValueEntry& entry = b.logs[rank][i];
      if (!keys_b.key(int(rank), entry, key)) continue;
      of_b[key] = {int(rank), entry.op, entry.at_ns, i};
      digest_of_b[key] = entry.digest;
    }
  }
  std::vector<Found> all;
  for (std::size_t rank = 0; rank < a.logs.size(); ++rank) {
    for (std::size_t i = 0; i < a.logs[rank].size(); ++i) {
      const ValueEntry& entry = a.logs[rank][i];
      if (!keys_a.key(int(rank), entry, key)) continue;
      const auto other = digest_of_b.find(key);
      if (other == digest_of_b.end()) continue;
      ++compared;
      if (other->second != entry.digest) all.push_back({{int(rank), entry.op, entry.at_ns, i}, of_b[key], &entry});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& x, const Found& y) {
    return std::tie(x.a.op.step, x.a.at_ns) < std::tie(y.a.op.step, y.a.at_ns);
  });
  return all;
}

std::string value_text(const std::byte* at, ElementType type) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  const auto widened = [&]<class T>(T stored) {
    stored = as(stored);
    float value = 0;
    kernels::widen<T>(kernels::Lane{}, {&stored, 1}, {&value, 1});
    return value;
  };
  switch (type) {
    case ElementType::f32:
      return fmt::format("{:.9g}", as(float{}));
    case ElementType::bf16:
      return fmt::format("{:.9g}", widened(kernels::bf16{}));
    case ElementType::f16:
      return fmt::format("{:.9g}", widened(kernels::fp16{}));
    case ElementType::i32:
      return fmt::format("{}", as(std::int32_t{}));
    case ElementType::i64:
      return fmt::format("{}", as(std::int64_t{}));
    default:
      return fmt::format("{}", int(*at));
  }
}

std::string bits_text(const std::byte* at, std::size_t bytes) {
  std::string text = "0x";
  for (std::size_t i = bytes; i-- > 0;) text += fmt::format("{:02x}", int(at[i]));  // little-endian, as stored
  return text;
}

OpDifference explained(const Side& a, const Side& b, const Found& found, std::int64_t first_step, double wall_limit_s) {
  OpDifference out;
  out.a = found.a;
  out.b = found.b;
  out.buffer = found.entry->buffer;
  out.tag = std::string(name(found.entry->tag));
  out.read = found.entry->read;
  out.type = found.entry->type;
  const std::size_t size = size_of(out.type);
  out.elements = std::int64_t((found.entry->hi - found.entry->lo) / size);
  const SampleRange samples = samples_of(a.scenario, found.a.rank, found.a.op.micro_batch);
  if (samples.size() > 0) {
    out.first_sample = samples.begin;
    out.samples = samples.size();
  }
  const std::vector<std::byte> x = bytes_of(a.scenario, found.a, first_step, wall_limit_s),
                               y = bytes_of(b.scenario, found.b, first_step, wall_limit_s);
  for (std::size_t i = 0; (i + 1) * size <= std::min(x.size(), y.size()); ++i) {
    if (std::memcmp(&x[i * size], &y[i * size], size) == 0) continue;
    out.element = std::int64_t(i);
    out.bits_a = bits_text(&x[i * size], size);
    out.bits_b = bits_text(&y[i * size], size);
    out.value_a = value_text(&x[i * size], out.type);
    out.value_b = value_text(&y[i * size], out.type);
    break;
  }
  // Activations are samples by rows, one behind the other.
  if (out.samples == 1) out.leaf = out.first_sample;
  if (out.element >= 0 && out.samples > 1 && found.entry->tag == runtime::MemoryTag::activations &&
      out.elements % out.samples == 0)
    out.leaf = out.first_sample + out.element / (out.elements / out.samples);
  return out;
}

// ---- the way
// -----------------------------------------------------------------------------------------------------------

std::string where(const Found& found) {
  return fmt::format("{:.9f} s  {} {} '{}'", double(found.a.at_ns) / 1e9, describe(found.a.op),
                     found.entry->read ? "reads" : "writes", found.entry->buffer);
}

// The last fault to strike the rank before it, else the last to strike anybody.
std::string cause(const Side& side, int rank, TimeNs before, const char* which) {
  const FaultDecision* best = nullptr;
  for (const FaultDecision& one : side.record.fault_decisions) {
    if (one.at_ns > before) continue;
    if (best == nullptr || one.rank == rank || best->rank != rank) best = &one;
  }
  if (best == nullptr) return "";
  return fmt::format("{:.9f} s  faults.{} {} strikes rank {}{} ({})", double(best->at_ns) / 1e9, best->rule,
                     name(side.scenario.faults[best->rule].kind), best->rank, best->op.empty() ? "" : " in " + best->op,
                     which);
}

// One line for each rank that it comes to and each kind of step that it takes there.
void tell_way(const std::vector<Found>& all, Difference& difference) {
  std::set<std::tuple<int, int, bool>> told;
  std::set<int> ranks;
  std::size_t n = 0;
  for (const Found& found : all) {
    const bool new_rank = ranks.insert(found.a.rank).second;
    const bool new_phase = told.insert({int(found.a.op.phase), int(found.a.op.kind), false}).second;
    if ((!new_rank && !new_phase) || n == kWayMax) continue;
    ++n;
    difference.chain.push_back(where(found));
  }
}

}  // namespace

Difference difference_of(const Scenario& a, const Scenario& b, double wall_limit_s) {
  for (const Scenario* one : {&a, &b}) {
    if (is_of_shapes(*one))
      throw BadInput(one->file, "a shapes-only run has no values", "Use \"numerics\": \"exact\".");
    if (!one->sweep.empty() || one->planned.any())
      throw BadInput(one->file, "it is many runs", "Take out \"sweep\" and \"fault_plan\".");
  }
  if (a.train.definition.model.layers != b.train.definition.model.layers ||
      a.train.definition.global_batch != b.train.definition.global_batch) {
    throw BadInput(a.file + " and " + b.file, "they are not the same training",
                   "Model, data and batch have to be the same.");
  }
  Side left{a, run_steps(a, wall_limit_s), {}}, right{b, run_steps(b, wall_limit_s), {}};
  Difference difference;
  find_step(left, right, difference);
  if (!difference.any) return difference;
  // What is wrong in a step may have come to be at the end of the one before.
  const std::int64_t from = difference.step < 0 ? 0 : difference.step - 1;
  log_values(left, from, wall_limit_s);
  log_values(right, from, wall_limit_s);
  const bool by_samples = a.world.ranks() != b.world.ranks() ||
                          a.train.layout.zero.stage != b.train.layout.zero.stage ||
                          a.train.layout.micro_batch != b.train.layout.micro_batch;
  const std::vector<Found> all = differing(left, right, by_samples, difference.compared);
  difference.differing = all.size();
  if (!all.empty()) {
    const Found& first = all.front();
    difference.op = explained(left, right, first, from, wall_limit_s);
    std::string why = cause(left, first.a.rank, first.a.at_ns, "first run");
    if (why.empty()) why = cause(right, first.b.rank, first.b.at_ns, "second run");
    if (!why.empty()) difference.chain.push_back(why);
    tell_way(all, difference);
  }
  if (difference.step >= 0)
    difference.chain.push_back(
        fmt::format("step {} is committed with other values: {}", difference.step, difference.what));
  else
    difference.chain.push_back("after the last step: " + difference.what);
  return difference;
}

Scenario golden_like(const Scenario& scenario) {
  Scenario golden = one_rank(scenario);
  golden.train.layout.micro_batch = scenario.train.layout.micro_batch;
  golden.accumulation =
      (golden.train.definition.global_batch + golden.train.layout.micro_batch - 1) / golden.train.layout.micro_batch;
  return golden;
}

std::string difference_text(const OpDifference& op, const std::string& margin) {
  std::string out = margin + fmt::format("operation   {}\n", describe(op.a.op));
  if (op.b.rank != op.a.rank || op.b.op.micro_batch != op.a.op.micro_batch)
    out += margin + fmt::format("its like    {}\n", describe(op.b.op));
  if (op.a.op.site != nullptr && op.a.op.site[0] != 0) out += margin + fmt::format("called at   {}\n", op.a.op.site);
  out +=
      margin + fmt::format("{}      '{}' ({}, {}), {} elements{}\n", op.read ? "reads " : "writes", op.buffer, op.tag,
                           name(op.type), op.elements, op.read ? "; no logged operation wrote this value" : "");
  if (op.samples > 0)
    out += margin + (op.samples == 1 ? fmt::format("sample      {} of the step\n", op.first_sample)
                                     : fmt::format("samples     {} to {} of the step\n", op.first_sample,
                                                   op.first_sample + op.samples - 1));
  if (op.leaf >= 0) out += margin + fmt::format("leaf        {}\n", op.leaf);
  if (op.element >= 0)
    out += margin + fmt::format("element     {}: {} ({}) and {} ({})\n", op.element, op.bits_a, op.value_a, op.bits_b,
                                op.value_b);
  return out;
}

Json difference_json(const OpDifference& op) {
  const auto or_null = [](std::int64_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  const auto sight = [](const Sight& one) {
    return Json{{"rank", one.rank}, {"op", describe(one.op)}, {"at_s", double(one.at_ns) / 1e9}};
  };
  return {{"a", sight(op.a)},
          {"b", sight(op.b)},
          {"kind", std::string(name(op.a.op.kind))},
          {"phase", std::string(name(op.a.op.phase))},
          {"step", op.a.op.step},
          {"micro_batch", or_null(op.a.op.micro_batch)},
          {"layer", or_null(op.a.op.layer)},
          {"tensor", op.a.op.tensor},
          {"buffer", op.buffer},
          {"read", op.read},
          {"type", std::string(name(op.type))},
          {"element", or_null(op.element)},
          {"leaf", or_null(op.leaf)},
          {"bits", {op.bits_a, op.bits_b}},
          {"values", {op.value_a, op.value_b}}};
}

}  // namespace seeksim::harness
