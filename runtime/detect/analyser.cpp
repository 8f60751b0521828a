// The order of things: find where each rank stands in each of its communicators; hand what the ranks said (or, where
// they said nothing, what their records show) to the diagnosis; then follow who waits for whom.
#include "runtime/detect/analyser.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

bool over(const Record& record) { return record.state == RecordState::completed; }

// A rank's place in one communicator.
struct PlaceInComm {
  const CommHeader* comm = nullptr;
  const Record* oldest = nullptr;  // that did not complete
  std::uint64_t joined = 0;        // the last operation that it entered
};

struct Seen {
  const FlightDump* dump = nullptr;
  std::map<std::uint64_t, PlaceInComm> places;  // by communicator
  const PlaceInComm* stuck = nullptr;           // the place that it entered first of those where it waits

  const PlaceInComm* at(std::uint64_t comm) const {
    const auto it = places.find(comm);
    return it == places.end() ? nullptr : &it->second;
  }
};

Seen look_at(const FlightDump& dump) {
  Seen seen;
  seen.dump = &dump;
  std::map<std::uint32_t, const CommHeader*> by_handle;
  for (const CommHeader& comm : dump.comms) {
    if (comm.epoch != dump.epoch) continue;
    by_handle[comm.handle] = &comm;
    seen.places[comm.id].comm = &comm;
  }
  for (const Record& record : dump.records) {
    const auto comm = by_handle.find(record.comm);
    if (comm == by_handle.end()) continue;
    PlaceInComm& place = seen.places[comm->second->id];
    place.joined = std::max(place.joined, record.op.sequence);
    if (!over(record) && place.oldest == nullptr) place.oldest = &record;
  }
  for (const auto& [id, place] : seen.places) {
    if (place.oldest == nullptr) continue;
    if (seen.stuck == nullptr || place.oldest->enqueued_ns < seen.stuck->oldest->enqueued_ns) seen.stuck = &place;
  }
  return seen;
}

using World = std::map<int, Seen>;  // by rank

const Record* record_of(const Seen& seen, std::uint64_t comm, std::uint64_t sequence) {
  const PlaceInComm* place = seen.at(comm);
  if (place == nullptr) return nullptr;
  for (const Record& record : seen.dump->records) {
    if (record.comm == place->comm->handle && record.op.sequence == sequence) return &record;
  }
  return nullptr;
}

// What a rank would have said, had it been asked: of dumps that hold no ballots.
Ballot ballot_from(const Seen& seen) {
  Ballot ballot;
  ballot.ok = seen.stuck == nullptr;
  std::size_t n = 0;
  for (const auto& [id, place] : seen.places) {
    if (n < ballot.progress.size()) ballot.progress[n++] = {id, place.joined};
    if (seen.stuck == nullptr) ballot.last_joined = place.joined, ballot.stuck_in = id;
  }
  if (seen.stuck == nullptr) return ballot;
  const Record& record = *seen.stuck->oldest;
  ballot.error = record.state == RecordState::timed_out ? ErrorKind::timeout : ErrorKind::revoked;
  ballot.last_committed = record.op.step - 1;
  ballot.stuck_in = seen.stuck->comm->id;
  ballot.last_joined = seen.stuck->joined;
  ballot.stuck_sequence = record.op.sequence;
  ballot.stuck_kind = record.op.kind;
  ballot.stuck_meaning = meaning(record.op);
  ballot.missing_peer = record.op.peer;
  ballot.joined_ns = record.enqueued_ns;
  // Where the end was not recorded: after the watchdog's time, so that no rank that came before that counts as late.
  const TimeNs patience = seen.stuck->comm->timeout_ns > 0 ? seen.stuck->comm->timeout_ns : 600 * kSecond;
  ballot.detected_ns = record.ended_ns >= 0 ? record.ended_ns : later(record.enqueued_ns, patience);
  return ballot;
}

// The agreement as it was, or as it would have been. If others left a ballot and a rank left none, it did not answer.
Agreement agreement_of(const World& world) {
  Agreement agreement;
  const bool told =
      std::any_of(world.begin(), world.end(), [](const auto& r) { return r.second.dump->ballot.has_value(); });
  for (const auto& [rank, seen] : world) {
    const FlightDump& dump = *seen.dump;
    agreement.epoch = std::max(agreement.epoch, dump.epoch);
    if (dump.gone || (told && !dump.ballot)) {
      agreement.dead.push_back(rank);
      if (dump.silent) agreement.silent.push_back(rank);
      continue;
    }
    agreement.members.push_back(rank);
    agreement.ballots.push_back(dump.ballot ? *dump.ballot : ballot_from(seen));
  }
  return agreement;
}

// ---- how the records of one operation match ------------------------------------------------------------------------

bool same_tensor(const Op& a, const Op& b) { return std::strcmp(a.tensor, b.tensor) == 0 && a.step == b.step; }

