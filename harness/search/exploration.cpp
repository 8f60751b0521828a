#include "harness/search/exploration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

// The first of these variables that is a number.
int variable(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    int value = 0;
    const auto [end, error] = std::from_chars(text, text + std::string_view(text).size(), value);
    if (error == std::errc() && *end == 0 && value >= 0) return value;
  }
  return otherwise;
}

}  // namespace

double budget_s(const std::string& text) {
  if (text == "endless") return kEndless;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const double of = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || of == 0 || value <= 0 || value * of > 1e7)
    throw BadInput("--budget " + text, "a time is expected",
                   "For example 60s, 10m, 2h, or endless: until a signal comes.");
  return value * of;
}

LaunchedAs launched_as() {
  LaunchedAs as;
  as.size = std::max(1, variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 1));
  as.rank = variable({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}, 0);
  as.beside = std::max(1, variable({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"}, 1));
  // A shell in an allocation has the size and no rank of its own: it is one process.
  if (as.rank >= as.size) as.rank = 0, as.size = 1;
  return as;
}

std::string finding_key(const std::string& check, const std::string& why) {
  std::string key = check + ": ";
  bool number = false;
  for (const char c : why) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) || (number && (c == '.' || c == ','));
    if (!digit) key += c;
    if (digit && !number) key += '#';
    number = digit;
  }
  return key;
}

}  // namespace seeksim::harness
