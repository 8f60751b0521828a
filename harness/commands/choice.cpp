#include "harness/commands/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "harness/input/problem.h"

namespace seeksim::harness {

Shard shard_of(const std::string& text) {
  constexpr std::size_t kShardsMost = 100'000;
  const std::size_t slash = text.find('/');
  std::size_t part = 0, of = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const bool whole = slash != std::string::npos && std::from_chars(begin, end, part).ptr == begin + slash &&
                     std::from_chars(begin + slash + 1, end, of).ptr == end;
  if (!whole || part < 1 || part > of || of > kShardsMost)
    throw BadInput("--shard " + text, fmt::format("I/N is expected, from 1/N to N/N, N at most {}", kShardsMost),
                   "For example --shard 1/4 on the first of four machines.");
  return {part - 1, of};
}

std::vector<std::string> with_pattern(const std::vector<std::string>& files, const std::string& pattern) {
  std::vector<std::string> chosen;
  std::copy_if(files.begin(), files.end(), std::back_inserter(chosen),
               [&](const std::string& file) { return file.find(pattern) != std::string::npos; });
  if (chosen.empty() && !files.empty())
    throw BadInput("-k " + pattern, fmt::format("none of {} scenarios has this in its path", files.size()),
                   "--list shows those that are there.");
  return chosen;
}

std::vector<std::string> of_shard(const std::vector<std::string>& files, const Shard& shard) {
  std::vector<std::string> chosen;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (shard.has(i)) chosen.push_back(files[i]);
  }
  return chosen;
}

}  // namespace seeksim::harness
