#include "pytorch/core/rules.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <stdexcept>

#include "faults/trigger.h"
#include "pytorch/core/number_formats.h"

namespace seeksim::pytorch {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;
using faults::Site;
using runtime::OpKind;
using runtime::Phase;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("plan.json: faults: " + what); }

std::int64_t integer(const std::string& key, const RuleValue& value) {
  if (const auto* n = std::get_if<std::int64_t>(&value)) return *n;
  refuse(key + " has to be an integer");
}
double number(const std::string& key, const RuleValue& value) {
  if (const auto* x = std::get_if<double>(&value)) return *x;
  return double(integer(key, value));
}
const std::string& word(const std::string& key, const RuleValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  refuse(key + " has to be a word");
}
bool truth(const std::string& key, const RuleValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  refuse(key + " has to be true or false");
}
template <class E>
E known(const std::string& key, const std::string& text, E value, E none) {
  if (value == none) refuse(fmt::format("{}: there is no \"{}\"", key, text));
  return value;
}

using Setter = std::function<void(Rule&, const std::string&, const RuleValue&)>;

template <class M>
Setter whole(M Rule::*member) {
  return [member](Rule& r, const std::string& k, const RuleValue& v) { r.*member = M(integer(k, v)); };
}
template <class M>
Setter trigger(std::optional<M> faults::Trigger::*member) {
  return [member](Rule& r, const std::string& k, const RuleValue& v) { r.when.*member = M(integer(k, v)); };
}

// One row a key that may stand in a rule about a script of one's own.
const std::vector<std::pair<const char*, Setter>>& setters() {
  static const std::vector<std::pair<const char*, Setter>> rows = {
      {"kind",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         r.kind = known(k, word(k, v), faults::fault_kind(word(k, v)), FaultKind::count_);
       }},
      {"rank", trigger(&faults::Trigger::rank)},
      {"peer", trigger(&faults::Trigger::peer)},
      {"step", trigger(&faults::Trigger::step)},
      {"micro_batch", trigger(&faults::Trigger::micro_batch)},
      {"call", trigger(&faults::Trigger::call)},
      {"op",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         r.when.op = known(k, word(k, v), runtime::op_kind(word(k, v)), OpKind::count_);
       }},
      {"phase",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         r.when.phase = known(k, word(k, v), runtime::phase(word(k, v)), Phase::count_);
       }},
      {"probability", [](Rule& r, const std::string& k, const RuleValue& v) { r.when.probability = number(k, v); }},
      {"count", whole(&Rule::count)},
      {"mode", [](Rule& r, const std::string& k,
                  const RuleValue& v) { r.mode = known(k, word(k, v), faults::mode(word(k, v)), Mode::unset); }},
      {"site", [](Rule& r, const std::string& k,
                  const RuleValue& v) { r.site = known(k, word(k, v), faults::site(word(k, v)), Site::unset); }},
      {"delay_s",
       [](Rule& r, const std::string& k, const RuleValue& v) {
         const double s = number(k, v);
         if (!(s >= 0 && s <= 1e6)) refuse(k + " has to be from 0 to 1000000");
         r.delay_ns = faults::TimeNs(s * 1e9);
       }},
      {"signal", [](Rule& r, const std::string& k, const RuleValue& v) { r.signal = word(k, v); }},
      {"element", [](Rule& r, const std::string& k, const RuleValue& v) { r.element = std::uint64_t(integer(k, v)); }},
      {"elements", [](Rule& r, const std::string& k, const RuleValue& v) { r.elements = int(integer(k, v)); }},
      {"bit", [](Rule& r, const std::string& k, const RuleValue& v) { r.bit = std::uint64_t(integer(k, v)); }},
      {"checksum", [](Rule& r, const std::string& k, const RuleValue& v) { r.checksum = truth(k, v); }},
      {"value", [](Rule& r, const std::string& k, const RuleValue& v) { r.value = number(k, v); }},
      {"negative", [](Rule& r, const std::string& k, const RuleValue& v) { r.negative = truth(k, v); }},
  };
  return rows;
}

OpKind kind_of(OpName op) {
  switch (op) {
    case OpName::all_reduce:
    case OpName::reduce:
      return OpKind::all_reduce;
    case OpName::broadcast:
    case OpName::scatter:
      return OpKind::broadcast;
    case OpName::all_gather:
    case OpName::gather:
    case OpName::all_to_all:
      return OpKind::all_gather;
    case OpName::reduce_scatter:
      return OpKind::reduce_scatter;
    case OpName::send:
      return OpKind::send;
    case OpName::recv:
      return OpKind::recv;
    case OpName::barrier:
    case OpName::count_:
      break;
  }
  return OpKind::barrier;
}

Phase phase_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::data:
      return Phase::data;
    case StepPhase::forward:
      return Phase::forward;
    case StepPhase::backward:
      return Phase::backward;
    case StepPhase::optimizer:
      return Phase::optimizer;
    case StepPhase::checkpoint:
      return Phase::checkpoint;
    case StepPhase::init:
    case StepPhase::count_:
      break;
  }
  return Phase::init;
}

bool is_gradient(const Rule& rule) { return faults::is_value(rule.kind) && !faults::is_message(rule); }

