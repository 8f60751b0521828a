#include "tests/calibration/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace seeksim::harness::calibration::testing {
namespace {

constexpr int kRoundsMax = 80;
constexpr double kStep = 0.25, kGrow = 1.3, kShrink = 0.6, kStepMost = 0.5, kStepLeast = 1e-3, kGain = 1e-9;

std::vector<const Measurement*> fitted(const std::vector<Measurement>& rows, bool steps) {
  std::vector<const Measurement*> some;
  for (const Measurement& row : rows)
    if (row.kept == Kept::fitted && row.step == steps) some.push_back(&row);
  return some;
}

double weight(const Measurement& row, const std::map<std::string, int>& rows_of_series) {
  if (row.step) return 1 / std::sqrt(double(rows_of_series.at(row.series)));
  return row.bytes >= (64 << 20) ? 3 : row.bytes >= (4 << 20) ? 1.5 : 1;
}

double cost_of(const std::vector<const Measurement*>& rows, const Constants& constants) {
  std::map<std::string, int> rows_of_series;
  for (const Measurement* row : rows) ++rows_of_series[row->series];
  double sum = 0;
  for (const Measurement* row : rows)
    sum += weight(*row, rows_of_series) * std::abs(std::log(predicted_us(*row, constants) / row->us));
  return sum;
}

using Members = std::vector<double Constants::*>;

using Cost = std::function<double(const Constants&)>;

// Those of `members` on which the cost depends.
Members deciding(const Cost& cost_of, const Constants& at, const Members& members) {
  Members some;
  const double cost = cost_of(at);
  for (double Constants::*member : members) {
    Constants more = at, less = at;
    more.*member *= 2;
    less.*member /= 2;
    if (cost_of(more) != cost || cost_of(less) != cost) some.push_back(member);
  }
  return some;
}

void descend(const Cost& cost_of, const Members& members, Constants& at) {
  double best = cost_of(at);
  std::vector<double> steps(members.size(), kStep);
  for (int round = 0; round < kRoundsMax; ++round) {
    double longest = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      bool better = false;
      for (const double sign : {1.0, -1.0}) {
        Constants next = at;
        next.*members[i] *= std::exp(sign * steps[i]);
        const double cost = cost_of(next);
        if (cost >= best - kGain) continue;
        at = next, best = cost, better = true;
        break;
      }
      steps[i] = better ? std::min(kStepMost, steps[i] * kGrow) : steps[i] * kShrink;
      longest = std::max(longest, steps[i]);
    }
    if (longest < kStepLeast) break;
  }
}

Members fitted_members() {
  Members all;
  for (const ConstantRow& row : constant_rows())
    if (row.fitted) all.push_back(row.member);
  return all;
}

Constants start() {
  Constants at;
  for (const ConstantRow& row : constant_rows())
    if (row.fitted) at.*row.member = row.start;
  return at;
}

}  // namespace

double cost(const std::vector<Measurement>& rows, const Constants& constants) {
  return cost_of(fitted(rows, false), constants) + cost_of(fitted(rows, true), constants);
}

Constants fit(const std::vector<Measurement>& rows) {
  Constants at = start();
  const std::vector<const Measurement*> collectives = fitted(rows, false), steps = fitted(rows, true);
  const Cost of_collectives = [&](const Constants& c) { return cost_of(collectives, c); };
  const Cost of_steps = [&](const Constants& c) { return cost_of(steps, c); };
  const Members first = deciding(of_collectives, at, fitted_members());
  descend(of_collectives, first, at);
  Members others = deciding(of_steps, at, fitted_members());
  std::erase_if(others,
                [&](double Constants::*one) { return std::find(first.begin(), first.end(), one) != first.end(); });
  descend(of_steps, others, at);
  return at;
}

double cost(const std::vector<MemoryMeasurement>& rows, const Constants& constants) {
  std::map<std::string, int> rows_of_series;
  const auto sees = [](const MemoryMeasurement& row) {
    return row.kept == Kept::fitted && row.what != MemoryMeasurement::What::fits;
  };
  for (const MemoryMeasurement& row : rows)
    if (sees(row)) ++rows_of_series[row.series];
  double sum = 0;
  for (const MemoryMeasurement& row : rows)
    if (sees(row))
      sum += std::abs(std::log(predicted_bytes(row, constants) / row.bytes)) / std::sqrt(rows_of_series.at(row.series));
  return sum;
}

Constants fit(const std::vector<MemoryMeasurement>& rows, const Constants& others) {
  Constants at = start();
  const Cost of_memory = [&](const Constants& c) { return cost(rows, c); };
  const Members members = deciding(of_memory, at, fitted_members());
  Constants found = others;
  for (double Constants::*member : members) found.*member = at.*member;
  descend(of_memory, members, found);
  return found;
}

std::string with_constants(const std::string& inl, const Constants& constants) {
  std::string text = inl;
  for (const ConstantRow& row : constant_rows()) {
    if (!row.fitted) continue;
    const std::string head = fmt::format("SEEKSIM_FITTED({}, ", row.name);
    const std::size_t at = text.find(head) + head.size();
    text.replace(at, text.find(',', at) - at, fmt::format("{:.4g}", constants.*row.member));
  }
  return text;
}

}  // namespace seeksim::harness::calibration::testing
