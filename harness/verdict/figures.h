// Figures: what a run comes to in single numbers, by name. A sweep's table, --csv and --json-lines show them. To add
// one: a row in figures.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/oracles/evidence.h"

namespace seeksim::harness {

// How a figure is written for people.
enum class FigureUnit { number, count, seconds, bytes, gigabytes, share };

struct FigureInfo {
  const char* name;  // as the report has it; a unit stands last
  FigureUnit unit;
  // Nothing where the run has no such figure: no loss in a run of shapes, no bubble without a pipeline.
  std::function<std::optional<double>(const Evidence& evidence)> value;
  const char* description;  // for people
};
const std::vector<FigureInfo>& figure_catalogue();
// Null: there is no such figure.
const FigureInfo* find_figure(const std::string& name);
std::vector<std::string> figure_names();

// All of them by name; null where the run has none, and for what is no number.
Json figures_json(const Evidence& evidence);

// Which figures a table of such runs shows: those of "show"; else those that its checks are about; where they are about
// none, the last loss, the peak of memory and virtual time.
std::vector<std::string> shown_figures(const Scenario& scenario);

}  // namespace seeksim::harness
