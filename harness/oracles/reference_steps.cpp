#include "harness/oracles/reference_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "harness/oracles/reference_training.h"
#include "reference/model.h"
#include "reference/muon.h"
#include "reference/parameters.h"
#include "reference/random.h"
#include "reference/run.h"

namespace seeksim::harness {
namespace {

using reference::Bounded;
using reference::Parameter;
using runtime::NamedTensor;
using runtime::StepRecord;
using Values = std::vector<float>;

constexpr double kTight = ReferenceVerdict::kTight;
// The reference's passes of a step take as long as so many steps of the run that it judges (docs/judge.md).
constexpr std::int64_t kStepsOfAPass = 12;
// Elements of a parameter whose first value and whose update are looked at beside a golden, evenly spaced.
constexpr std::size_t kElements = 256;
// And the largest matrix whose orthogonal update is made beside one: products of one of its fifteen multiplications.
constexpr double kProductsMost = 4e6;

const Values* values_of(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &found->values;
}

double value_of(float x) { return double(x); }
double value_of(const Bounded& x) { return x.v; }
template <class T>
double root_mean_square(const std::vector<T>& values) {
  double sum = 0;
  for (const T& x : values) sum += value_of(x) * value_of(x);
  return values.empty() ? 0 : std::sqrt(sum / double(values.size()));
}

// One step of the run: what it says, and the state before and after it.
struct JudgedStep {
  const StepRecord& record;
  const Collector::State& before;
  const Collector::State& after;
  const std::vector<NamedTensor>& gradients;
};

class StepJudge {
 public:
  // most: elements of a parameter whose first value and update are looked at.
  StepJudge(const reference::Training& training, const std::vector<Parameter>& parameters, ReferenceVerdict& verdict,
            const JudgedStep& step, std::size_t most)
      : t_(training), parameters_(parameters), verdict_(verdict), s_(step), most_(most) {}

  void first_values();
  // passes: losses and gradients too. applied: steps that the optimizer made before this one.
  void judge(bool passes, double scale, std::int64_t applied);

 private:
  // Holds a value against what is expected. scale: that a tight bound is measured by.
  void hold(const char* quantity, const std::string& parameter, std::int64_t element, double found,
            const Bounded& expected, double scale);
  void hold_exactly(const char* quantity, double found, double expected) {
    hold(quantity, "", -1, found, {expected, 1e-13 * std::abs(expected)}, std::abs(expected));
  }
  void hold_all(const char* quantity, const Parameter& p, const std::vector<NamedTensor>& found,
                const std::vector<Bounded>& expected);
  void judge_passes(double scale, bool finite);
  void judge_norm(double scale);
  void judge_skip(bool finite);
  void judge_update(std::int64_t applied);
  void judge_unchanged(const Parameter& p);
  void judge_muon(const Parameter& p, const Bounded& factor, double decay, double rate);
  std::size_t stride(const Parameter& p) const { return std::max<std::size_t>(1, p.size() / most_); }
  // What roundings do to all values alike, such as an exponential that is always a little too large: one of each
  // operation on the way, some 32 a layer, all in one direction; and where values are stored in 16 bits, one such.
  double together() const { return reference::kUnit * 32 * (t_.model.L + 1) + reference::unit_of(t_.compute); }
  Bounded bounded(const reference::Noisy& x) const { return {x.v, deviations() * std::sqrt(x.s)}; }
  double deviations() const { return reference::deviations(t_.compute); }
  void judge_factor(const Bounded& factor);
  double rounding_of(const Bounded& weight) const;
  void judge_gradient(const Parameter& p, const Values* held, const std::vector<reference::Noisy>& expected);
  void judge_type(const Parameter& p, const Values& held, double scale);
  void judge_scale(const Parameter& p, const Values& held, const std::vector<reference::Noisy>& expected);

