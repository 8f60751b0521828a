#include "harness/explain/value_judge.h"

#include <algorithm>

namespace seeksim::harness {

using runtime::ElementType;
using runtime::Op;
using runtime::OpKind;
using runtime::Phase;
using runtime::Range;

namespace {

constexpr std::size_t kCulpritsKept = 64;
constexpr std::size_t kWritersKept = 64;  // of a buffer

bool same_op(const Op& a, const Op& b) {
  return a.kind == b.kind && a.phase == b.phase && a.step == b.step && a.epoch == b.epoch &&
         a.micro_batch == b.micro_batch && a.layer == b.layer && a.sequence == b.sequence &&
         std::string_view(a.tensor) == std::string_view(b.tensor);
}

// Its memory holds the result already, or a part of it.
bool overwritten(const Range& read, std::span<const Range> ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&read](const Range& one) {
    return one.write && one.buffer == read.buffer && one.lo < read.hi && read.lo < one.hi;
  });
}

}  // namespace

// ---- an operation --------------------------------------------------------------------------------------------------

void ValueJudge::completed(int rank, const Op& op, runtime::TimeNs at_ns, std::span<const Range> ranges) {
  if (std::string_view(op.site) == "fault") {
    struck_[rank] = op;
    return;
  }
  if (op.kind == OpKind::send_activation || op.kind == OpKind::send_gradient) {
    for (const Range& range : ranges) {
      const Written* const made = range.write || range.buffer == nullptr ? nullptr : last_writer(rank, range);
      if (made != nullptr) sent_[message_key(op, rank)] = *made;
    }
  }
  if (op.phase == Phase::publish || op.kind == OpKind::publish) published_[rank] = op;
  if (op.phase == Phase::optimizer && (op.kind == OpKind::compute || op.kind == OpKind::host_compute))
    updated_[rank] = op.step;
  if (is_consequence(op)) return;
  if (is_step_compute(op)) {
    std::uint64_t& last = sequence_[rank];
    if (op.sequence < last)  // its process was started again
      std::erase_if(seen_, [rank](const auto& one) { return std::get<0>(one.first) == rank; });
    last = op.sequence;
  }
  const OperandKey self = operand_key(op, false, -1, 0);
  const int occurrence = is_step_compute(op) ? seen_[{rank, self, op.step, op.micro_batch, op.epoch}]++ : 0;
  std::vector<Seen> all;
  int numbers[2] = {0, 0};
  bool inputs_wrong = false;
  for (const Range& range : ranges) {
    Seen seen;
    const int number = numbers[range.write ? 1 : 0]++;
    const bool gone = !range.write && overwritten(range, ranges);
    if (!bytes_of(range).empty() && !gone) seen = judge(rank, op, range, number, occurrence);
    compared_ += seen.verdict != Verdict::unknown;
    differing_ += seen.verdict == Verdict::wrong;
    if (!range.write && seen.verdict == Verdict::wrong) {
      inputs_wrong = true;
      blame(writer_of(rank, op, range, seen));
    }
    all.push_back(std::move(seen));
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (!ranges[i].write || bytes_of(ranges[i]).empty()) continue;
    if (all[i].verdict == Verdict::wrong && !inputs_wrong) blame(culprit_of(rank, op, at_ns, ranges[i], all[i]));
    write(rank, op, at_ns, ranges[i], all[i]);
  }
}

void ValueJudge::write(int rank, const Op& op, runtime::TimeNs at_ns, const Range& range, const Seen& seen) {
  std::vector<Written>& writers = written_[{rank, range.buffer->id}];
  std::erase_if(writers, [&](const Written& old) { return old.lo >= range.lo && old.hi <= range.hi; });
  if (writers.size() >= kWritersKept) writers.erase(writers.begin());
  writers.push_back({range.lo, range.hi, op, at_ns, seen.verdict});
}

const ValueJudge::Written* ValueJudge::last_writer(int rank, const Range& range) const {
  const auto found = written_.find({rank, range.buffer->id});
  if (found == written_.end()) return nullptr;
  for (auto one = found->second.rbegin(); one != found->second.rend(); ++one) {
    if (one->lo < range.hi && range.lo < one->hi) return &*one;
  }
  return nullptr;
}

// Whether it follows from what went wrong before in the same world. What a fault did does not count: it may be
// harmless, as in a step that is skipped.
bool ValueJudge::is_consequence(const Op& op) const {
  return std::any_of(culprits_.begin(), culprits_.end(), [&op](const Culprit& one) {
    const Op& met = one.reader ? *one.reader : one.op;
    return !one.struck && met.epoch == op.epoch && met.step <= op.step;
  });
}

