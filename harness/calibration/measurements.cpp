#include "harness/calibration/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/calibration/curves.h"
#include "harness/calibration/published_rows.h"
#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

void read_collective(Measurement& one, LayoutWords& layout) {
  one.group.ranks = layout.whole("ranks");
  one.group.per_node = layout.whole("node");
  one.group.process = layout.whole("process", 1);
  const std::string algorithm = layout.word("algorithm", "any"), protocol = layout.word("protocol", "any");
  if (algorithm != "any")
    one.choice.algorithm = algorithm == "ring"   ? Algorithm::ring
                           : algorithm == "tree" ? Algorithm::tree
                                                 : Algorithm::nvls;
  if (protocol != "any") one.choice.protocol = protocol == "ll" ? Protocol::ll : Protocol::ll128;
}

Measurement measurement_of(const std::vector<std::string>& row, std::string& wrong) {
  Measurement one;
  one.id = row[0], one.series = row[1], one.source = row[8];
  one.step = row[2] == "step";
  LayoutWords layout(row[4]);
  std::string platform = row[3] + ",network=" + layout.word("network");
  if (one.step) platform += fmt::format(",stack={},watts={}", layout.word("stack"), layout.whole("watts", 700));
  one.platform = platform_of(platform, one.id);
  if (one.step) {
    read_step(one.model, one.layout, layout);
  } else {
    one.what = row[2] == "all_reduce"   ? Collective::all_reduce
               : row[2] == "all_gather" ? Collective::all_gather
                                        : Collective::reduce_scatter;
    read_collective(one, layout);
  }
  one.bytes = number_or_nan(row[5]);
  const double value = number_or_nan(row[6]);
  if (row[7] == "TFLOP/s")  // of a GPU
    one.us = one.model.sample_flops() * one.layout.batch / (value * 1e6 * one.layout.gpus);
  else if (row[7] == "GB/s")
    one.us = bus_bandwidth(one.what, one.bytes, one.group.ranks, value);
  else
    one.us = value * (row[7] == "s" ? 1e6 : 1);
  one.kept = kept(one.series, one.id);
  wrong = layout.wrong();
  if (!(one.us > 0) || !(one.bytes > 0)) wrong += " value or size";
  return one;
}

}  // namespace

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Kept kept(std::string_view series, std::string_view id) {
  if (series.starts_with("blind-")) return Kept::blind;
  if (fnv1a(series) % 4 == 0) return Kept::series;
  return fnv1a(id) % 2 == 0 ? Kept::row : Kept::fitted;
}

std::vector<Measurement> read_measurements(const std::string& csv, const std::string& file) {
  return read_rows(csv, file, measurement_of);
}

std::vector<Source> read_sources(const std::string& csv, const std::string& file) {
  std::vector<Source> all;
  for (const std::vector<std::string>& row : rows_of(csv, file, "source,title,year,where,url"))
    all.push_back({row[0], row[1], row[2], row[3], row[4]});
  return all;
}

std::vector<Measurement> published_measurements() {
  return read_measurements(published_table("times.csv"), published_file("times.csv"));
}

std::vector<Source> published_sources() {
  return read_sources(published_table("sources.csv"), published_file("sources.csv"));
}

double predicted_us(const Measurement& one, const Constants& constants) {
  Platform platform = one.platform;
  platform.constants = constants;
  return one.step ? step_time(one.model, one.layout, platform).us()
                  : collective_time(one.what, one.bytes, one.group, platform, one.choice).us;
}

Errors errors_of(const std::vector<double>& ratios) {
  std::vector<double> all;
  Errors sum;
  for (const double ratio : ratios) {
    all.push_back(std::abs(ratio - 1));
    sum.within_10 += all.back() <= 0.1;
    sum.within_20 += all.back() <= 0.2;
    sum.within_double += ratio >= 0.5 && ratio <= 2;
  }
  sum.count = all.size();
  if (all.empty()) return sum;
  std::sort(all.begin(), all.end());
  sum.median = all[all.size() / 2];
  sum.worst = all.back();
  for (double* share : {&sum.within_10, &sum.within_20, &sum.within_double}) *share /= double(all.size());
  return sum;
}

Errors errors(const std::vector<const Measurement*>& rows, const Predict& predict) {
  std::vector<double> ratios;
  for (const Measurement* row : rows) ratios.push_back(predict(*row) / row->us);
  return errors_of(ratios);
}

const std::vector<ErrorClass>& error_classes() {
  constexpr double kSmall = 4 << 20, kLarge = 64 << 20;
  static const std::vector<ErrorClass> kClasses = {
      {"collectives below 4 MiB", [](const Measurement& m) { return !m.step && m.bytes < kSmall; }},
      {"collectives of 4 to 64 MiB",
       [](const Measurement& m) { return !m.step && m.bytes >= kSmall && m.bytes < kLarge; }},
      {"collectives from 64 MiB", [](const Measurement& m) { return !m.step && m.bytes >= kLarge; }},
      {"steps", [](const Measurement& m) { return m.step; }},
  };
  return kClasses;
}

double kendall(const std::vector<double>& a, const std::vector<double>& b) {
  int same = 0, other = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double product = (a[i] - a[j]) * (b[i] - b[j]);
      same += product > 0;
      other += product < 0;
    }
  }
  return same + other > 0 ? double(same - other) / (same + other) : 0;
}

double kendall(const std::vector<const Measurement*>& rows, const Predict& predict) {
  std::vector<double> measured, predicted;
  for (const Measurement* row : rows) {
    measured.push_back(row->us);
    predicted.push_back(predict(*row));
  }
  return kendall(measured, predicted);
}

}  // namespace seeksim::harness::calibration
