#include "harness/calibration/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
double number_or_nan(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  return whole && std::isfinite(value) ? value : std::nan("");
}

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

// What a launcher writes before each line: "0: " or "[1,0]<stdout>:".
std::string without_prefix(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  const std::size_t colon = line.find(':', begin);
  if (colon == std::string::npos) return line;
  const std::string head = line.substr(begin, colon - begin);
  const bool number = std::all_of(head.begin(), head.end(), [](unsigned char c) { return std::isdigit(c); });
  return number || head.ends_with("<stdout>") ? line.substr(colon + 1) : line;
}

struct Row {
  double bytes = 0, us = 0, algorithm_bandwidth = 0, bus_bandwidth = 0;
  bool sums = false;
};

// "1048576 262144 float ...", whatever follows: somebody meant a row. A word like "inf" or "-8" counts as a size.
bool meant_as_row(const std::vector<std::string>& words) {
  const auto number_like = [](const std::string& word) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error != std::errc::invalid_argument && end == word.data() + word.size();
  };
  return words.size() >= 4 && number_like(words[0]) && number_like(words[1]) &&
         std::isalpha(static_cast<unsigned char>(words[2].front()));
}

// nccl-tests writes such a row where the size is below one element a rank.
bool is_of_no_bytes(const std::vector<std::string>& words) {
  return number_or_nan(words[0]) == 0 && number_or_nan(words[1]) == 0;
}

// size count type redop [root] time algbw busbw ...: older outputs have no root.
std::optional<Row> row_of(const std::vector<std::string>& words) {
  if (words.size() < 7 || !(number_or_nan(words[0]) > 0) || !(number_or_nan(words[1]) >= 0)) return std::nullopt;
  if (!(number_or_nan(words[0]) <= kBytesMost)) return std::nullopt;
  for (std::size_t at : {std::size_t(5), std::size_t(4)}) {
    if (words.size() < at + 3) continue;
    const Row row = {number_or_nan(words[0]), number_or_nan(words[at]), number_or_nan(words[at + 1]),
                     number_or_nan(words[at + 2]), words[3] != "none"};
    if (!(row.us >= kMicrosecondsLeast && row.us <= kMicrosecondsMost && row.bus_bandwidth >= 0)) continue;
    const double expected = row.bytes / row.us / 1e3;
    if (std::abs(expected - row.algorithm_bandwidth) <= 0.006 + 0.01 * expected) return row;
  }
  return std::nullopt;
}

// The bus bandwidth of an all-reduce counts each byte twice.
Collective collective_of(const std::vector<Row>& rows, int ranks) {
  if (!rows.front().sums) return Collective::all_gather;
  const Row& last = rows.back();
  const double once = double(ranks - 1) / ranks;
  return last.bus_bandwidth > 1.5 * once * last.algorithm_bandwidth ? Collective::all_reduce
                                                                    : Collective::reduce_scatter;
}

}  // namespace

double Curve::us(double bytes) const {
  const auto above =
      std::find_if(points.begin(), points.end(), [&](const Point& point) { return point.bytes >= bytes; });
  if (above == points.begin()) return points.front().us;
  const Point& low = *std::prev(above);
  if (above == points.end()) return low.us * bytes / low.bytes;
  const double part = std::log(bytes / low.bytes) / std::log(above->bytes / low.bytes);
  return low.us * std::pow(above->us / low.us, part);
}

Curve read_nccl_tests(const std::string& text, const std::string& file) {
  std::istringstream lines(text);
  std::set<std::string> hosts, ids;
  std::vector<Row> rows;
  Curve curve;
  int at = 0;
  const auto refuse = [&](const std::string& what, const std::string& next) {
    throw BadInput(fmt::format("{}:{}", file, at), what, next);
  };
  for (std::string line; std::getline(lines, line);) {
    ++at;
    const std::vector<std::string> words = words_of(without_prefix(line));
    const auto on = std::find(words.begin(), words.end(), "on");
    if (words.size() > 4 && words[0] == "#" && words[1] == "Rank" && on != words.end() && on + 1 != words.end()) {
      if (!ids.insert(words[2]).second)
        refuse(fmt::format("rank {} is named twice", in_quotes(words[2])),
               "One file is one output; with \"mpirun\", nccl-tests has to be built with MPI=1.");
      if (++curve.ranks > kRanksMost) refuse(fmt::format("more than {} ranks", kRanksMost), "");
      hosts.insert(*(on + 1));
    } else if (const std::optional<Row> row = row_of(words)) {
      if (!rows.empty() && rows.front().sums != row->sums)
        refuse("this row is of another collective than those above", "Give each collective a file of its own.");
      rows.push_back(*row);
    } else if (meant_as_row(words) && !is_of_no_bytes(words)) {
      refuse(fmt::format("this is no row of nccl-tests: {}", in_quotes(line)),
             "A row has a size above 0, a time, and the bandwidth that follows from both.");
    }
  }
  if (curve.ranks < 2)
    throw BadInput(file, "this output of nccl-tests names no ranks", "Keep its lines \"#  Rank  0 ...\".");
  if (rows.empty()) throw BadInput(file, "there is no row of nccl-tests in this file", "");
  curve.nodes = int(hosts.size());
  curve.what = collective_of(rows, curve.ranks);
  std::map<double, double> by_size;
  for (const Row& row : rows) by_size[row.bytes] = row.us;  // measured twice: the last time counts
  for (const auto& [bytes, us] : by_size) curve.points.push_back({bytes, us});
  return curve;
}

}  // namespace seeksim::harness::calibration
