// A DeepSpeed hostfile, as DeepSpeed reads it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <sstream>

#include "harness/doctor/hostfile.h"
#include "harness/doctor/lint.h"

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// As DeepSpeed's expression reads a line: ^(\S+)\s+slots=(\d+). By hand, since std::regex recurses for each character.
struct HostLine {
  std::string host;
  std::string slots;  // digits
};
std::optional<HostLine> host_line(const std::string& line) {
  constexpr std::string_view kSlots = "slots=";
  const auto host_end = std::find_if(line.begin(), line.end(), is_blank);
  const auto word = std::find_if_not(host_end, line.end(), is_blank);
  if (host_end == line.begin() || word == host_end) return std::nullopt;
  const std::string_view rest = std::string_view(line).substr(std::size_t(word - line.begin()));
  if (!rest.starts_with(kSlots)) return std::nullopt;
  const std::string_view number = rest.substr(kSlots.size());
  const auto digits = std::find_if_not(number.begin(), number.end(), is_digit) - number.begin();
  if (digits == 0) return std::nullopt;
  return HostLine{std::string(line.begin(), host_end), std::string(number.substr(0, std::size_t(digits)))};
}

}  // namespace

std::vector<Advice> lint_hostfile(std::string_view text, const std::string& file) {
  std::vector<Advice> found;
  std::set<std::string> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::string place = fmt::format("{}:{}", file, number);
    const std::optional<HostLine> entry = host_line(line);
    if (!entry) {
      found.push_back({Weight::wrong,
                       {place, "", fmt::format("{}: DeepSpeed reads only lines like \"host slots=8\"", in_quotes(line)),
                        "Write no blanks around = and no host:8."}});
    } else if (!hosts.insert(entry->host).second) {
      found.push_back(
          {Weight::wrong,
           {place, "", fmt::format("{} is there twice: DeepSpeed refuses it", in_quotes(entry->host)), ""}});
    } else if (entry->slots.find_first_not_of('0') == std::string::npos) {
      found.push_back({Weight::wrong, {place, "", "no slots", "As many as the host has GPUs."}});
    }
  }
  if (hosts.empty() && found.empty())
    found.push_back({Weight::wrong, {file, "", "is empty: DeepSpeed refuses it", "One line a host: host slots=8."}});
  return found;
}

std::int64_t slots_of(std::string_view text) {
  std::int64_t slots = 0;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::optional<HostLine> entry = host_line(line);
    if (line[0] != '#' && entry && entry->slots.size() <= 6) slots += std::stoll(entry->slots);
  }
  return slots;
}

}  // namespace seeksim::harness
