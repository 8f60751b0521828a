#include "harness/calibration/published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness/calibration/curves.h"
#include "harness/input/files.h"
#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

constexpr std::uint64_t kBytesMax = 4 << 20;

std::vector<std::string> split(const std::string& line, char at) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == at)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  return fields;
}

}  // namespace

std::vector<std::vector<std::string>> rows_of(const std::string& csv, const std::string& file,
                                              const std::string& head) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  std::vector<Problem> problems;
  if (line != head) problems.push_back({file + ":1", "", "the columns are not " + head, ""});
  const std::size_t columns = split(head, ',').size();
  std::vector<std::vector<std::string>> rows;
  for (int number = 2; std::getline(lines, line); ++number) {
    rows.push_back(split(line, ','));
    if (rows.back().size() != columns)
      problems.push_back(
          {fmt::format("{}:{}", file, number), "", fmt::format("{} fields, not {}", rows.back().size(), columns), ""});
  }
  if (!problems.empty()) throw BadInput(std::move(problems));
  return rows;
}

LayoutWords::LayoutWords(const std::string& text) {
  for (const std::string& word : split(text, ' ')) {
    const std::size_t equals = std::min(word.find('='), word.size());
    values_[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
  }
}

std::string LayoutWords::word(const std::string& key, const std::string& otherwise) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (otherwise.empty()) wrong_ += " " + key;
    return otherwise;
  }
  const std::string value = found->second;
  values_.erase(found);
  return value;
}

int LayoutWords::whole(const std::string& key, int otherwise, int least) {
  const double value = number_or_nan(word(key, otherwise < 0 ? "" : std::to_string(otherwise)));
  const bool right = value >= least && value < 1e9 && value == std::floor(value);
  if (!right) wrong_ += " " + key;
  return right ? int(value) : least;
}

std::string LayoutWords::wrong() const {
  std::string all = wrong_;
  for (const auto& [key, value] : values_) all += " " + key;
  return all;
}

void read_step(ModelShape& m, StepLayout& l, LayoutWords& words) {
  l.gpus = words.whole("gpus");
  l.tensor = words.whole("tensor");
  l.pipeline = words.whole("pipeline");
  l.context = words.whole("context");
  l.chunks = words.whole("chunks");
  l.micro_batch = words.whole("micro");
  l.batch = words.whole("batch");
  l.sequence_parallel = words.whole("sequence_parallel", 0, 0) == 1;
  const std::string again = words.word("recompute"), shards = words.word("shards");
  l.recompute = again == "full" ? Recompute::full : again == "none" ? Recompute::none : Recompute::selective;
  l.shards = shards == "parameters" ? Shards::parameters : shards == "none" ? Shards::none : Shards::optimizer;
  m.layers = words.whole("layers");
  m.width = words.whole("width");
  m.heads = words.whole("heads");
  m.key_heads = words.whole("kv");
  m.hidden = words.whole("hidden");
  m.vocab = words.whole("vocab");
  m.gated = words.whole("gated", -1, 0) == 1;
  m.sequence = words.whole("sequence");
}

std::string published_file(const std::string& name) { return top_folder() + "/bench/published/" + name; }

std::string published_table(const std::string& name) { return read_file(published_file(name), kBytesMax); }

}  // namespace seeksim::harness::calibration
