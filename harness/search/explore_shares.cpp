#include "harness/search/explore_shares.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include <nlohmann/json.hpp>

#include "runtime/backend/wire/mpi_world.h"

namespace seeksim::harness {
namespace {

// All end when the budget is over, but for the case that they are in.
constexpr runtime::TimeNs kPatience = 120 * runtime::kSecond;

void add_counts(const Json& from, std::map<std::string, std::uint64_t>& to) {
  for (const auto& [what, n] : from.items()) to[what] += n.get<std::uint64_t>();
}

}  // namespace

bool shares_meet(const LaunchedAs& as) { return as.size > 1 && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

std::string text_of_share(const ExploreResult& result, const ToldByKey& told) {
  Json json = {{"cases", result.cases},   {"red", result.red},          {"complete", result.complete},
               {"by", result.by},         {"stops", result.stops},      {"coverage", result.coverage.json()},
               {"wall_s", result.wall_s}, {"unjudged", result.unjudged}};
  json["found"] = Json::array();
  for (const auto& [key, found] : result.found) {
    const Told& files = told.at(key);
    json["found"].push_back({{"key", key},
                             {"check", found.check},
                             {"why", found.why},
                             {"document", found.document},
                             {"after_s", found.after_s},
                             {"times", found.times},
                             {"shown", found.shown},
                             {"of_twin", found.of_twin},
                             {"file", files.file},
                             {"schedule", files.schedule}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void take_share(const std::string& text, ExploreResult& all, ToldByKey& told) {
  const Json json = Json::parse(text);
  all.cases += json["cases"].get<std::uint64_t>();
  all.red += json["red"].get<std::uint64_t>();
  all.complete = all.complete && json["complete"].get<bool>();
  all.wall_s = std::max(all.wall_s, json["wall_s"].get<double>());
  add_counts(json["by"], all.by);
  add_counts(json["stops"], all.stops);
  add_counts(json["unjudged"], all.unjudged);
  all.coverage.add(json["coverage"]);
  for (const Json& one : json["found"]) {
    const std::string key = one["key"];
    const auto [at, fresh] = all.found.try_emplace(key);
    ExploreResult::Found& found = at->second;
    found.times += one["times"].get<std::uint64_t>();
    if (!fresh) continue;
    found.check = one["check"];
    found.why = one["why"];
    found.document = one["document"];
    found.after_s = one["after_s"];
    found.shown = one["shown"];
    found.of_twin = one["of_twin"];
    told[key].file = one["file"];
    told[key].schedule = one["schedule"];
  }
}

bool bring_together(const LaunchedAs& as, ExploreResult& result, ToldByKey& told) {
  runtime::MpiWorld world;  // not before: the processes that explored were forks
  const std::string mine = text_of_share(result, told);
  const auto bytes = std::as_bytes(std::span(mine));
  const std::vector<std::vector<std::byte>> all = world.gather({bytes.begin(), bytes.end()}, as.size, kPatience);
  if (world.rank() != 0) return false;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].empty()) {
      result.complete = false;
      continue;
    }
    take_share({reinterpret_cast<const char*>(all[rank].data()), all[rank].size()}, result, told);
  }
  return true;
}

}  // namespace seeksim::harness
