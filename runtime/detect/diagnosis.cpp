// How the culprit is found. In order: what a rank saw itself (memory, a checksum, another operation); a rank that is
// gone and was waited for; a rank that came late; and last, the link of the earliest operation that did not finish.
#include "runtime/detect/diagnosis.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/detect/testimony.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::runtime {

namespace {

// A revoke wakes every waiting rank. A rank that takes longer than this to notice was not waiting.
constexpr TimeNs kPrompt = kSecond;

bool is_local(ErrorKind kind) {
  return kind == ErrorKind::out_of_memory || kind == ErrorKind::io || kind == ErrorKind::closure ||
         kind == ErrorKind::data_error;
}

std::string operation(const Diagnosis& d, const Testimony& found) { return operation(d.op, d.sequence, found); }

// ---- the causes: each returns false where it does not apply ---------------------------------------------------------

void set_operation(Diagnosis& d, const Ballot& ballot) {
  d.op = ballot.stuck_kind;
  d.sequence = ballot.stuck_sequence;
}

// " at sample 21": which ones the culprits' data loaders could not bring.
std::string at_samples(const Testimony& found, ErrorKind error) {
  std::set<std::int64_t> samples;
  for (const Voice& v : found.voices) {
    if (v.ballot->error == error && v.ballot->words[kSampleWord] > 0) samples.insert(v.ballot->words[kSampleWord] - 1);
  }
  std::string text;
  for (const std::int64_t sample : samples) text += (text.empty() ? "" : ", ") + std::to_string(sample);
  return text.empty() ? text : (samples.size() == 1 ? " at sample " : " at samples ") + text;
}

// The rank itself says what went wrong: memory, storage, a kernel, its data.
bool local_failure(Diagnosis& d, const Testimony& found, const Voice& first) {
  if (!is_local(first.ballot->error)) return false;
  d.verdict = Verdict::local_failure;
  set_operation(d, *first.ballot);
  for (const Voice& v : found.voices) {
    if (v.ballot->error == first.ballot->error) d.culprits.push_back(v.rank);
  }
  d.text = rank_names(d.culprits) + " failed: " + std::string(name(first.ballot->error));
  if (first.ballot->error == ErrorKind::data_error) d.text += at_samples(found, first.ballot->error);
  if (found.step >= 0) d.text += ", in step " + std::to_string(found.step);
  return true;
}

bool corrupt_message(Diagnosis& d, const Testimony& found, const Voice& first) {
  if (first.ballot->error != ErrorKind::corrupt) return false;
  d.verdict = Verdict::corrupt_message;
  set_operation(d, *first.ballot);
  const int sender = first.missing();
  if (sender < 0) {
    d.text = rank_names({first.rank}) + " received a corrupt message in " + operation(d, found) +
             ", the sender is not known";
    return true;
  }
  d.culprits = {sender};
  d.links = {{sender, first.rank}};
  d.text = "the message of rank " + std::to_string(sender) + " to rank " + std::to_string(first.rank) + " in " +
           operation(d, found) + " arrived corrupt";
  return true;
}

// The rank that is in most of the pairs that did not agree; -1: no single one. A rank that brings another operation
// disagrees with all others, and those agree among each other.
int in_most_pairs(const Testimony& found) {
  std::set<std::pair<int, int>> pairs;
  for (const Voice& v : found.voices) {
    if (v.ballot->error == ErrorKind::mismatch && v.missing() >= 0) pairs.insert(std::minmax({v.rank, v.missing()}));
  }
  std::map<int, int> of;
  for (const auto& [a, b] : pairs) ++of[a], ++of[b];
  int most = 0, rank = -1;
  for (const auto& [one, n] : of) {
    if (n > most)
      most = n, rank = one;
    else if (n == most)
      rank = -1;
  }
  return rank;
}

// A rank brought another operation. The majority is taken to be right; where numbers cannot decide, the receiver's word
// counts.
bool mismatch(Diagnosis& d, const Testimony& found, const Voice& first) {
  if (first.ballot->error != ErrorKind::mismatch) return false;
  d.verdict = Verdict::mismatch;
  set_operation(d, *first.ballot);
  std::map<std::pair<OpKind, std::int64_t>, std::vector<int>> brought;  // by what it is, and what it is about
  for (const Voice& v : found.voices) {
    if (v.ballot->stuck_sequence != first.ballot->stuck_sequence) continue;
    brought[{v.ballot->stuck_kind, v.ballot->stuck_meaning}].push_back(v.rank);
  }
  std::size_t most = 0;
  for (const auto& [what, ranks] : brought) most = std::max(most, ranks.size());
  std::vector<int> odd;
  std::size_t camps_of_most = 0;
  for (const auto& [what, ranks] : brought) {
    if (ranks.size() < most)
      odd.insert(odd.end(), ranks.begin(), ranks.end());
    else
      ++camps_of_most;
  }
  std::sort(odd.begin(), odd.end());
  if (camps_of_most == 1 && !odd.empty()) {
    d.culprits = odd;
    for (const auto& [what, ranks] : brought) {
      if (ranks.size() == most) d.op = what.first;
    }
  } else if (const int rank = in_most_pairs(found); rank >= 0) {
    d.culprits = {rank};
  } else if (first.missing() >= 0) {
    d.culprits = {first.missing()};
  }
  d.text = (d.culprits.empty() ? "some rank" : rank_names(d.culprits)) + " called a different operation than " +
           operation(d, found);
  return true;
}

// A rank ran a micro-batch again and got other bits. All heard of it in the vote, and name it.
bool corrupt_compute(Diagnosis& d, const Testimony& found, const Voice& first) {
  if (first.ballot->error != ErrorKind::corrupt_compute) return false;
  d.verdict = Verdict::corrupt_compute;
  d.op = OpKind::compute;
  for (const Voice& v : found.voices) {
    const int named = v.ballot->missing_peer >= 0 ? v.ballot->missing_peer : v.rank;
    if (v.ballot->error == ErrorKind::corrupt_compute) d.culprits.push_back(named);
  }
  std::sort(d.culprits.begin(), d.culprits.end());
  d.culprits.erase(std::unique(d.culprits.begin(), d.culprits.end()), d.culprits.end());
  d.text = rank_names(d.culprits) + " computed a micro-batch twice and got different bits";
  if (found.step >= 0) d.text += ", in step " + std::to_string(found.step);
  return true;
}

// All heard the same vote, and saw the same numbers.
bool diverged(Diagnosis& d, const Testimony& found) {
  const bool told = std::any_of(found.voices.begin(), found.voices.end(),
                                [](const Voice& v) { return v.ballot->error == ErrorKind::diverged; });
  if (!told) return false;
  d.verdict = Verdict::diverged;
  d.op = OpKind::vote;
  d.sequence = 0;
  d.text = "the run diverged in step " + std::to_string(found.step);
  return true;
}

// Nothing failed: the votes showed who holds up the others, and all heard it.
bool too_slow(Diagnosis& d, const Testimony& found) {
  for (const Voice& v : found.voices) {
    if (v.ballot->error == ErrorKind::too_slow && v.ballot->missing_peer >= 0)
      d.culprits.push_back(v.ballot->missing_peer);
  }
  if (d.culprits.empty()) return false;
  std::sort(d.culprits.begin(), d.culprits.end());
  d.culprits.erase(std::unique(d.culprits.begin(), d.culprits.end()), d.culprits.end());
  d.verdict = Verdict::straggler;
  d.op = OpKind::compute;
  d.sequence = 0;
  d.text = rank_names(d.culprits) + (d.culprits.size() == 1 ? " is" : " are") + " too slow";
  if (found.step > 0) d.text += ", after step " + std::to_string(found.step - 1);
  return true;
}

// Heartbeats stopped: the control plane declared them dead, long before anybody's watchdog.
bool silent_rank(Diagnosis& d, const Testimony& found) {
  if (found.silent.empty()) return false;
  d.verdict = Verdict::silent;
  d.culprits = found.silent;
  d.text = rank_names(d.culprits) + (d.culprits.size() == 1 ? " sends" : " send") + " no heartbeats; " +
           operation(d, found) + " could not end" + who_waited(found.stuck);
  return true;
}

// Failures that a rank saw with its own eyes beat everything that is inferred from waiting, which comes later.
bool seen_cause(Diagnosis& d, const Testimony& found) {
  const Voice* first = nullptr;
  for (const Voice& v : found.voices) {
    const ErrorKind error = v.ballot->error;
    const bool seen = is_local(error) || error == ErrorKind::corrupt || error == ErrorKind::mismatch ||
                      error == ErrorKind::corrupt_compute;
    if (!seen) continue;
    if (!first || v.ballot->detected_ns < first->ballot->detected_ns) first = &v;
  }
  return first && (local_failure(d, found, *first) || corrupt_message(d, found, *first) || mismatch(d, found, *first) ||
                   corrupt_compute(d, found, *first));
}

bool gone_rank(Diagnosis& d, const Testimony& found) {
  if (found.dead.empty()) return false;
  const auto is_dead = [&](int rank) { return std::binary_search(found.dead.begin(), found.dead.end(), rank); };
  // A transport saw its connection closed; its rank may be ahead of the others, so any operation counts. At a vote, all
  // that is known is that there was no answer.
  bool told = !found.stuck.empty() && found.first->error == ErrorKind::remote_error;
  // A rank waits for it, or for a rank that is in the same operation and cannot name the peer that it waits for.
  const auto cannot_say = [&](int rank) {
    return std::any_of(found.voices.begin(), found.voices.end(), [&](const Voice& v) {
      return v.rank == rank && v.missing() < 0 && v.ballot->stuck_in == found.in &&
             v.ballot->stuck_sequence == found.sequence;
    });
  };
  bool waited_for = told || found.stuck.empty();
  for (const Voice& v : found.stuck) waited_for |= v.missing() < 0 || is_dead(v.missing()) || cannot_say(v.missing());
  for (const Voice& v : found.voices) waited_for |= v.ballot->stuck_sequence > 0 && is_dead(v.missing());
  if (!waited_for) return false;
  for (const Voice& v : found.stuck) {
    told |= v.ballot->error == ErrorKind::remote_error && (v.missing() < 0 || is_dead(v.missing()));
  }
  d.verdict = told ? Verdict::died : Verdict::never_joined;
  d.culprits = found.dead;
  if (found.stuck.empty()) {
    d.text =
        rank_names(d.culprits) + " did not answer the " + (d.op == OpKind::count_ ? "agreement" : operation(d, found));
  } else if (told) {
    d.text = rank_names(d.culprits) + " died; " + operation(d, found) + " could not end" + who_waited(found.stuck);
  } else {
    d.text = rank_names(d.culprits) + " never joined " + operation(d, found) + who_waited(found.stuck);
  }
  return true;
}

// Alive, but it came to the operation after the others' watchdog, or has not come at all.
bool is_late(const Testimony& found, const Voice& v) {
  const Ballot& ballot = *v.ballot;
  if (found.sequence > 0 && ballot.stuck_in != found.in) {  // it is busy elsewhere, or should be here
    for (const CommProgress& own : ballot.progress) {
      if (own.id == found.in && own.last_joined >= found.sequence) return false;
    }
    return std::any_of(found.stuck.begin(), found.stuck.end(), [&](const Voice& s) { return s.missing() == v.rank; });
  }
  if (found.sequence > 0 && ballot.last_joined < found.sequence) return true;
  if (found.first->error != ErrorKind::timeout) return false;
  const bool there = found.sequence > 0 && ballot.stuck_sequence == found.sequence;
  if (there && ballot.joined_ns > found.first_detected_ns()) return true;
  const bool complains = there && v.missing() >= 0;
  return !complains && saw_something(ballot) && ballot.detected_ns > later(found.first_detected_ns(), kPrompt);
}

bool late_rank(Diagnosis& d, const Testimony& found) {
  if (!found.first) return false;
  std::vector<Voice> waited;
  std::vector<int> late;
  for (const Voice& v : found.voices) {
    const bool there =
        found.sequence == 0 || (v.ballot->stuck_in == found.in && v.ballot->stuck_sequence == found.sequence);
    if (is_late(found, v))
      late.push_back(v.rank);
    else if (there && saw_something(*v.ballot))
      waited.push_back(v);
  }
  if (late.empty() || waited.empty()) return false;
  d.culprits = late;
  d.verdict = Verdict::joined_late;
  d.text = rank_names(late) + (late.size() == 1 ? " is" : " are") + " alive but came too late to " +
           operation(d, found) + who_waited(waited);
  return true;
}

// The rank (or both ends, sender first) to be named for links between living ranks that all joined.
std::vector<int> blamed_for(const std::vector<std::pair<int, int>>& links) {
  std::vector<int> common = {links[0].first, links[0].second};
  for (const auto& [from, to] : links) {
    std::erase_if(common, [from = from, to = to](int rank) { return rank != from && rank != to; });
  }
  if (common.empty()) return {links[0].first};
  return common;
}

bool broken_link(Diagnosis& d, const Testimony& found) {
  std::vector<std::pair<TimeNs, std::pair<int, int>>> complaints;
  for (const Voice& v : found.stuck) {
    const int peer = v.missing();
    if (peer < 0) continue;
    const auto link = v.ballot->missing_is_sender ? std::pair(peer, v.rank) : std::pair(v.rank, peer);
    complaints.push_back({v.ballot->detected_ns, link});
  }
  if (complaints.empty()) return false;
  std::sort(complaints.begin(), complaints.end());
  for (const auto& [when, link] : complaints) {
    if (std::find(d.links.begin(), d.links.end(), link) == d.links.end()) d.links.push_back(link);
  }
  d.verdict = Verdict::link;
  d.culprits = blamed_for(d.links);
  for (const auto& [from, to] : d.links) {
    d.text += d.text.empty() ? "no message got from rank " : ", nor from ";
    d.text += std::to_string(from) + " to " + std::to_string(to);
  }
  d.text += " in " + operation(d, found) + who_waited(found.stuck) + ", though both joined it";
  return true;
}

void cannot_tell(Diagnosis& d, const Testimony& found) {
  if (found.stuck.empty()) {
    d.text = found.first ? operation(d, found) + " failed, and no rank can say why" : "nothing failed";
    return;
  }
  d.text = "all ranks joined " + operation(d, found) + who_waited(found.stuck) +
           " and no rank knows whose message is missing";
}

}  // namespace

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::none:
      return "none";
    case Verdict::never_joined:
      return "never_joined";
    case Verdict::joined_late:
      return "joined_late";
    case Verdict::died:
      return "died";
    case Verdict::link:
      return "link";
    case Verdict::corrupt_message:
      return "corrupt_message";
    case Verdict::mismatch:
      return "mismatch";
    case Verdict::local_failure:
      return "local_failure";
    case Verdict::corrupt_compute:
      return "corrupt_compute";
    case Verdict::silent:
      return "silent";
    case Verdict::diverged:
      return "diverged";
    case Verdict::straggler:
      return "straggler";
  }
  return "unknown";
}

std::int64_t meaning(const Op& op) {
  std::uint64_t hash = std::uint64_t(op.step) + 1;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3ull; };
  for (const char* c = op.tensor; *c != '\0'; ++c) mix(std::uint64_t(*c));
  if (op.kind == OpKind::all_reduce || op.kind == OpKind::all_gather) mix(op.bytes);
  return std::int64_t(hash);
}

Diagnosis diagnose(const Agreement& agreement) {
  const Testimony found = gather(agreement);
  Diagnosis d;
  d.first_detected_ns = found.first_detected_ns();
  if (!found.stuck.empty())
    set_operation(d, *found.stuck[0].ballot);
  else if (found.first)
    d.op = found.first->stuck_kind;
  if (seen_cause(d, found) || diverged(d, found) || silent_rank(d, found) || too_slow(d, found) ||
      gone_rank(d, found) || late_rank(d, found) || broken_link(d, found))
    return d;
  cannot_tell(d, found);
  return d;
}

}  // namespace seeksim::runtime
