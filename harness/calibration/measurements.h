// Published measurements (bench/published/), which of them no fit has seen, and how far the model is from each.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/calibration/collective_times.h"
#include "harness/calibration/step_times.h"

namespace seeksim::harness::calibration {

// fitted: its row may be fitted to. row, series: kept out, alone or with all of its series. blind: found after the
// model's form was fixed.
enum class Kept { fitted, row, series, blind };

struct Measurement {
  std::string id, series, source;
  Platform platform;
  bool step = false;
  double us = 0;  // as measured
  // Where it is a collective:
  Collective what = Collective::all_reduce;
  double bytes = 0;
  Group group;
  Choice choice;
  // Where it is a step:
  ModelShape model;
  StepLayout layout;
  Kept kept = Kept::fitted;
};

struct Source {
  std::string name, title, year, where, url;
};

// FNV-1a, 64 bits.
std::uint64_t fnv1a(std::string_view text);
// The rule of bench/published/README.md.
Kept kept(std::string_view series, std::string_view id);

// The tables as text; `file` names them in messages. Throw BadInput with all problems.
std::vector<Measurement> read_measurements(const std::string& csv, const std::string& file);
std::vector<Source> read_sources(const std::string& csv, const std::string& file);
// Those of the checkout or of the installed program.
std::vector<Measurement> published_measurements();
std::vector<Source> published_sources();

// What predicts: microseconds of a measurement. The default is the model with its constants.
using Predict = std::function<double(const Measurement&)>;
double predicted_us(const Measurement& one, const Constants& constants);

struct Errors {
  std::size_t count = 0;
  double median = 0, worst = 0;                            // of |predicted / measured - 1|
  double within_10 = 0, within_20 = 0, within_double = 0;  // shares
};
Errors errors_of(const std::vector<double>& ratios);  // predicted / measured
Errors errors(const std::vector<const Measurement*>& rows, const Predict& predict);

// A class of measurements with its goal.
struct ErrorClass {
  const char* name;
  std::function<bool(const Measurement&)> holds;
};
const std::vector<ErrorClass>& error_classes();

// Kendall's tau-a of two orders: pairs in the same order less pairs in the other, of all pairs that differ in both.
double kendall(const std::vector<double>& a, const std::vector<double>& b);
double kendall(const std::vector<const Measurement*>& rows, const Predict& predict);

}  // namespace seeksim::harness::calibration
