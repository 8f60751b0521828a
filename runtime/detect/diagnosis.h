// Who is to blame: a pure function of the ballots of an agreement, so that every rank comes to the same answer, in the
// simulator and on real machines alike. The earliest cause is named, never the loudest rank.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

enum class Verdict : std::uint8_t {
  none,
  never_joined,  // did not enter the operation the others wait in, and did not answer the agreement
  joined_late,   // alive, but behind the operation the others wait in
  died,          // gone; the transport said so or the agreement did
  link,          // both ends joined, a message between them never arrived
  corrupt_message,
  mismatch,         // brought another operation than the others
  local_failure,    // a rank failed by itself (memory, storage, kernel)
  corrupt_compute,  // a rank computed other bits when it ran a micro-batch again
  silent,           // its process sends no heartbeats: dead or stopped
  diverged,         // no rank's fault: loss or gradient norm left their range
  straggler         // alive and right, but too slow: it was found out by its score and leaves
};
std::string_view name(Verdict verdict);

struct Diagnosis {
  Verdict verdict = Verdict::none;
  std::vector<int> culprits;               // launch ranks, ascending; for a link: the sender's end first
  std::vector<std::pair<int, int>> links;  // (from, to) where a link is to blame
  OpKind op = OpKind::count_;
  std::uint64_t sequence = 0;  // of the operation in which the others were stuck
  TimeNs first_detected_ns = 0;
  std::string text;  // one sentence for people
};

// What an operation is about, as a number that is equal on all members: tensor, step and, where it is the whole
// tensor's on every member, size.
std::int64_t meaning(const Op& op);

// The word of a recovery's ballot that holds 1 + the sample that the data loader could not bring; 0: none, or unknown.
inline constexpr std::size_t kSampleWord = 1;

// agreement: members, dead and ballots of a recovery agreement.
Diagnosis diagnose(const Agreement& agreement);

}  // namespace seeksim::runtime
