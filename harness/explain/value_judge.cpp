#include "harness/explain/value_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cast.h"

namespace seeksim::harness {

using runtime::ElementType;
using runtime::MemoryTag;
using runtime::Op;
using runtime::OpKind;
using runtime::Phase;
using runtime::Range;
using runtime::SampleRange;

namespace {

constexpr std::size_t kCulpritsKept = 64;
constexpr std::size_t kWritersKept = 64;  // of a buffer

bool same_op(const Op& a, const Op& b) {
  return a.kind == b.kind && a.phase == b.phase && a.step == b.step && a.epoch == b.epoch &&
         a.micro_batch == b.micro_batch && a.layer == b.layer && a.sequence == b.sequence &&
         std::string_view(a.tensor) == std::string_view(b.tensor);
}

std::string value_text(const std::byte* at, ElementType type) {
  std::string bits = "0x";
  for (std::size_t i = size_of(type); i-- > 0;) bits += fmt::format("{:02x}", int(at[i]));  // little-endian, as stored
  const auto wide = [&]<class T>(T stored) {
    float value = 0;
    std::memcpy(&stored, at, sizeof stored);
    kernels::widen<T>(kernels::Lane{}, {&stored, 1}, {&value, 1});
    return fmt::format("{:.9g} ({})", value, bits);
  };
  switch (type) {
    case ElementType::f32:
      return wide(float{});
    case ElementType::bf16:
      return wide(kernels::bf16{});
    case ElementType::f16:
      return wide(kernels::fp16{});
    case ElementType::i32: {
      std::int32_t value = 0;
      std::memcpy(&value, at, sizeof value);
      return fmt::format("{}", value);
    }
    default:
      return bits;
  }
}

// What all samples share, like rotary angles, is no sample's part of anything.
bool all_alike(const std::vector<std::vector<std::byte>>& of_sample) {
  return of_sample.size() > 1 &&
         std::all_of(of_sample.begin(), of_sample.end(),
                     [&](const std::vector<std::byte>& one) { return one == of_sample.front(); });
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

// Of what went wrong before in the same world, if no fault did it: those may be harmless, as in a step that is skipped.
bool ValueJudge::is_consequence(const Op& op) const {
  return std::any_of(culprits_.begin(), culprits_.end(), [&op](const Culprit& one) {
    const Op& met = one.reader ? *one.reader : one.op;
    return !one.struck && met.epoch == op.epoch && met.step <= op.step;
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

// ---- a value -------------------------------------------------------------------------------------------------------

ValueJudge::Seen ValueJudge::judge(int rank, const Op& op, const Range& range, int number, int occurrence) {
  if (range.buffer->tag == MemoryTag::peer_copies) return {};  // replicas_equal looks after copies
  if (state_role(*range.buffer) != StateRole::none && !(is_step_compute(op) && !range.write)) return state(op, range);
  const GoldenStep* const step = golden_.step(op.step);
  if (step == nullptr) return {};
  const bool in_pass = is_step_compute(op);
  if (holds_gradients(*range.buffer) &&
      (in_pass || op.phase == Phase::backward || op.phase == Phase::grad_reduce || op.phase == Phase::optimizer))
    return gradient(rank, op, range, *step);
  if (op.phase == Phase::grad_reduce && holds_norms(*range.buffer)) return norm(range, *step);
  if (in_pass) return operand(rank, op, range, *step, operand_key(op, range.write, number, occurrence));
  return {};
}

ValueJudge::Seen ValueJudge::operand(int rank, const Op& op, const Range& range, const GoldenStep& step,
                                     const OperandKey& key) {
  const auto found = step.operands.find(key);
  if (found == step.operands.end() || found->second.type != range.type) return {};
  const GoldenStep::Operand& like = found->second;
  const std::span<const std::byte> have = bytes_of(range);
  if (like.tag == MemoryTag::parameters) {
    if (state_role(*range.buffer) != StateRole::weights) return {};
    Seen seen;
    const std::vector<std::byte>& want = like.of_sample.front();
    if (have.size() > want.size() || want.empty()) return seen;
    if (have.size() == want.size()) {
      seen.element = first_difference(have, want, range.type);
    } else {
      std::int64_t broken = -1;
      seen.element = Flat(want, range.type).covers(have, broken) ? -1 : broken;
    }
    seen.verdict = seen.element < 0 ? Verdict::right : Verdict::wrong;
    if (seen.verdict == Verdict::right) return seen;
    const std::size_t at = std::size_t(seen.element) * size_of(range.type);
    seen.have = value_text(&have[at], range.type);
    if (have.size() == want.size()) seen.want = value_text(&want[at], range.type);
    const StateFlats* const old = golden_.before(op.step - 1);
    const Flat* const flat = old == nullptr ? nullptr : old->find(StateRole::weights, range.type);
    std::int64_t broken = -1;
    seen.of_the_step_before = flat != nullptr && flat->covers(have, broken);
    return seen;
  }
  const bool kept_rows = range.buffer->tag == MemoryTag::activations || range.buffer->tag == MemoryTag::checkpoints ||
                         range.buffer->tag == MemoryTag::data;
  if (!kept_rows || (like.tag != MemoryTag::activations && like.tag != MemoryTag::data)) return {};
  return sample_rows(rank, op, have, like);
}

// Rows of samples, one behind the other: all columns of them, or of each sample, row or micro-batch the part of a way.
ValueJudge::Seen ValueJudge::sample_rows(int rank, const Op& op, std::span<const std::byte> have,
                                         const GoldenStep::Operand& like) const {
  const SampleRange samples = map_.samples(rank, op.epoch, op.micro_batch);
  if (samples.size() <= 0 || samples.end > golden_.samples()) return {};
  std::vector<std::byte> want;
  for (runtime::Index s = samples.begin; s < samples.end; ++s) {
    const std::vector<std::byte>& one = like.of_sample[std::size_t(s)];
    if (one.empty()) return {};
    want.insert(want.end(), one.begin(), one.end());
  }
  const std::size_t width = size_of(like.type), ways = std::size_t(map_.ways()), way = std::size_t(map_.way(rank));
  Seen seen;
  if (have.size() == want.size()) {
    seen.element = first_difference(have, want, like.type);
    seen.verdict = seen.element < 0 ? Verdict::right : Verdict::wrong;
    if (seen.element >= 0) {
      const std::size_t at = std::size_t(seen.element) * width, one = want.size() / std::size_t(samples.size());
      seen.have = value_text(&have[at], like.type);
      seen.want = value_text(&want[at], like.type);
      seen.sample = samples.begin + std::int64_t(at / one);
    }
    return seen;
  }
  if (have.size() * ways != want.size() || all_alike(like.of_sample)) return {};
  // Cut into `pieces`, of each the way's part.
  const auto cut = [&](std::size_t pieces) -> std::int64_t {
    const std::size_t whole = want.size() / pieces, part = have.size() / pieces;
    if (whole * pieces != want.size() || part * pieces != have.size() || part % width != 0) return 0;
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::int64_t broken =
          first_difference(have.subspan(i * part, part),
                           std::span<const std::byte>(want).subspan(i * whole + way * part, part), like.type);
      if (broken >= 0) return std::int64_t(i * part / width) + broken;
    }
    return -1;
  };
  const std::size_t n = std::size_t(samples.size()), rows = n * std::size_t(scenario_.train.definition.model.context);
  std::int64_t furthest = 0;
  for (const std::size_t pieces : {rows, n, std::size_t(1)}) {
    const std::int64_t broken = cut(pieces);
    if (broken < 0) return {Verdict::right, -1, -1, "", "", false};
    furthest = std::max(furthest, broken);
  }
  seen.verdict = Verdict::wrong;
  seen.element = furthest;
  seen.have = value_text(&have[std::size_t(furthest) * width], like.type);
  seen.sample = samples.begin + furthest / std::int64_t(have.size() / width / n);
  return seen;
}

ValueJudge::Seen ValueJudge::part_of(std::span<const Flat* const> any, std::span<const std::byte> have,
                                     ElementType type) const {
  Seen seen;
  for (const Flat* const flat : any) {
    if (flat->type() != type) continue;
    std::int64_t broken = -1;
    if (flat->covers(have, broken)) return {Verdict::right, -1, -1, "", "", false};
    seen.verdict = Verdict::wrong;
    seen.element = std::max(seen.element, broken);
  }
  if (seen.verdict == Verdict::wrong && seen.element >= 0)
    seen.have = value_text(&have[std::size_t(seen.element) * size_of(type)], type);
  return seen;
}

// A node of the tree over the step's samples, or its root, scaled and perhaps rounded.
ValueJudge::Seen ValueJudge::gradient(int rank, const Op& op, const Range& range, const GoldenStep& step) const {
  if (step.leaves.size() != std::size_t(golden_.samples())) return {};
  const bool untyped = range.type == ElementType::bytes;  // as messages are
  if (untyped && runtime::is_16_bit(scenario_.train.definition.precision.gradients)) return {};
  const ElementType type = untyped ? ElementType::f32 : range.type;
  const bool own = is_step_compute(op) && op.phase == Phase::backward && std::string_view(op.tensor) != "gradients";
  const SampleRange samples = own ? map_.samples(rank, op.epoch, op.micro_batch) : SampleRange{0, golden_.samples()};
  if (samples.size() <= 0) return {};
  std::vector<const Flat*> any;
  const bool wants_root = op.phase == Phase::optimizer && !range.write;
  for (auto sum = step.sums.rbegin(); !own && sum != step.sums.rend(); ++sum) {
    if (sum->type() != type) continue;
    any.push_back(&*sum);
    if (wants_root) break;  // as it was in the end
  }
  // A shard of the reduced gradient never holds a node.
  const std::string_view buffer = range.buffer->name;
  const bool reduced = buffer == "gradient shard" || buffer == "reduced gradients in fp32";
  if (!wants_root && !reduced && type == ElementType::f32) {
    for (int level = 0; (runtime::Index(1) << level) < 2 * golden_.samples(); ++level) {
      for (runtime::Index index = samples.begin >> level; (index << level) < samples.end; ++index) {
        const bool inside =
            index << level >= samples.begin && std::min((index + 1) << level, golden_.samples()) <= samples.end;
        if (inside) any.push_back(&golden_.node(step, {level, index}));
      }
    }
  }
  return part_of(any, bytes_of(range), type);
}

ValueJudge::Seen ValueJudge::state(const Op& op, const Range& range) const {
  const StateRole role = state_role(*range.buffer);
  const bool in_files = op.kind == OpKind::storage_read || op.kind == OpKind::storage_write;
  const GoldenStep* const step = golden_.step(op.step);
  std::vector<const StateFlats*> when;
  const auto at = [&](std::int64_t step_of) {
    if (const StateFlats* flats = golden_.before(step_of)) when.push_back(flats);
  };
  if (range.write && std::string_view(op.tensor) == "checkpoint") {
    for (std::int64_t saved = 0; saved <= scenario_.train.definition.steps; ++saved) at(saved);
  } else if (op.phase == Phase::optimizer && op.step >= 0) {
    if (!range.write || (step != nullptr && !step->applied)) return {};  // the golden leaves the step out
    at(op.kind == OpKind::storage_read ? op.step : op.step + 1);
    if (in_files && !range.write) return {};
  } else if (op.step < 0 && range.write) {
    const bool draws = op.phase == Phase::init && (op.kind == OpKind::compute || op.kind == OpKind::host_compute);
    if (role != StateRole::weights || !draws) return {};
    at(0);
  } else if (op.kind == OpKind::param_gather ||
             (op.kind == OpKind::copy && (op.phase == Phase::forward || op.phase == Phase::backward))) {
    at(op.step);
  } else if (op.kind == OpKind::publish && range.write) {
    at(op.step);
    at(op.step + 1);
  } else {
    return {};
  }
  std::vector<const Flat*> any;
  for (const StateFlats* flats : when) {
    for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
      const bool fits = range.type == ElementType::bytes || range.type == type;
      if (const Flat* flat = fits ? flats->find(role, type) : nullptr) any.push_back(flat);
    }
  }
  Seen best;
  for (const Flat* flat : any) {
    const std::span<const std::byte> have = bytes_of(range);
    if (have.size() % size_of(flat->type()) != 0) continue;
    const Flat* const one[] = {flat};
    Seen seen = part_of(one, have, flat->type());
    if (seen.verdict == Verdict::right) return seen;
    if (seen.element > best.element || best.verdict == Verdict::unknown) best = std::move(seen);
  }
  return best;
}

// Squares of blocks and of parameters. A split parameter's way has a node of its own.
ValueJudge::Seen ValueJudge::norm(const Range& range, const GoldenStep& step) const {
  if (map_.ways() > 1 || !scenario_.train.layout.parallel.alone() || !range.write || range.type != ElementType::f32)
    return {};
  const std::span<const std::byte> have = bytes_of(range);
  for (std::size_t at = 0; at + 4 <= have.size(); at += 4) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &have[at], sizeof bits);
    if (std::binary_search(step.norms.begin(), step.norms.end(), bits)) continue;
    // The loss goes along with the norms.
    const bool last = at + 4 == have.size();
    std::int64_t broken = -1;
    const bool is_loss = last && !step.sums.empty() && step.sums.front().covers(have.subspan(at, 4), broken);
    if (is_loss) continue;
    return {Verdict::wrong, std::int64_t(at / 4), -1, value_text(&have[at], ElementType::f32), "", false};
  }
  return {Verdict::right, -1, -1, "", "", false};
}

}  // namespace seeksim::harness