// The golden leaves the step out too, and a fault struck some rank in it: others have its values by messages.
bool ValueJudge::is_of_a_step_that_faults_ended(const Op& op) const {
  const GoldenStep* const like = golden_.step(op.step);
  return like != nullptr && !like->applied && std::any_of(struck_.begin(), struck_.end(), [&op](const auto& one) {
           return one.second.step == op.step && one.second.epoch == op.epoch;
         });
}

// One an attempt at a step: what comes after it is its consequence.
void ValueJudge::blame(Culprit culprit) {
  const auto same_attempt = [&](const Culprit& one) {
    const Op& a = one.reader ? *one.reader : one.op;
    const Op& b = culprit.reader ? *culprit.reader : culprit.op;
    return a.step == b.step && a.epoch == b.epoch;
  };
  if (culprits_.size() >= kCulpritsKept || std::any_of(culprits_.begin(), culprits_.end(), same_attempt)) return;
  culprit.struck = culprit.struck || is_of_a_step_that_faults_ended(culprit.reader ? *culprit.reader : culprit.op);
  culprits_.push_back(std::move(culprit));
}

Culprit ValueJudge::culprit_of(int rank, const Op& op, runtime::TimeNs at_ns, const Range& range,
                               const Seen& seen) const {
  Culprit out;
  out.rank = rank;
  out.op = op;
  out.at_ns = at_ns;
  out.buffer = range.buffer->name;
  out.type = range.type;
  out.element = seen.element;
  out.sample = seen.sample;
  out.samples = map_.samples(rank, op.epoch, op.micro_batch);
  out.have = seen.have;
  out.want = seen.want;
  const auto struck = struck_.find(rank);
  out.struck = struck != struck_.end() && same_op(struck->second, op);
  out.over_ways = seen.over_ways;
  if (seen.over_ways) out.how = Culprit::How::brought;
  return out;
}

// A value was wrong when it was read: who left it so?
Culprit ValueJudge::writer_of(int rank, const Op& op, const Range& range, const Seen& seen) const {
  Range broken = range;  // its first wrong element
  if (seen.element >= 0) {
    const std::size_t width = range.type == ElementType::bytes ? sizeof(float) : size_of(range.type);
    broken.lo = std::min(range.lo + std::size_t(seen.element) * width, range.hi - 1);
    broken.hi = broken.lo + 1;
  }
  const Written* const writer = last_writer(rank, broken);
  Culprit out = culprit_of(rank, op, writer != nullptr ? writer->at_ns : 0, range, seen);
  out.reader = op;
  const auto struck = struck_.find(rank);
  const bool by_fault = struck != struck_.end() &&
                        (same_op(struck->second, op) || (writer != nullptr && same_op(struck->second, writer->op)));
  if (by_fault) {
    out.struck = true;
    out.op = struck->second;
    out.op.site = writer != nullptr && same_op(out.op, writer->op) ? writer->op.site : op.site;
    out.how = Culprit::How::changed;
    return out;
  }
  if (writer != nullptr) out.op = writer->op;
  // A joiner has what it drew when it began: nobody brought it the others' state.
  if (writer != nullptr && writer->op.phase == Phase::init && op.step > 0 && map_.joins_in(rank, op.epoch)) {
    out.how = Culprit::How::missing;
    out.op = op;
    out.op.kind = OpKind::redistribute;
    out.op.phase = Phase::recovery;
    out.op.tensor = "state of who joins";
    out.op.micro_batch = -1;
    out.op.layer = -1;
    out.op.sequence = 0;
    out.op.site = "";
    return out;
  }
  // What came in a message: did the sender send what it had computed?
  if (const auto sent = writer == nullptr ? sent_.end() : sent_.find(message_key(writer->op, writer->op.peer));
      sent != sent_.end() && sent->second.verdict == Verdict::unknown && sent->second.op.kind == OpKind::compute) {
    out.rank = sent->second.op.rank;
    out.op = sent->second.op;
    out.at_ns = sent->second.at_ns;
    out.how = Culprit::How::brought;
    return out;
  }
  out.how = writer == nullptr || writer->verdict == Verdict::right ? Culprit::How::changed : Culprit::How::brought;
  if (!seen.of_the_step_before) return out;
  // It is as old as the step before: the publication brought nothing new, or nobody updated it.
  out.how = Culprit::How::missing;
  const auto updated = updated_.find(rank);
  const auto published = published_.find(rank);
  if (updated == updated_.end() || updated->second + 1 < op.step) {
    out.op = op;
    out.op.kind = OpKind::compute;
    out.op.phase = Phase::optimizer;
    out.op.step = op.step - 1;
    out.op.micro_batch = -1;
    out.op.layer = -1;
    out.op.sequence = 0;
    out.op.site = "";
  } else if (published != published_.end()) {
    out.op = published->second;
  }
  return out;
}

}  // namespace seeksim::harness
