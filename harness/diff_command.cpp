#include "harness/diff_command.h"

#include <fmt/format.h>

#include <cstdio>

#include <nlohmann/json.hpp>

#include "harness/files.h"
#include "harness/problem.h"

namespace seeksim::harness {
namespace {

void put(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Scenario load_side(const std::string& file, const std::vector<std::string>& sets, const std::string& schedule) {
  LoadOptions options;
  options.sets = sets;
  options.schedule = schedule;
  return load_scenario(file, options);
}

// One rank, and the same micro-batches as far as it can: then most operations have their like.
Scenario golden_side(const Scenario& scenario) {
  Scenario golden = one_rank(scenario);
  golden.train.layout.micro_batch = scenario.train.layout.micro_batch;
  golden.accumulation =
      (golden.train.definition.global_batch + golden.train.layout.micro_batch - 1) / golden.train.layout.micro_batch;
  return golden;
}

std::string op_text(const OpDifference& op) {
  std::string out = fmt::format("  operation   {}\n", describe(op.a.op));
  if (op.b.rank != op.a.rank || op.b.op.micro_batch != op.a.op.micro_batch)
    out += fmt::format("  its like    {}\n", describe(op.b.op));
  if (op.a.op.site != nullptr && op.a.op.site[0] != 0) out += fmt::format("  called at   {}\n", op.a.op.site);
  out += fmt::format("  {}      '{}' ({}, {}), {} elements{}\n", op.read ? "reads " : "writes", op.buffer, op.tag,
                     name(op.type), op.elements, op.read ? "; what is logged before did not write it so" : "");
  if (op.samples > 0)
    out += op.samples == 1
               ? fmt::format("  sample      {} of the step\n", op.first_sample)
               : fmt::format("  samples     {} to {} of the step\n", op.first_sample, op.first_sample + op.samples - 1);
  if (op.leaf >= 0) out += fmt::format("  leaf        {}\n", op.leaf);
  if (op.element >= 0)
    out += fmt::format("  element     {}: {} ({}) and {} ({})\n", op.element, op.bits_a, op.value_a, op.bits_b,
                       op.value_b);
  return out;
}

Json op_json(const OpDifference& op) {
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

}  // namespace

ExitStatus diff_command(const DiffArguments& a, const Style& style) {
  if (!a.report.empty()) probe_writable(a.report, "--report");
  if (a.b.empty() && (!a.sets_b.empty() || !a.schedule_b.empty()))
    throw BadInput("--set-b, --schedule-b", "there is no second scenario", "Name it: seeksim diff A.json B.json.");
  const Scenario left = load_side(a.a, a.sets, a.schedule_a);
  std::vector<std::string> sets = a.sets;
  sets.insert(sets.end(), a.sets_b.begin(), a.sets_b.end());
  const Scenario right = a.b.empty() ? golden_side(left) : load_side(a.b, sets, a.schedule_b);
  const std::string other = a.b.empty() ? "its golden" : a.b;
  const Difference found = difference_of(left, right, a.wall_limit_s);
  if (!a.report.empty()) {
    Json json = {{"schema", "seeksim-diff-1"},
                 {"a", a.a},
                 {"b", a.b.empty() ? Json(nullptr) : Json(a.b)},
                 {"differ", found.any},
                 {"step", found.step < 0 ? Json(nullptr) : Json(found.step)},
                 {"what", found.what},
                 {"op", found.op ? op_json(*found.op) : Json(nullptr)},
                 {"chain", found.chain},
                 {"entries", found.compared},
                 {"entries_that_differ", found.differing}};
    write_file(a.report, dump(json));
  }
  if (!found.any) {
    put(fmt::format("{} {} and {}: every step, every gradient and the final state have the same bits\n",
                    style.good("SAME"), a.a, other));
    return ExitStatus::as_expected;
  }
  put(fmt::format("{} {} and {}\n", style.bad("DIFFERENT"), a.a, other));
  put(found.step < 0 ? fmt::format("  step        none; after the last one: {}\n", found.what)
                     : fmt::format("  step        {}: {}\n", found.step, found.what));
  if (found.op)
    put(op_text(*found.op));
  else
    put(fmt::format("  operation   none of {} that both have; what differs is held by one of them only\n",
                    found.compared));
  put("  the way there:\n");
  for (const std::string& line : found.chain) put("    " + line + '\n');
  put(style.faint(
      fmt::format("  {} of {} things that operations read and wrote differ\n", found.differing, found.compared)));
  return ExitStatus::check_failed;
}

}  // namespace seeksim::harness
