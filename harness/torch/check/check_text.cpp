// The lines of `seeksim torch check`, for people and for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/torch/check/check.h"

namespace seeksim::harness::torch {
namespace {

using State = CheckLine::State;

Json finite(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "Infinity";
  return value;
}

std::string_view state_name(State state) {
  constexpr std::string_view kNames[] = {"good", "red", "not_applicable"};
  return kNames[std::size_t(state)];
}

}  // namespace

std::string line_text(const CheckLine& line, const Style& style) {
  const std::string mark = line.state == State::good  ? style.good("ok  ")
                           : line.state == State::red ? style.bad("FAIL")
                                                      : style.faint("-   ");
  return fmt::format("  {}  {:<17} {}\n", mark, line.name, line.text);
}

std::string check_sentence(const std::vector<CheckLine>& lines) {
  std::vector<std::string> red;
  std::size_t looked = 0, left = 0;
  for (const CheckLine& line : lines) {
    (line.state == State::not_applicable ? left : looked) += 1;
    if (line.state == State::red) red.push_back(line.name);
  }
  const std::string rest = left == 0 ? "" : fmt::format("; {} do{} not apply", left, left == 1 ? "es" : "");
  if (red.empty()) return fmt::format("{} lines hold{}", looked, rest);
  return fmt::format("{} of {} lines {} red: {}{}", red.size(), looked, red.size() == 1 ? "is" : "are",
                     fmt::join(red, ", "), rest);
}

std::string last_line(ExitStatus status, const std::string& name, const std::string& sentence, const Style& style) {
  const std::string word = status == ExitStatus::as_expected   ? style.good("PASS")
                           : status == ExitStatus::no_progress ? style.bad("STOPPED")
                                                               : style.bad("FAIL");
  return fmt::format("{} {}: {}\n", word, name, sentence);
}

Json check_json(const CheckRequest& request, int ranks, const std::string& torch, const std::vector<CheckLine>& lines) {
  Json judges = Json::array(), turned = Json::array();
  for (const CheckLine& line : lines) {
    Json one = {{"name", line.name}, {"state", std::string(state_name(line.state))}, {"text", line.text}};
    if (line.demand.empty()) {
      judges.push_back(std::move(one));
      continue;
    }
    one["demand"] = line.demand;
    if (line.found) {
      one["grade"] = std::string(name(line.found->grade));
      one["weight_distance"] = finite(line.found->weight_distance);
      one["loss_distance"] = finite(line.found->loss_distance);
      one["of_allowed"] = line.found->of_allowed ? finite(*line.found->of_allowed) : Json(nullptr);
      if (line.found->first)
        one["first"] = {
            {"step", line.found->first->step}, {"rank", line.found->first->rank}, {"what", line.found->first->what}};
    }
    turned.push_back(std::move(one));
  }
  return {{"schema", kCheckSchema}, {"command", request.command}, {"np", ranks},
          {"torch", torch},         {"judges", judges},           {"switches", turned}};
}

}  // namespace seeksim::harness::torch
