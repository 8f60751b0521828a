// What a value is held against: an operand of samples, a node of the gradient tree, weights and moments, norms.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/explain/value_judge.h"
#include "kernels/cast.h"
#include "runtime/layout/context_cut.h"

namespace seeksim::harness {

using runtime::ElementType;
using runtime::MemoryTag;
using runtime::Op;
using runtime::OpKind;
using runtime::Phase;
using runtime::Range;
using runtime::SampleRange;

namespace {

std::string value_and_bits(const std::byte* at, ElementType type) {
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

// Rows that arrived at divided experts are of other ranks' samples too, and lie in another order.
bool is_of_arrivals(const Op& op, const Scenario& scenario) {
  const bool inside =
      std::string_view(op.site).starts_with("gpt2_expert_group") || std::string_view(op.tensor) == "swiglu";
  return inside && scenario.train.layout.parallel.expert > 1;
}

// Where the elements of a way differ from its part of what all have, cut into pieces of which it has a part
// each: in one of these numbers of pieces they are alike (-1), else the furthest that any comes.
std::int64_t unlike_part(std::span<const std::byte> have, std::span<const std::byte> want, ElementType type,
                         std::initializer_list<std::size_t> numbers, std::size_t way) {
  const std::size_t width = size_of(type);
  std::int64_t furthest = 0;
  for (const std::size_t pieces : numbers) {
    const std::size_t whole = want.size() / pieces, part = have.size() / pieces;
    if (whole * pieces != want.size() || part * pieces != have.size() || part % width != 0) continue;
    std::int64_t broken = -1;
    for (std::size_t i = 0; i < pieces && broken < 0; ++i) {
      broken = first_difference(have.subspan(i * part, part), want.subspan(i * whole + way * part, part), type);
      if (broken >= 0) broken += std::int64_t(i * part / width);
    }
    if (broken < 0) return -1;
    furthest = std::max(furthest, broken);
  }
  return furthest;
}

// Of rows of all tokens, `samples` samples of them, those of a rank's own tokens, in its order.
std::vector<std::byte> own_rows(const std::vector<std::byte>& all, const runtime::ContextCut& cut, int rank,
                                std::size_t samples) {
  const std::size_t row = all.size() / samples / std::size_t(cut.tokens), size = std::size_t(cut.chunk_size()) * row;
  std::vector<std::byte> own;
  for (int i = 0; i < cut.chunks_of_rank(); ++i) {
    for (std::size_t sample = 0; sample < samples; ++sample) {
      const auto first =
          all.begin() + std::ptrdiff_t((sample * std::size_t(cut.tokens) + std::size_t(cut.first(rank, i))) * row);
      own.insert(own.end(), first, first + std::ptrdiff_t(size));
    }
  }
  return own;
}

}  // namespace

ValueJudge::Seen ValueJudge::judge(int rank, const Op& op, const Range& range, int number, int occurrence) {
  if (range.buffer->tag == MemoryTag::peer_copies) return {};  // replicas_equal looks after copies
  if (state_role(*range.buffer) != StateRole::none && !(is_step_compute(op) && !range.write))
    return state(rank, op, range);
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
  if (is_of_arrivals(op, scenario_)) return {};
  if (std::string_view(range.buffer->name).starts_with("sums over ")) return {};  // a ring's, which one rank has not
  // By layer, and then by sample.
  if (!key.write && std::string_view(range.buffer->name) == "router losses") return {};
  auto found = step.operands.find(key);
  // Ways add up, in an operation of its own behind the products, what one rank computes in one.
  const bool over_ways = found == step.operands.end() && map_.ways() > 1 && key.write && key.occurrence > 0;
  if (over_ways) {
    OperandKey whole = key;
    whole.occurrence = 0;
    found = step.operands.find(whole);
  }
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
    seen.have = value_and_bits(&have[at], range.type);
    if (have.size() == want.size()) seen.want = value_and_bits(&want[at], range.type);
    const StateFlats* const old = golden_.before(op.step - 1);
    const Flat* const flat = old == nullptr ? nullptr : old->find(StateRole::weights, range.type);
    std::int64_t broken = -1;
    seen.of_the_step_before = flat != nullptr && flat->covers(have, broken);
    return seen;
  }
  const bool kept_rows = range.buffer->tag == MemoryTag::activations || range.buffer->tag == MemoryTag::checkpoints ||
                         range.buffer->tag == MemoryTag::data;
  if (!kept_rows || (like.tag != MemoryTag::activations && like.tag != MemoryTag::data)) return {};
  const bool by_heads = std::string_view(range.buffer->name) == "attention statistics";
  Seen seen = sample_rows(rank, op, have, like, by_heads);
  seen.over_ways = over_ways;
  return seen;
}

// Rows of samples, one behind the other: all columns of them, or of each sample, row or micro-batch the part of a way.
ValueJudge::Seen ValueJudge::sample_rows(int rank, const Op& op, std::span<const std::byte> have,
                                         const GoldenStep::Operand& like, bool by_heads) const {
  const SampleRange samples = map_.samples(rank, op.epoch, op.micro_batch);
  if (samples.size() <= 0 || samples.end > golden_.samples()) return {};
  bool as_it_is = true;  // as in most cases: then nothing has to be put together
  std::size_t seen_to = 0;
  for (runtime::Index s = samples.begin; s < samples.end; ++s) {
    const std::vector<std::byte>& one = like.of_sample[std::size_t(s)];
    if (one.empty()) return {};
    as_it_is =
        as_it_is && seen_to + one.size() <= have.size() && std::memcmp(&have[seen_to], one.data(), one.size()) == 0;
    seen_to += one.size();
  }
  if (as_it_is && seen_to == have.size()) return {Verdict::right, -1, -1, "", "", false};
  std::vector<std::byte> want;
  for (runtime::Index s = samples.begin; s < samples.end; ++s) {
    const std::vector<std::byte>& one = like.of_sample[std::size_t(s)];
    want.insert(want.end(), one.begin(), one.end());
  }
  const std::size_t width = size_of(like.type);
  std::size_t ways = std::size_t(map_.ways()), way = std::size_t(map_.way(rank));
  const runtime::ContextCut context =
      runtime::context_cut(scenario_.train.definition.model, scenario_.train.layout.parallel);
  bool own = false;  // by chunk, then sample
  if (context.ranks > 1 && have.size() * std::size_t(context.ranks) == want.size() && !all_alike(like.of_sample)) {
    const int me = rank % context.ranks;
    const bool ring = scenario_.train.layout.parallel.ring_attention;
    own = ring || std::string_view(op.tensor) != "attention";  // there a rank has all tokens, of its own heads
    const std::size_t heads = by_heads ? std::size_t(scenario_.train.definition.model.heads) : 1;
    if (own)
      want = own_rows(want, context, me, std::size_t(samples.size()) * heads);
    else
      ways = std::size_t(context.ranks), way = std::size_t(me);
  }
  Seen seen;
  if (have.size() == want.size()) {
    seen.element = first_difference(have, want, like.type);
    seen.verdict = seen.element < 0 ? Verdict::right : Verdict::wrong;
    if (seen.element >= 0) {
      const std::size_t at = std::size_t(seen.element) * width, one = want.size() / std::size_t(samples.size());
      seen.have = value_and_bits(&have[at], like.type);
      seen.want = value_and_bits(&want[at], like.type);
      seen.sample = samples.begin + std::int64_t(at / one);
      if (own) {
        const std::size_t chunk = want.size() / std::size_t(samples.size() * context.chunks_of_rank());
        seen.sample = samples.begin + std::int64_t(at / chunk) % samples.size();
      }
    }
    return seen;
  }
  if (have.size() * ways != want.size() || all_alike(like.of_sample)) return {};
  const std::size_t n = std::size_t(samples.size()), rows = n * std::size_t(scenario_.train.definition.model.context);
  const runtime::ExpertsPlan& experts = scenario_.train.definition.model.experts;
  const std::size_t slots = rows * std::size_t(experts.on() ? experts.per_token : 1);
  seen.element = unlike_part(have, want, like.type, {slots, rows, n, 1}, way);
  if (seen.element < 0) return {Verdict::right, -1, -1, "", "", false};
  seen.verdict = Verdict::wrong;
  seen.have = value_and_bits(&have[std::size_t(seen.element) * width], like.type);
  seen.sample = samples.begin + seen.element / std::int64_t(have.size() / width / n);
  return seen;
}

// Most parts lie where their parameter does, or as they lie in their own buffer: to look there first is cheap.
bool ValueJudge::lies_where_expected(int rank, std::span<const Flat* const> any, const Op& op, const Range& range,
                                     ElementType type) const {
  const auto parameter = offsets_.find(op.tensor == nullptr ? "" : op.tensor);
  const std::int64_t in_buffer = std::int64_t(range.lo / size_of(type));
  const auto before =
      places_.find({rank, range.buffer->name, range.lo, range.hi, op.tensor == nullptr ? "" : op.tensor});
  return std::any_of(any.begin(), any.end(), [&](const Flat* flat) {
    if (flat->type() != type) return false;
    return (parameter != offsets_.end() && flat->holds_at(parameter->second, bytes_of(range))) ||
           flat->holds_at(in_buffer, bytes_of(range)) ||
           (before != places_.end() && flat->holds(before->second, bytes_of(range)));
  });
}

ValueJudge::Seen ValueJudge::part_of(int rank, std::span<const Flat* const> any, const Op& op, const Range& range,
                                     ElementType type) const {
  const std::span<const std::byte> have = bytes_of(range);
  if (lies_where_expected(rank, any, op, range, type)) return {Verdict::right, -1, -1, "", "", false};
  std::vector<Flat::Stretch>& known =
      places_[{rank, range.buffer->name, range.lo, range.hi, op.tensor == nullptr ? "" : op.tensor}];
  for (const Flat* const flat : any) {
    const std::int64_t place = flat->type() == type ? flat->place_of(have) : -1;
    if (place < 0) continue;
    known = {{place, std::int64_t(have.size() / size_of(type))}};
    return {Verdict::right, -1, -1, "", "", false};
  }
  Seen seen;
  for (const Flat* const flat : any) {
    if (flat->type() != type) continue;
    std::int64_t broken = -1;
    if (flat->covers(have, broken, &known)) return {Verdict::right, -1, -1, "", "", false};
    seen.verdict = Verdict::wrong;
    seen.element = std::max(seen.element, broken);
  }
  if (seen.verdict == Verdict::wrong && seen.element >= 0)
    seen.have = value_and_bits(&have[std::size_t(seen.element) * size_of(type)], type);
  return seen;
}

// A node of the tree over the step's samples, or its root, scaled and perhaps rounded.
ValueJudge::Seen ValueJudge::gradient(int rank, const Op& op, const Range& range, const GoldenStep& step) const {
  if (step.leaves.size() != std::size_t(golden_.samples())) return {};
  const bool untyped = range.type == ElementType::bytes;  // as messages are
  if (untyped && runtime::is_16_bit(scenario_.train.definition.precision.gradients)) return {};
  const ElementType type = untyped ? ElementType::f32 : range.type;
  const bool own = is_step_compute(op) && op.phase == Phase::backward && std::string_view(op.tensor) != "gradients" &&
                   !is_of_arrivals(op, scenario_);
  const SampleRange samples = own ? map_.samples(rank, op.epoch, op.micro_batch) : SampleRange{0, golden_.samples()};
  if (samples.size() <= 0) return {};
  std::vector<const Flat*> any;
  // What the norm is made of and what the optimizer reads is the gradient as it was in the end.
  const bool measured =
      std::string_view(op.site).starts_with("measurement") && std::string_view(op.tensor) != "loss";  // some have none
  const bool in_the_end = op.phase == Phase::optimizer || measured;
  const bool wants_root = in_the_end && !range.write;
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
  return part_of(rank, any, op, range, type);
}

ValueJudge::Seen ValueJudge::state(int rank, const Op& op, const Range& range) const {
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
    Seen seen = part_of(rank, one, op, range, flat->type());
    std::int64_t broken = -1;
    if (seen.verdict == Verdict::right && op.kind == OpKind::storage_read && op.phase == Phase::optimizer &&
        !flat->has(have, broken))  // a piece of a shard is one stretch; two are the rest of another piece
      seen = {Verdict::wrong,
              broken,
              -1,
              value_and_bits(&have[std::size_t(broken) * size_of(flat->type())], flat->type()),
              "",
              false};
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
    return {Verdict::wrong, std::int64_t(at / 4), -1, value_and_bits(&have[at], ElementType::f32), "", false};
  }
  return {Verdict::right, -1, -1, "", "", false};
}

}  // namespace seeksim::harness
