#include "harness/analyse/picture.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

namespace seeksim::harness {
namespace {

HangPlace place_of(const Tree& entry) {
  HangPlace place;
  place.rank = entry.at("rank").get<int>();
  place.group = entry.value("group", "");
  place.said = entry.value("operation", "");
  place.operation = operation_class(place.said);
  place.number = entry.value("number", std::int64_t(-1));
  place.sizes = entry.value("sizes", "");
  return place;
}

}  // namespace

std::string operation_class(const std::string& said) {
  std::string small;
  for (const char c : said) {
    if (c != '_') small += char(std::tolower(static_cast<unsigned char>(c)));
  }
  // Whichever is found first: an all_gather is no gather.
  static constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
      {"allreduce", "all_reduce"}, {"reducescatter", "reduce_scatter"}, {"allgather", "all_gather"},
      {"alltoall", "all_to_all"},  {"broadcast", "broadcast"},          {"barrier", "barrier"}};
  for (const auto& [part, name] : kClasses) {
    if (small.find(part) != std::string::npos) return std::string(name);
  }
  return small;
}

HangPicture picture_of(const Story& story) {
  HangPicture picture;
  picture.kind = story.kind;
  picture.accused = story.accused;
  const Tree& d = story.details;
  int world = d.value("world", 0);
  std::set<int> known(story.accused.begin(), story.accused.end());
  for (const char* key : {"waiting", "brought"}) {
    for (const Tree& entry : d.value(key, Tree::array())) {
      HangPlace place = place_of(entry);
      if (place.rank < 0) continue;
      const bool again = std::any_of(picture.all.begin(), picture.all.end(),
                                     [&](const HangPlace& other) { return other.rank == place.rank; });
      known.insert(place.rank);
      if (!again) picture.all.push_back(std::move(place));
    }
  }
  std::sort(picture.all.begin(), picture.all.end(),
            [](const HangPlace& a, const HangPlace& b) { return a.rank < b.rank; });
  std::set<int> exist = known;
  for (const char* key : {"dumps", "missing_dumps", "speaks"}) {
    for (const Tree& rank : d.value(key, Tree::array())) exist.insert(rank.get<int>());
  }
  if (!exist.empty()) world = std::max(world, *exist.rbegin() + 1);
  picture.world = world;
  for (int rank = 0; rank < world; ++rank) {
    if (!known.contains(rank)) picture.silent.push_back(rank);
  }
  return picture;
}

}  // namespace seeksim::harness
