#include "harness/torch/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/report/terminal.h"
#include "harness/torch/python.h"

namespace seeksim::harness::torch {
namespace {

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ExitStatus doctor(const std::string& given, const Style& style) {
  const std::string python = find_python(given);
  const Json facts = facts_of(python);
  put(fmt::format("  {:<14} {}\n", "asked", python));
  for (const auto& [name, value] : facts.items()) {
    if (name != "problems") put(fmt::format("  {:<14} {}\n", name, value_text(value)));
  }
  const Json problems = facts.value("problems", Json::array());
  for (const Json& problem : problems) put(fmt::format("{} {}\n", style.bad("PROBLEM"), value_text(problem)));
  if (problems.empty()) put(style.good("ok") + ": scripts of this Python can run under seeksim torch\n");
  return problems.empty() ? ExitStatus::as_expected : ExitStatus::bad_input;
}

}  // namespace seeksim::harness::torch