// The first way in which `other` is another operation than `one`.
Match compare(const Record& one, const Record& other) {
  if (one.op.kind != other.op.kind || !same_tensor(one.op, other.op)) return Match::type;
  if (one.payload.type != other.payload.type) return Match::dtype;
  const bool whole =
      one.op.kind == OpKind::all_reduce || one.op.kind == OpKind::all_gather || one.op.kind == OpKind::publish;
  if (whole && one.op.bytes != other.op.bytes) return Match::size;
  if (over(one) != over(other)) return Match::state;
  return Match::matched;
}

const char* odd_part(Match match) {
  return match == Match::size ? "size" : match == Match::dtype ? "type" : "operation";
}

struct Matched {
  Match worst = Match::matched;
  std::vector<int> missing;
  std::optional<FirstDivergent> divergent;
};

bool is_other_operation(Match match) { return match == Match::type || match == Match::size || match == Match::dtype; }

Matched match_records(const World& world, const CommHeader& comm, std::uint64_t sequence) {
  Matched found;
  std::vector<std::pair<int, const Record*>> there;
  for (const int rank : comm.members) {
    const auto seen = world.find(rank);
    const Record* record = seen == world.end() ? nullptr : record_of(seen->second, comm.id, sequence);
    if (record != nullptr)
      there.emplace_back(rank, record);
    else if (seen == world.end() || seen->second.dump->gone || seen->second.at(comm.id) == nullptr ||
             seen->second.at(comm.id)->joined < sequence)
      found.missing.push_back(rank);  // it never came; what is too old for the ring was completed
  }
  // The rank that differs from most others is the odd one.
  std::size_t most = 0;
  for (const auto& [rank, record] : there) {
    std::size_t against = 0;
    Match first = Match::matched;
    for (const auto& [other, theirs] : there) {
      const Match match = compare(*theirs, *record);
      if (is_other_operation(match)) ++against, first = match;
      if (match == Match::state && found.worst == Match::matched) found.worst = match;
    }
    if (against <= most) continue;
    most = against;
    found.worst = first;
    found.divergent = FirstDivergent{record->op.tensor, rank, record->op.step};
  }
  if (!found.missing.empty() && !is_other_operation(found.worst)) found.worst = Match::missing;
  return found;
}

// ---- who waits for whom --------------------------------------------------------------------------------------------

std::optional<WaitEdge> edge_from(const World& world, int rank) {
  const auto at = world.find(rank);
  if (at == world.end() || at->second.dump->gone) return std::nullopt;
  const Seen& seen = at->second;
  const Ballot* ballot = seen.dump->ballot ? &*seen.dump->ballot : nullptr;
  const PlaceInComm* place = seen.stuck;
  if (ballot != nullptr && ballot->stuck_sequence > 0 && seen.at(ballot->stuck_in) != nullptr)
    place = seen.at(ballot->stuck_in);
  if (place == nullptr) return std::nullopt;
  WaitEdge edge;
  edge.rank = rank;
  edge.comm = place->comm->id;
  edge.axis = place->comm->axis;
  if (ballot != nullptr && ballot->stuck_sequence > 0) {
    edge.sequence = ballot->stuck_sequence;
    edge.op = ballot->stuck_kind;
  } else if (place->oldest != nullptr) {
    edge.sequence = place->oldest->op.sequence;
    edge.op = place->oldest->op.kind;
  } else {
    return std::nullopt;
  }
  const int known = ballot != nullptr && ballot->missing_peer != rank ? ballot->missing_peer : -1;
  if (known >= 0)
    edge.waits_for = {known};
  else
    edge.waits_for = match_records(world, *place->comm, edge.sequence).missing;
  std::erase(edge.waits_for, rank);
  return edge;
}

// From a rank along the first peer that it waits for, until a rank waits for no one or the chain is a circle.
std::vector<WaitEdge> chain_from(const World& world, int rank) {
  std::vector<WaitEdge> chain;
  std::set<int> been;
  while (been.insert(rank).second) {
    const std::optional<WaitEdge> edge = edge_from(world, rank);
    if (!edge) break;
    chain.push_back(*edge);
    if (edge->waits_for.empty()) break;
    rank = edge->waits_for.front();
  }
  return chain;
}

// ---- nothing failed ------------------------------------------------------------------------------------------------

// A rank is slow if it is nearly always the last to come to a collective, and the others wait for it a good part of
// the time.
constexpr double kLastShare = 0.6;
constexpr double kWaitShare = 0.15;

