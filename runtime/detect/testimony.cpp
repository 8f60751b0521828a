// Ballots put in order, and the words for them.
#include "runtime/detect/testimony.h"

#include <algorithm>
#include <cstdio>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

// Sequences of different communicators do not compare. A rank that waits for a rank stuck in another communicator is
// not where it began; among the others, the one that entered first is. If all wait in a circle: the first of all.
std::uint64_t where_it_began(const std::vector<Voice>& stuck) {
  const Voice* first = nullptr;
  bool first_is_root = false;
  for (const Voice& v : stuck) {
    const bool shares = std::any_of(stuck.begin(), stuck.end(), [&](const Voice& other) {
      return other.rank == v.missing() && other.ballot->stuck_in != v.ballot->stuck_in;
    });
    const bool earlier = !first || v.ballot->joined_ns < first->ballot->joined_ns;
    if (!first || (!shares && !first_is_root) || (shares != first_is_root && earlier))
      first = &v, first_is_root = !shares;
  }
  return first ? first->ballot->stuck_in : 0;
}

std::string how_many(std::size_t n) { return std::to_string(n) + (n == 1 ? " rank" : " ranks"); }

std::string duration_text(TimeNs ns) {
  char text[40];
  if (ns >= kSecond)
    std::snprintf(text, sizeof text, "%.4g s", double(ns) / double(kSecond));
  else if (ns >= kMillisecond)
    std::snprintf(text, sizeof text, "%.4g ms", double(ns) / double(kMillisecond));
  else
    std::snprintf(text, sizeof text, "%.4g us", double(ns) / double(kMicrosecond));
  return text;
}

}  // namespace

Testimony gather(const Agreement& agreement) {
  SEEKSIM_CHECK(agreement.members.size() == agreement.ballots.size(), "an agreement has one ballot a member");
  Testimony found;
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    found.voices.push_back({agreement.members[i], &agreement.ballots[i]});
  }
  std::sort(found.voices.begin(), found.voices.end(), [](const Voice& a, const Voice& b) { return a.rank < b.rank; });
  found.dead = agreement.dead;
  std::sort(found.dead.begin(), found.dead.end());
  found.silent = agreement.silent;
  std::sort(found.silent.begin(), found.silent.end());
  // Where some ranks know their peer, those that do not know wait for none: their part of the operation is complete.
  bool some_know = false;
  for (const Voice& v : found.voices) some_know |= v.ballot->stuck_sequence > 0 && v.missing() >= 0;
  const auto is_stuck = [&](const Voice& v) {
    return v.ballot->stuck_sequence > 0 && (!some_know || v.missing() >= 0);
  };
  std::vector<Voice> stuck;
  for (const Voice& v : found.voices) {
    const Ballot& ballot = *v.ballot;
    found.step = std::max(found.step, ballot.last_committed + 1);
    if (saw_something(ballot) && (!found.first || ballot.detected_ns < found.first->detected_ns)) found.first = &ballot;
    if (is_stuck(v)) stuck.push_back(v);
  }
  found.in = where_it_began(stuck);
  std::erase_if(stuck, [&](const Voice& v) { return v.ballot->stuck_in != found.in; });
  for (const Voice& v : stuck) {
    if (found.sequence == 0 || v.ballot->stuck_sequence < found.sequence) found.sequence = v.ballot->stuck_sequence;
  }
  for (const Voice& v : stuck) {
    if (v.ballot->stuck_sequence == found.sequence) found.stuck.push_back(v);
  }
  return found;
}

// ---- words ---------------------------------------------------------------------------------------------------------
std::string operation(OpKind kind, std::uint64_t sequence, const Testimony& found) {
  if (sequence == 0 && kind == OpKind::count_) return "an operation";
  std::string text = kind == OpKind::count_ ? "operation" : std::string(name(kind));
  if (sequence > 0) text += " #" + std::to_string(sequence);
  if (found.step >= 0) text += " of step " + std::to_string(found.step);
  return text;
}

std::string who_waited(const std::vector<Voice>& waiting) {
  if (waiting.empty()) return "";
  TimeNs longest = -1;
  for (const Voice& v : waiting) {
    if (v.ballot->joined_ns >= 0) longest = std::max(longest, v.ballot->detected_ns - v.ballot->joined_ns);
  }
  std::string text = " (" + how_many(waiting.size()) + " waited";
  if (longest >= 0) text += " " + duration_text(longest);
  return text + ")";
}

}  // namespace seeksim::runtime
