// The run of a reproduction, seen as a picture, and held against the job's.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/loading/load.h"
#include "harness/search/reproduce.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

using What = HangCause::What;
using runtime::OpKind;

constexpr double kWallLimitS = 60;

// What a simulated rank waits in. Two that are equal wait in the same.
struct Standing {
  OpKind op = OpKind::count_;
  std::uint64_t sequence = 0;
  std::uint64_t elements = 0;  // 0: ranks bring different ones anyway
  runtime::ElementType type = runtime::ElementType::bytes;
  auto operator<=>(const Standing&) const = default;
};

// By rank: where it waits; no value: it waits in nothing. A rank whose process is gone is not there.
using Standings = std::map<int, std::optional<Standing>>;

bool sums_or_gathers(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::reduce_scatter || kind == OpKind::all_gather ||
         kind == OpKind::publish;
}

std::optional<Standing> standing_of(const runtime::FlightDump& dump) {
  for (const runtime::Record& r : dump.records) {
    if (!sums_or_gathers(r.op.kind) || r.started_ns < 0 || r.state == runtime::RecordState::completed) continue;
    // Only to an all-reduce does every rank bring as much.
    return Standing{r.op.kind, r.op.sequence, r.op.kind == OpKind::all_reduce ? r.payload.count : 0, r.payload.type};
  }
  return std::nullopt;
}

Standings standings_of(const RunRecord& run) {
  Standings all;
  for (const runtime::FlightDump& dump : run.detection.dumps) {
    if (!dump.gone) all[dump.rank] = standing_of(dump);
  }
  return all;
}

// What most of those wait in that the cause does not name.
std::optional<Standing> most_of(const Standings& all, const std::vector<int>& but) {
  std::map<Standing, int> votes;
  for (const auto& [rank, standing] : all) {
    if (standing && std::find(but.begin(), but.end(), rank) == but.end()) ++votes[*standing];
  }
  if (votes.empty()) return std::nullopt;
  return std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::string text_of(const Standings& all, int rank) {
  const auto at = all.find(rank);
  if (at == all.end()) return "its process is gone";
  if (!at->second) return "waits in nothing";
  return fmt::format("waits in {} #{}", name(at->second->op), at->second->sequence);
}

std::string job_text(const HangPicture& picture, const HangCause& cause, int rank) {
  const bool named = std::find(cause.ranks.begin(), cause.ranks.end(), rank) != cause.ranks.end();
  const auto place =
      std::find_if(picture.all.begin(), picture.all.end(), [&](const HangPlace& one) { return one.rank == rank; });
  if (place != picture.all.end()) {
    std::string text = fmt::format("waits in {}", place->said.empty() ? "an operation" : place->said);
    return place->number < 0 ? text : fmt::format("{} #{}", text, place->number);
  }
  if (!named) return "";
  if (std::find(picture.accused.begin(), picture.accused.end(), rank) == picture.accused.end()) return "silent";
  return picture.kind == HangKind::first_error ? "failed by itself" : "has not come";
}

// Whether a rank that the cause names ends as the cause says.
bool ends_so(const Standings& all, const std::optional<Standing>& most, const HangCause& cause, int rank) {
  const auto at = all.find(rank);
  switch (cause.what) {
    case What::gone:
      return at == all.end();
    case What::never_comes:
      return at != all.end() && !at->second;
    case What::other_operation:
      return at != all.end() && at->second && most && at->second->op != most->op;
    case What::other_size:
      return at != all.end() && at->second && most && at->second->op == most->op &&
             at->second->sequence == most->sequence && at->second->elements != most->elements;
    case What::other_type:
      return at != all.end() && at->second && most && at->second->type != most->type;
    case What::other_order:
      return at != all.end() && at->second && most && at->second->sequence != most->sequence;
    case What::messages_lost:
      return false;  // it names no rank
  }
  return false;
}

std::string class_of(OpKind op) {
  return op == OpKind::publish ? "all_gather" : operation_class(std::string(name(op)));
}

std::vector<HeldRank> held_against(const HangPicture& picture, const HangCause& cause, const Standings& all) {
  const std::optional<Standing> most = most_of(all, cause.ranks);
  std::vector<HeldRank> held;
  for (int rank = 0; rank < std::max(picture.world, 2); ++rank) {
    HeldRank one{rank, job_text(picture, cause, rank), text_of(all, rank), true};
    if (std::find(cause.ranks.begin(), cause.ranks.end(), rank) != cause.ranks.end()) {
      one.same = ends_so(all, most, cause, rank);
    } else {
      const auto at = all.find(rank);
      const bool waits = at != all.end() && at->second && most && *at->second == *most;
      const std::string wanted = cause.stands_in.empty() ? cause.operation : cause.stands_in;
      one.same = waits && (wanted.empty() || class_of(most->op) == wanted);
    }
    held.push_back(std::move(one));
  }
  return held;
}

}  // namespace

Reproduced reproduce(const HangPicture& picture, const HangCause& cause, const std::string& file) {
  const Scenario scenario = load_scenario(file);
  SimulationOptions options;
  options.flight_recorder = true;
  options.wall_limit_s = kWallLimitS;
  const RunRecord run = Simulation(scenario, options).run();
  const Judgement judgement = judge({scenario, run, nullptr, std::nullopt, {}});
  Reproduced done;
  done.verdict = judgement.sentence;
  done.ranks = held_against(picture, cause, standings_of(run));
  done.same = judgement.status == ExitStatus::as_expected &&
              std::all_of(done.ranks.begin(), done.ranks.end(), [](const HeldRank& one) { return one.same; });
  return done;
}

}  // namespace seeksim::harness