// One element of a type, changed: the bits of the value that the rule asks for. False where the type has none.
bool set_value(DType type, std::byte* at, double value) {
  const auto put = [at](auto x) {
    std::memcpy(at, &x, sizeof x);
    return true;
  };
  switch (type) {
    case DType::fp32:
    case DType::complex64:
      return put(float(value));
    case DType::fp64:
    case DType::complex128:
      return put(value);
    case DType::bf16:
      return put(Bf16::narrow(float(value)));
    case DType::fp16:
      return put(Fp16::narrow(float(value)));
    case DType::fp8_e4m3:
      return put(Fp8E4M3::narrow(float(value)));
    case DType::fp8_e5m2:
      return put(Fp8E5M2::narrow(float(value)));
    default:
      return false;
  }
}

std::string hex(const std::byte* at, std::size_t n) {
  std::string text = "0x";
  for (std::size_t i = n; i-- > 0;) text += fmt::format("{:02x}", std::to_integer<unsigned>(at[i]));
  return text;
}

}  // namespace

std::string does_not_apply(const Rule& given) {
  const Rule rule = faults::with_defaults(given);
  switch (rule.kind) {
    case FaultKind::collective_timeout:
    case FaultKind::rank_crash:
    case FaultKind::message_drop:
    case FaultKind::pause:
    case FaultKind::oom:
      return "";
    case FaultKind::collective_mismatch:
      return rule.mode == Mode::swap_order ? "mode swap_order does not apply to scripts yet" : "";
    case FaultKind::message_corrupt:
      return rule.checksum ? "message_corrupt needs \"checksum\": false: nothing in torch would notice it" : "";
    case FaultKind::bit_flip:
    case FaultKind::nan_inject:
    case FaultKind::inf_inject:
    case FaultKind::overflow:
    case FaultKind::zero_tile:
      break;
    default:
      return fmt::format("{} does not apply to scripts yet", faults::name(rule.kind));
  }
  const bool here = rule.site == Site::gradient || rule.site == Site::reduced_gradient || rule.site == Site::message;
  return here ? "" : fmt::format("site {} does not apply to scripts yet", faults::name(rule.site));
}

Rule rule_of(const RuleKeys& keys) {
  Rule rule;
  for (const auto& [key, value] : keys) {
    const auto& rows = setters();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return key == r.first; });
    if (row == rows.end()) refuse(fmt::format("\"{}\" is no key of a rule about a script", key));
    row->second(rule, key, value);
  }
  if (rule.kind == FaultKind::count_) refuse("a rule has no kind");
  if (const std::string no = does_not_apply(rule); !no.empty()) refuse(no);
  return rule;
}

struct Rules::Impl {
  std::mutex mutex;
  std::deque<faults::RuleState> states;
  int rank = 0;
};

Rules::Rules(std::vector<Rule> rules, std::uint64_t seed, int rank, int ranks) : impl_(std::make_unique<Impl>()) {
  impl_->rank = rank;
  std::vector<int> node_of(std::size_t(std::max(ranks, 1)), 0);
  std::map<std::string, int> twins;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (const faults::Problem& p : faults::problems(rules[i], node_of)) {
      refuse(fmt::format("rule {}: {}: {}", i, p.key, p.what));
    }
    impl_->states.emplace_back(rules[i], i, seed, twins[faults::text(rules[i])]++);
  }
}
Rules::~Rules() = default;

std::vector<Rules::Hit> Rules::at(const Situation& s) {
  runtime::Op op;
  op.phase = phase_of(s.phase);
  op.rank = impl_->rank;
  op.peer = s.peer;
  op.micro_batch = s.micro_batch;
  op.step = s.step;
  std::vector<Hit> hits;
  std::lock_guard lock(impl_->mutex);
  for (faults::RuleState& state : impl_->states) {
    const Rule& rule = state.rule();
    op.kind = kind_of(s.op);
    if (is_gradient(rule)) {
      // The catalogue means what a kernel of backward wrote; here it is seen where it enters or leaves a sum.
      if (!s.sums || s.phase != StepPhase::backward) continue;
      op.kind = OpKind::compute;
    } else if (rule.kind == FaultKind::oom) {
      op.kind = OpKind::allocate;  // a collective may need memory
    }
    if (!state.asks(op, 0)) continue;
    state.record(0, impl_->rank, &op);
    hits.push_back({std::int32_t(state.number()), std::int32_t(state.status().fired), &rule});
  }
  return hits;
}

std::string strike(const Rule& rule, DType type, std::byte* data, std::int64_t numel) {
  const std::size_t width = element_bytes(type);
  if (numel <= 0 || width == 0) return "";
  const std::size_t element = std::size_t(rule.element % std::uint64_t(numel));
  std::byte* at = data + element * width;
  const std::string before = hex(at, width);
  const double sign = rule.negative ? -1 : 1;
  bool done = true;
  switch (rule.kind) {
    case FaultKind::bit_flip: {
      const std::size_t bit = std::size_t(rule.bit % (width * 8));
      at[bit / 8] ^= std::byte(1U << (bit % 8));
      break;
    }
    case FaultKind::nan_inject:
      done = set_value(type, at, std::numeric_limits<double>::quiet_NaN());
      break;
    case FaultKind::inf_inject:
      done = set_value(type, at, sign * std::numeric_limits<double>::infinity());
      break;
    case FaultKind::overflow:
      done = set_value(type, at, sign * rule.value);
      break;
    case FaultKind::zero_tile: {
      const std::size_t n = std::min(std::size_t(std::max(rule.elements, 1)), std::size_t(numel) - element);
      std::memset(at, 0, n * width);
      return fmt::format("{} elements from {} on became zero", n, element);
    }
    default:
      done = false;
      break;
  }
  if (!done) return "";
  return fmt::format("{}: element {} of {} went from {} to {}", faults::name(rule.kind), element, numel, before,
                     hex(at, width));
}

}  // namespace seeksim::pytorch