  const reference::Training& t_;
  const std::vector<Parameter>& parameters_;
  ReferenceVerdict& verdict_;
  const JudgedStep& s_;
  std::size_t most_;
};

void StepJudge::hold(const char* quantity, const std::string& parameter, std::int64_t element, double found,
                     const Bounded& expected, double scale) {
  ++verdict_.values;
  if (expected.e <= kTight * std::max(std::abs(expected.v), scale)) ++verdict_.tight;
  if (expected.e > 0 && std::isfinite(found)) {
    const double used = std::abs(found - expected.v) / expected.e;
    if (used <= 1) verdict_.used = std::max(verdict_.used, used);
  }
  // Not a number is within no bound. Where the reference has a value and no bound to give, nothing can be said.
  if (std::abs(found - expected.v) <= expected.e) return;
  if (std::isfinite(expected.v) && !std::isfinite(expected.e)) return;
  std::vector<ReferenceDifference>& all = verdict_.differences;
  if (!all.empty() && all.back().step == s_.record.step && all.back().quantity == quantity &&
      all.back().parameter == parameter) {
    ++all.back().more;
    return;
  }
  all.push_back({s_.record.step, quantity, parameter, element, found, expected.v, expected.e, 0});
}

void StepJudge::hold_all(const char* quantity, const Parameter& p, const std::vector<NamedTensor>& found,
                         const std::vector<Bounded>& expected) {
  const Values* const values = values_of(found, p.name);
  if (values == nullptr || values->size() != expected.size())
    return hold(quantity, p.name, -1, 0, Bounded(1.0), 1);  // it is not there at all
  const double scale = root_mean_square(expected);
  for (std::size_t i = 0; i < expected.size(); ++i)
    hold(quantity, p.name, std::int64_t(i), double((*values)[i]), expected[i], scale);
}

// What is drawn before the first step: normal values by a written sequence of fp32 operations, 4e-7 from the true ones.
void StepJudge::first_values() {
  for (const Parameter& p : parameters_) {
    const Values* const found = values_of(s_.before.weights, p.name);
    if (found == nullptr || found->size() != p.size()) {
      hold("first value", p.name, -1, 0, Bounded(1.0), 1);  // it is not there at all
      continue;
    }
    for (std::size_t i = 0; i < p.size(); i += stride(p)) {
      const double x = reference::initial_value(t_, p, i), off = 5e-7 * std::abs(x);
      const bool rounded = p.frozen || !t_.masters;
      const double rounding = reference::unit_of(t_.compute) * std::abs(x) + reference::tiny_of(t_.compute);
      hold("first value", p.name, std::int64_t(i), double((*found)[i]), {x, off + (rounded ? rounding : 0)},
           t_.model.init_stddev);
    }
  }
}

void StepJudge::judge(bool passes, double scale, std::int64_t applied) {
  hold_exactly("loss scale", s_.record.loss_scale, scale);
  std::int64_t batch = s_.record.step;
  for (const std::int64_t dropped : t_.dropped_batches) batch += dropped <= batch ? 1 : 0;
  hold_exactly("data position", double(s_.record.data_position), double((batch + 1) * t_.batch));
  const bool finite = s_.record.nonfinite == 0 && std::isfinite(s_.record.grad_norm);
  if (passes) judge_passes(scale, finite);
  if (finite) judge_norm(scale);
  judge_skip(finite);
  const double rate = reference::learning_rate(t_, applied, s_.record.step);
  hold("learning rate", "", -1, s_.record.lr, {rate, 1e-12 * std::abs(rate) + 1e-18}, rate);
  hold_exactly("optimizer's step", double(s_.record.optimizer_steps), double(applied + (s_.record.skipped ? 0 : 1)));
  for (const Parameter& p : parameters_) {
    if (s_.record.skipped || p.frozen) judge_unchanged(p);
  }
  if (!s_.record.skipped) judge_update(applied);
}

// Losses and gradients, from the weights with which the step begins.
void StepJudge::judge_passes(double scale, bool finite) {
  std::vector<std::vector<double>> weights;
  for (const Parameter& p : parameters_) {
    const Values* const held = values_of(s_.before.weights, p.name);
    weights.emplace_back(held != nullptr ? std::vector<double>(held->begin(), held->end())
                                         : std::vector<double>(p.size(), 0));
  }
  const auto expected = reference::losses_and_gradients<reference::Noisy>(
      t_, parameters_, weights, reference::tokens_of_step(t_, s_.record.step), s_.record.step, scale);
  if (expected.unsettled) ++verdict_.unsettled;
  if (!expected.unsettled) hold("loss", "", -1, double(s_.record.loss), bounded(expected.loss), expected.loss.v);
  for (std::size_t i = 0; finite && !expected.unsettled && i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    if (!p.frozen) judge_gradient(p, values_of(s_.gradients, p.name), expected.gradients[i]);
  }
  if (expected.overflows) hold_exactly("overflow", finite ? 0 : 1, 1);
  if (!expected.may_overflow) hold_exactly("overflow", finite ? 0 : 1, 0);
}

// From the run's own gradients, and of what type these are.
void StepJudge::judge_norm(double scale) {
  std::vector<const Values*> all;
  for (const Parameter& p : parameters_) {
    const Values* const held = p.frozen ? nullptr : values_of(s_.gradients, p.name);
    if (held == nullptr) continue;
    judge_type(p, *held, scale);
    all.push_back(held);
  }
  const Bounded norm = reference::norm_of(all);
  hold("gradient norm", "", -1, double(s_.record.grad_norm), norm, norm.v);
}

void StepJudge::judge_gradient(const Parameter& p, const Values* held, const std::vector<reference::Noisy>& expected) {
  double squares = 0;
  for (const reference::Noisy& g : expected) squares += g.v * g.v;
  const double alike = together() * std::sqrt(squares / double(std::max<std::size_t>(1, expected.size())));
  std::vector<Bounded> gradient;
  for (const reference::Noisy& g : expected) gradient.push_back({g.v, bounded(g).e + alike});
  hold_all("gradient", p, s_.gradients, gradient);
  if (held != nullptr) judge_scale(p, *held, expected);
}

// Gradients that are held in 16 bits are numbers of that type.
void StepJudge::judge_type(const Parameter& p, const Values& held, double scale) {
  if (t_.compute == reference::Type::f32) return;
  const bool rounded = t_.gradients != reference::Type::f32;
  std::int64_t between = 0, zeros = 0;
  for (const float g : held) {
    zeros += g == 0 ? 1 : 0;
    between += reference::nearest(double(g) * scale, t_.compute) != double(g) * scale ? 1 : 0;
  }
  if (rounded) return hold("count of values that the gradients' type cannot hold", p.name, -1, double(between), 0.0, 1);
  // A few sums of products may happen to be numbers of 16 bits; not all of many. What is not a product need not be one.
  const bool product = p.matrix && p.part != reference::Part::tokens && p.part != reference::Part::positions;
  if (product && std::int64_t(held.size()) - zeros >= 64)
    hold("fp32 kept (1) or not (0) in the gradient", p.name, -1, between > 0 ? 1 : 0, 1.0, 1);
}

// How far a gradient goes in the direction that it should have: one number a parameter, in which the noise of elements
// cancels, so that a mistake of a few percent is seen in 16 bits too.
void StepJudge::judge_scale(const Parameter& p, const Values& held, const std::vector<reference::Noisy>& expected) {
  double dots = 0, squares = 0, noise = 0;
  for (std::size_t i = 0; i < std::min(held.size(), expected.size()); ++i) {
    dots += double(held[i]) * expected[i].v;
    squares += expected[i].v * expected[i].v;
    noise += expected[i].v * expected[i].v * expected[i].s;
  }
  if (squares <= 0) return;
  const double bound = deviations() * std::sqrt(noise) / squares + together();
  hold("scale of the gradient", p.name, -1, dots / squares, {1, bound}, 1);
}

// A step is skipped where it was asked for, and where a gradient is not finite.
void StepJudge::judge_skip(bool finite) {
  const auto& asked = t_.skipped_steps;
  const bool wanted = std::find(asked.begin(), asked.end(), s_.record.step) == asked.end();
  hold_exactly("skipped", s_.record.skipped ? 1 : 0, wanted && finite ? 0 : 1);
}

void StepJudge::judge_unchanged(const Parameter& p) {
  const std::pair<const char*, std::pair<const std::vector<NamedTensor>*, const std::vector<NamedTensor>*>> each[] = {
      {"weight of a skipped or frozen parameter", {&s_.before.weights, &s_.after.weights}},
      {"first moment of a skipped step", {&s_.before.first, &s_.after.first}},
      {"second moment of a skipped step", {&s_.before.second, &s_.after.second}}};
  for (const auto& [quantity, tensors] : each) {
    const Values* const before = values_of(*tensors.first, p.name);
    if (before == nullptr) continue;  // frozen: it has no moments; or the optimizer has one
    std::vector<Bounded> expected;
    for (const float x : *before) expected.emplace_back(double(x));
    hold_all(quantity, p, *tensors.second, expected);
  }
}

// The factor that the optimizer multiplied the gradient by, as the first moments tell of it: by least squares over all.
void StepJudge::judge_factor(const Bounded& factor) {
  const reference::Optimizer& o = t_.optimizer;
  if (o.sgd) return;  // it has no moments, or ones with the decay and the dampening in them
  if (!o.decoupled && o.weight_decay != 0) return;  // the decay is in the moments too
  double dots = 0, squares = 0, noise = 0;
  for (const Parameter& p : parameters_) {
    const Values *const g = values_of(s_.gradients, p.name), *const before = values_of(s_.before.first, p.name),
                        *const after = values_of(s_.after.first, p.name);
    if (p.frozen || g == nullptr || before == nullptr || after == nullptr) continue;
    // What the moment is renewed by.
    const double beta = o.lion ? o.beta2 : reference::is_muons(o, p) ? o.momentum : o.beta1;
    for (std::size_t i = 0; i < g->size(); ++i) {
      const double x = (1 - beta) * double((*g)[i]), old = beta * double((*before)[i]);
      dots += (double((*after)[i]) - old) * x;
      squares += x * x;
      noise += std::abs(x) * 4 * reference::kUnit * (std::abs(old) + std::abs(x) + std::abs(double((*after)[i])));
    }
  }
  if (squares <= 0) return;
  hold("clipping factor", "", -1, dots / squares, {factor.v, factor.e + noise / squares}, factor.v);
}

// What storing a weight takes from it, at most: half a unit in the last place, or at random a whole one.
double StepJudge::rounding_of(const Bounded& weight) const {
  if (t_.masters) return 0;
  return (t_.rounds_at_random ? 2 : 1) * reference::unit_of(t_.compute) * (std::abs(weight.v) + weight.e);
}

// A matrix that the optimizer takes as a whole. Beside a golden the weights of large ones are not looked at: in double
// they would take longer than the golden.
void StepJudge::judge_muon(const Parameter& p, const Bounded& factor, double decay, double rate) {
  const auto wide = [&](const std::vector<NamedTensor>& tensors) {
    const Values* const values = values_of(tensors, p.name);
    return values != nullptr ? std::vector<double>(values->begin(), values->end()) : std::vector<double>(p.size(), 0);
  };
  const reference::MatrixBefore before{wide(s_.before.weights), wide(s_.before.first), wide(s_.gradients)};
  std::vector<reference::BoundedElement> next =
      reference::muon_updated(t_.optimizer, p, t_.model.llama, before, factor, decay, rate);
  std::vector<Bounded> first, second, weights;
  for (std::size_t i = 0; i < next.size(); ++i) {
    next[i].weight.e += rounding_of(next[i].weight);
    first.push_back(next[i].first);
  }
  hold_all("first moment", p, s_.after.first, first);
  hold_all("second moment", p, s_.after.second, std::vector<Bounded>(p.size()));  // there is none
  const double side = std::min(p.rows, p.cols), products = side * double(p.size());
  if (most_ == kElements && products > kProductsMost) return;
  const Values* const after = values_of(s_.after.weights, p.name);
  if (after == nullptr || after->size() != p.size()) return hold("weight", p.name, -1, 0, Bounded(1.0), 1);
  // Elements of an orthogonal matrix are about one over the root of its longer side.
  const double element = rate / std::sqrt(double(std::max(p.rows, p.cols)));
  for (std::size_t i = 0; i < p.size(); i += stride(p))
    hold("weight", p.name, std::int64_t(i), double((*after)[i]), next[i].weight, element);
}

// Moments and weights, from the run's own gradients and norm.
void StepJudge::judge_update(std::int64_t applied) {
  const Bounded factor = reference::clip_factor(reference::clipping(t_, s_.record.step), double(s_.record.grad_norm));
  judge_factor(factor);
  const double rate = reference::learning_rate(t_, applied, s_.record.step);
  const double rest = rate * (t_.optimizer.muon ? t_.optimizer.adamw_rate : 1);  // of what is no matrix of a layer
  const reference::Corrections bias = reference::corrections(t_.optimizer, applied + 1);
  for (const Parameter& p : parameters_) {
    const Values *const g = values_of(s_.gradients, p.name), *const w = values_of(s_.before.weights, p.name),
                        *const m = values_of(s_.before.first, p.name), *const v = values_of(s_.before.second, p.name);
    const bool no_second = t_.optimizer.lion || t_.optimizer.sgd;
    const bool no_first = t_.optimizer.sgd && t_.optimizer.momentum == 0;
    if (p.frozen || g == nullptr || w == nullptr || (m == nullptr) != no_first || (v == nullptr) != no_second) continue;
    const double decay = p.matrix || t_.optimizer.decay_all ? t_.optimizer.weight_decay : 0;
    if (reference::is_muons(t_.optimizer, p)) {
      judge_muon(p, factor, decay, rate);
      continue;
    }
    const Values *const new_w = values_of(s_.after.weights, p.name), *const new_m = values_of(s_.after.first, p.name),
                        *const new_v = values_of(s_.after.second, p.name);
    if (new_w == nullptr || (new_m == nullptr) != no_first || (new_v == nullptr) != no_second) {
      hold("weight", p.name, -1, 0, Bounded(1.0), 1);  // not there at all, or one too many
      continue;
    }
    const double of_first = no_first ? 0 : root_mean_square(*new_m),
                 of_second = no_second ? 0 : root_mean_square(*new_v);
    for (std::size_t i = 0; i < g->size(); i += stride(p)) {
      const reference::Element before{double((*w)[i]), no_first ? 0 : double((*m)[i]), no_second ? 0 : double((*v)[i])};
      reference::BoundedElement next =
          reference::updated(t_.optimizer, before, double((*g)[i]), factor, decay, rest, bias);
      next.weight.e += rounding_of(next.weight);
      const auto element = std::int64_t(i);
      if (!no_first) hold("first moment", p.name, element, double((*new_m)[i]), next.first, of_first);
      if (!no_second) hold("second moment", p.name, element, double((*new_v)[i]), next.second, of_second);
      hold("weight", p.name, element, double((*new_w)[i]), next.weight, rest);
    }
  }
}

}  // namespace

ReferenceJudge::ReferenceJudge(const runtime::Definition& definition, Judging how)
    : training_(reference_training(definition)), how_(how) {}

bool ReferenceJudge::wants(std::int64_t step) const {
  const bool end = step < 2 || step + 1 == training_.steps;
  return step >= 0 && step < training_.steps && (how_ == Judging::whole || end);
}

// The last step first: by then, all that a step may depend on has happened.
bool ReferenceJudge::wants_passes(std::int64_t step) const {
  if (how_ != Judging::beside_golden) return true;
  const std::int64_t affordable = training_.steps / kStepsOfAPass;
  if (step + 1 == training_.steps) return affordable >= 1;
  return step == 0 ? affordable >= 2 : affordable >= 3;
}

void ReferenceJudge::take_state(std::int64_t step, Collector::State state) {
  if (wants(step) || wants(step - 1)) states_[step] = std::move(state);
}

void ReferenceJudge::take_gradients(std::int64_t step, const std::vector<NamedTensor>& gradients) {
  if (wants(step)) gradients_[step] = gradients;
}

ReferenceVerdict ReferenceJudge::judge(const RunRecord& run) const {
  const auto begin = std::chrono::steady_clock::now();
  ReferenceVerdict verdict;
  const std::vector<Parameter> parameters = reference::parameters_of(training_.model);
  reference::ScalerState scaler = reference::first_state(training_.scaler);
  std::int64_t applied = 0;
  for (const StepRecord& record : run.steps) {
    const auto before = states_.find(record.step), after = states_.find(record.step + 1);
    const auto gradients = gradients_.find(record.step);
    if (wants(record.step) && before != states_.end() && after != states_.end() && gradients != gradients_.end()) {
      const JudgedStep step{record, before->second, after->second, gradients->second};
      const bool all = how_ != Judging::beside_golden;
      StepJudge judge(training_, parameters, verdict, step, all ? std::numeric_limits<std::size_t>::max() : kElements);
      if (record.step == 0 && training_.drawn) judge.first_values();
      judge.judge(wants_passes(record.step), scaler.scale, applied);
      verdict.steps.push_back(record.step);
      if (wants_passes(record.step)) verdict.passes.push_back(record.step);
    }
    applied += record.skipped ? 0 : 1;
    scaler = reference::next_state(training_.scaler, scaler, record.skipped);
  }
  // What went wrong in a step is known by then.
  if (how_ == Judging::whole && verdict.differences.empty()) judge_freely(run, verdict);
  verdict.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return verdict;
}

// From the first weights on, beside the run and not from its state. How far two right runs may be apart is measured:
// runs of the reference whose every gradient and weight is off by what rounding does to it.
void ReferenceJudge::judge_freely(const RunRecord& run, ReferenceVerdict& verdict) const {
  constexpr int kNoisy = 3;  // runs
  constexpr double kRoom = ReferenceVerdict::kRoom;
  if (!training_.drawn || run.steps.empty() || training_.rounds_at_random) return;
  reference::FreeOptions options;
  for (const StepRecord& step : run.steps) options.skipped.push_back(step.skipped);
  const reference::FreeRun clean = reference::run_freely(training_, options);
  std::vector<reference::FreeRun> noisy;
  for (options.noise = 1; options.noise <= kNoisy; ++options.noise)
    noisy.push_back(reference::run_freely(training_, options));
  double loss_apart = 0, norm_apart = 0;
  for (std::size_t i = 0; i < std::min(run.steps.size(), clean.loss.size()); ++i) {
    // From where two right runs send tokens to different experts nothing can be said of either.
    const auto elsewhere = [&](const reference::FreeRun& other) { return other.routing[i] != clean.routing[i]; };
    if (clean.unsettled[i] || std::any_of(noisy.begin(), noisy.end(), elsewhere)) return;
    for (const reference::FreeRun& other : noisy) {
      loss_apart = std::max(loss_apart, std::abs(other.loss[i] - clean.loss[i]));
      norm_apart = std::max(norm_apart, std::abs(other.norm[i] - clean.norm[i]));
    }
    const StepRecord& step = run.steps[i];
    const auto hold = [&](const char* what, double found, double expected, double bound) {
      ++verdict.values;
      verdict.tight += bound <= kTight * std::abs(expected) ? 1 : 0;
      if (step.nonfinite == 0 && !(std::abs(found - expected) <= bound))
        verdict.differences.push_back({step.step, what, "", -1, found, expected, bound, 0});
    };
    hold("loss of the whole run", double(step.loss), clean.loss[i], kRoom * loss_apart + clean.loss_bound[i]);
    hold("gradient norm of the whole run", double(step.grad_norm), clean.norm[i],
         kRoom * norm_apart + clean.norm_bound[i]);
  }
  judge_held_out(run, training_, clean, noisy, verdict);
}

}  // namespace seeksim::harness