std::vector<int> slow_ranks(const World& world) {
  struct Start {
    int rank;
    TimeNs at;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Start>> starts;
  for (const auto& [rank, seen] : world) {
    for (const auto& [id, place] : seen.places) {
      for (const Record& record : seen.dump->records) {
        if (record.comm != place.comm->handle || !over(record) || !is_collective(record.op.kind)) continue;
        if (record.started_ns >= 0) starts[{id, record.op.sequence}].push_back({rank, record.started_ns});
      }
    }
  }
  std::map<int, std::pair<int, TimeNs>> last;  // how often, and how long the others waited
  int operations = 0;
  TimeNs first = kForever, end = 0;
  for (auto& [what, of] : starts) {
    if (of.size() < 2) continue;
    std::sort(of.begin(), of.end(), [](const Start& a, const Start& b) { return a.at < b.at; });
    ++operations;
    first = std::min(first, of.front().at);
    end = std::max(end, of.back().at);
    auto& [times, waited] = last[of.back().rank];
    ++times;
    waited += of.back().at - of[of.size() - 2].at;
  }
  std::vector<int> slow;
  for (const auto& [rank, how] : last) {
    const bool often = how.first >= kLastShare * operations;
    if (often && double(how.second) >= kWaitShare * double(end - first)) slow.push_back(rank);
  }
  return slow;
}

std::string chain_text(const Analysis& analysis, const std::vector<FlightDump>& dumps) {
  std::string text;
  const auto ranks = [](const std::vector<int>& list) {
    std::string all = list.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < list.size() && i < 8; ++i) all += (i > 0 ? ", " : "") + std::to_string(list[i]);
    return list.size() > 8 ? all + ", ..." : all;
  };
  for (const WaitEdge& edge : analysis.wait_for_chain) {
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(edge.rank) + " waits in " +
            std::string(name(edge.op)) + " #" + std::to_string(edge.sequence) + " (" + std::string(name(edge.axis)) +
            ")";
    if (!edge.waits_for.empty()) text += " for " + ranks(edge.waits_for);
  }
  if (analysis.wait_for_chain.empty() || analysis.wait_for_chain.back().waits_for.empty()) return text;
  const int end = analysis.wait_for_chain.back().waits_for.front();
  const auto dump = std::find_if(dumps.begin(), dumps.end(), [end](const FlightDump& d) { return d.rank == end; });
  const bool again = std::any_of(analysis.wait_for_chain.begin(), analysis.wait_for_chain.end(),
                                 [end](const WaitEdge& edge) { return edge.rank == end; });
  if (again) return text + ": a circle";
  if (dump == dumps.end() || dump->gone) return text + "; rank " + std::to_string(end) + " is gone";
  return text + "; rank " + std::to_string(end) + " waits for nobody";
}

}  // namespace

std::string_view name(Match match) {
  constexpr EnumNames<Match> kNames({{Match::matched, "matched"},
                                     {Match::missing, "missing"},
                                     {Match::type, "type"},
                                     {Match::size, "size"},
                                     {Match::dtype, "dtype"},
                                     {Match::state, "state"}});
  return kNames.of(match);
}

Analysis analyse(const std::vector<FlightDump>& dumps, const Diagnosis* decided) {
  World world;
  for (const FlightDump& dump : dumps) world.emplace(dump.rank, look_at(dump));
  Analysis analysis;
  const Agreement agreement = agreement_of(world);
  analysis.epoch = agreement.epoch;
  const bool stuck = std::any_of(world.begin(), world.end(), [](const auto& r) { return r.second.stuck != nullptr; });
  const bool failed =
      !agreement.dead.empty() || stuck ||
      std::any_of(agreement.ballots.begin(), agreement.ballots.end(), [](const Ballot& b) { return !b.ok; });
  if (!failed && decided == nullptr) {
    analysis.diagnosis.culprits = slow_ranks(world);
    analysis.slow = !analysis.diagnosis.culprits.empty();
    if (analysis.slow) analysis.diagnosis.verdict = Verdict::straggler;
    return analysis;
  }
  analysis.diagnosis = decided != nullptr ? *decided : diagnose(agreement);
  // The chain begins at the rank that noticed first among those that were stuck.
  int first = -1;
  TimeNs noticed = kForever;
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    const Ballot& ballot = agreement.ballots[i];
    if (ballot.ok || ballot.stuck_sequence == 0 || ballot.detected_ns >= noticed) continue;
    noticed = ballot.detected_ns;
    first = agreement.members[i];
  }
  const std::vector<int>& culprits = analysis.diagnosis.culprits;
  const auto is_culprit = [&](int rank) { return std::find(culprits.begin(), culprits.end(), rank) != culprits.end(); };
  if (first >= 0) analysis.wait_for_chain = chain_from(world, first);
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    if (agreement.ballots[i].stuck_sequence > 0 && !is_culprit(agreement.members[i]))
      analysis.victims.push_back(agreement.members[i]);
  }
  if (analysis.wait_for_chain.empty()) return analysis;
  analysis.chain = chain_text(analysis, dumps);
  const WaitEdge& root = analysis.wait_for_chain.back();
  analysis.comm = root.comm;
  analysis.axis = root.axis;
  analysis.comm_seq = root.sequence;
  const Matched matched = match_records(world, *world.at(root.rank).at(root.comm)->comm, root.sequence);
  analysis.match = matched.worst;
  analysis.missing = matched.missing;
  analysis.first_divergent = matched.divergent;
  if (is_other_operation(matched.worst) && matched.divergent)
    analysis.chain +=
        "; rank " + std::to_string(matched.divergent->rank) + " brought another " + odd_part(matched.worst);
  return analysis;
}

}  // namespace seeksim::runtime
