#include "harness/commands/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "harness/input/files.h"
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

namespace {

// Empty: this user has no cache.
std::string file_of_failed() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if ((cache == nullptr || *cache == 0) && (home == nullptr || *home == 0)) return "";
  const std::string folder = cache != nullptr && *cache != 0 ? cache : std::string(home) + "/.cache";
  std::error_code none;
  const std::string here = std::filesystem::current_path(none).string();
  return fmt::format("{}/seeksim/last-failed-{:016x}", folder, XXH64(here.data(), here.size(), 0));
}

}  // namespace

void remember_failed(const std::vector<std::string>& files) {
  const std::string file = file_of_failed();
  if (file.empty()) return;
  try {
    make_folder(file.substr(0, file.rfind('/')), "--last-failed");
    write_file(file, fmt::format("{}\n", fmt::join(files, "\n")));
  } catch (const BadInput&) {  // a cache that cannot be written is no reason to fail
  }
}

std::vector<std::string> last_failed() {
  constexpr std::uint64_t kBytesMost = 16 << 20;
  const std::string file = file_of_failed();
  std::error_code none;
  if (file.empty() || !std::filesystem::exists(file, none))
    throw BadInput("--last-failed", "no call with several scenarios was made from this folder",
                   "Run them once: seeksim run scenarios.");
  std::vector<std::string> files;
  std::istringstream lines(read_file(file, kBytesMost));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) files.push_back(line);
  }
  return files;
}

std::vector<std::string> that_failed_last(const std::vector<std::string>& files) {
  const std::vector<std::string> failed = last_failed();
  if (files.empty()) return failed;
  std::vector<std::string> chosen;
  std::copy_if(files.begin(), files.end(), std::back_inserter(chosen),
               [&](const std::string& file) { return std::find(failed.begin(), failed.end(), file) != failed.end(); });
  return chosen;
}

}  // namespace seeksim::harness
