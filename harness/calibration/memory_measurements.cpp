#include "harness/calibration/memory_measurements.h"

#include <algorithm>
#include <array>

#include "harness/calibration/curves.h"
#include "harness/calibration/published_rows.h"
#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
// What torch can use of an A100 of "80 GB": 79.15 GiB.
constexpr double kA100Bytes = 79.15 * kGiB;

Stack stack_of(const std::string& word, std::string& wrong) {
  for (const Stack stack : {Stack::fused, Stack::compiled, Stack::plain, Stack::eager})
    if (word == name(stack)) return stack;
  wrong += " stack";
  return Stack::plain;
}

// Stages of which the largest was measured: a program may log on its first or last rank alone. `held` are their layers.
std::vector<Stage> stages_of(const StepLayout& layout, LayoutWords& words, std::string& wrong) {
  const std::string at = words.word("at", "most");
  if (at == "most") return {};
  const double held = words.whole("held");
  const bool alone = layout.pipeline == 1;
  const Stage first = {held, true, alone, under_way(layout, 0)};
  const Stage last = {held, alone, true, under_way(layout, layout.pipeline - 1)};
  if (at == "first") return {first};
  if (at == "last") return {last};
  if (at == "ends") return {first, last};
  wrong += " at";
  return {};
}

using What = MemoryMeasurement::What;
constexpr std::array<std::pair<const char*, What>, 4> kWhat = {
    {{"allocated", What::allocated}, {"reserved", What::reserved}, {"used", What::used}, {"fits", What::fits}}};

MemoryMeasurement peak_of(const std::vector<std::string>& row, std::string& wrong) {
  MemoryMeasurement one;
  one.id = row[0], one.series = row[1], one.source = row[8];
  LayoutWords words(row[4]);
  read_step(one.model, one.layout, words);
  one.model.tied = words.whole("tied", 0, 0) == 1;
  one.layout.moments = words.whole("moments", 2, 0);
  one.layout.stays_whole = words.word("reshard", "always") == "never";
  one.layout.gradients_in_16_bits = words.whole("gradients", 4) == 2;
  one.layout.compiled_loss = words.word("loss", "eager") == "compiled";
  one.stack = stack_of(words.word("stack"), wrong);
  one.stages = stages_of(one.layout, words, wrong);
  const double value = number_or_nan(row[6]);
  const auto what = std::find_if(kWhat.begin(), kWhat.end(), [&](const auto& known) { return row[2] == known.first; });
  if (what == kWhat.end()) wrong += " what";
  one.what = what == kWhat.end() ? What::allocated : what->second;
  one.fits = one.what == What::fits && value == 1;
  one.bytes = one.what == What::fits ? kA100Bytes : value * (row[7] == "GiB" ? kGiB : kMiB);
  one.kept = kept(one.series, one.id);
  wrong += words.wrong();
  const bool known = row[2] == "fits" ? row[7] == "80GB" : row[7] == "GiB" || row[7] == "MiB";
  if (!known || !(one.bytes > 0) || !(value >= 0)) wrong += " value or unit";
  return one;
}

}  // namespace

std::vector<MemoryMeasurement> read_memory(const std::string& csv, const std::string& file) {
  return read_rows(csv, file, peak_of);
}

std::vector<MemoryMeasurement> published_memory() {
  return read_memory(published_table("memory.csv"), published_file("memory.csv"));
}

double predicted_bytes(const MemoryMeasurement& one, const Constants& constants, MemoryMistake mistake) {
  StepMemory held;
  if (one.stages.empty()) held = step_memory(one.model, one.layout, one.stack, constants, mistake);
  for (const Stage& stage : one.stages) {
    const StepMemory here = stage_memory(one.model, one.layout, one.stack, constants, stage, mistake);
    if (here.bytes() > held.bytes()) held = here;
  }
  constexpr double kGB = 1e9;
  switch (one.what) {
    case What::allocated:
      return held.allocated();
    case What::reserved:
      return held.bytes();
    case What::used:
    case What::fits:
      return held.bytes() + constants.outside_gb * kGB;
  }
  return 0;
}

bool predicted_fit(const MemoryMeasurement& one, const Constants& constants, MemoryMistake mistake) {
  return predicted_bytes(one, constants, mistake) <= one.bytes;
}

Errors errors(const std::vector<const MemoryMeasurement*>& rows, const PredictBytes& predict) {
  std::vector<double> ratios;
  for (const MemoryMeasurement* row : rows) ratios.push_back(predict(*row) / row->bytes);
  return errors_of(ratios);
}

Fits fits(const std::vector<const MemoryMeasurement*>& rows, const Constants& constants, MemoryMistake mistake) {
  Fits all;
  for (const MemoryMeasurement* row : rows) {
    const bool predicted = predicted_fit(*row, constants, mistake);
    if (row->fits)
      ++all.ran, all.ran_predicted += predicted;
    else
      ++all.out_of_memory, all.out_of_memory_predicted += !predicted;
  }
  return all;
}

}  // namespace seeksim::harness::calibration
