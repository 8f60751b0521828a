// A comparison of two runs, for people and for programs.
#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/torch/compare.h"

namespace seeksim::harness::torch {
namespace {

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "Infinity";
  return value;
}

std::string first_text(const FirstDifference& first) {
  std::string text =
      fmt::format("step {}, micro-batch {}, rank {}: {}", first.step, first.micro_batch, first.rank, first.what);
  if (!first.values.empty()) text += ": " + first.values;
  if (first.of_step > 0) text += fmt::format("; {} of {} weights of that step", first.differ_in_step, first.of_step);
  return text;
}

std::string distances(const RunComparison& c) {
  if (c.grade == Grade::bits) return "none";
  std::string text =
      fmt::format("{} of {} weights, at most {:.2g} away; {} of {} losses, at most {:.2g} away", c.weights_differ,
                  c.weights, c.weight_distance, c.losses_differ, c.losses, c.loss_distance);
  if (c.of_allowed) text += fmt::format("; {:.2g} of what other orders of sums allow, at {}", *c.of_allowed, c.of_what);
  return text;
}

}  // namespace

std::string comparison_text(const RunComparison& c, Grade wanted, const std::string& a, const std::string& b) {
  const bool good = c.grade <= wanted;
  const std::string word = c.grade == Grade::bits ? "SAME" : good ? "NEAR" : "DIFFERENT";
  std::string compared = fmt::format("{} steps, {} weights, {} losses", c.steps, c.weights, c.losses);
  if (c.only_in_a + c.only_in_b > 0)
    compared += fmt::format("; {} only in the first run, {} only in the second", c.only_in_a, c.only_in_b);
  for (const std::string& note : c.notes) compared += "; " + note;
  return fmt::format(
      "{} {} and {}: grade {}, wanted {}\n  compared  {}\n  differ    {}\n  first     {}\n  origin    {}\n", word, a, b,
      name(c.grade), name(wanted), compared, distances(c), c.first ? first_text(*c.first) : "nothing differs",
      c.first ? c.first->origin_text : "nothing differs");
}

Json comparison_json(const RunComparison& c, Grade wanted, const std::string& a, const std::string& b) {
  Json first = nullptr;
  if (c.first) {
    first = {{"step", c.first->step},
             {"micro_batch", c.first->micro_batch},
             {"rank", c.first->rank},
             {"what", c.first->what},
             {"weights_of_step", c.first->of_step},
             {"weights_that_differ", c.first->differ_in_step},
             {"origin", std::string(name(c.first->origin))},
             {"origin_text", c.first->origin_text}};
  }
  return {{"schema", kCompareSchema},
          {"a", a},
          {"b", b},
          {"grade", std::string(name(c.grade))},
          {"wanted", std::string(name(wanted))},
          {"ok", c.grade <= wanted},
          {"steps", c.steps},
          {"weights", c.weights},
          {"weights_differ", c.weights_differ},
          {"weight_distance", number(c.weight_distance)},
          {"losses", c.losses},
          {"losses_differ", c.losses_differ},
          {"loss_distance", number(c.loss_distance)},
          {"of_allowed", c.of_allowed ? number(*c.of_allowed) : Json(nullptr)},
          {"only_in_a", c.only_in_a},
          {"only_in_b", c.only_in_b},
          {"first", first},
          {"notes", c.notes}};
}

}  // namespace seeksim::harness::torch
