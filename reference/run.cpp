#include "reference/run.h"

#include <cmath>

#include "reference/model.h"
#include "reference/muon.h"
#include "reference/parameters.h"
#include "reference/random.h"
#include "reference/step.h"

namespace seeksim::reference {
namespace {

class Run {
 public:
  Run(const Training& training, const FreeOptions& given)
      : t(training), options(given), parameters(parameters_of(training.model)), weights(given.first_weights) {
    if (weights.empty()) {
      for (const Parameter& p : parameters) weights.push_back(initial_values(t, p));
    }
    for (const Parameter& p : parameters) {
      first.emplace_back(p.size(), 0.0);
      second.emplace_back(p.size(), 0.0);
    }
  }

  FreeRun run() {
    FreeRun told;
    ScalerState scaler = first_state(t.scaler);
    std::int64_t applied = 0;
    for (std::int64_t step = 0; step < t.steps; ++step) {
      const bool skipped = std::size_t(step) < options.skipped.size() && options.skipped[std::size_t(step)];
      auto values = losses_and_gradients<Noisy>(t, parameters, weights, tokens_of_step(t, step), step, scaler.scale);
      told.loss.push_back(values.loss.v);
      told.loss_bound.push_back(deviations(t.compute) * std::sqrt(values.loss.s));
      told.routing.push_back(values.routing);
      told.unsettled.push_back(values.unsettled);
      told.norm_bound.push_back(0);
      told.norm.push_back(disturb_and_measure(values.gradients, step, told.norm_bound.back()));
      if (!skipped) update(values.gradients, told.norm.back(), ++applied, step);
      scaler = next_state(t.scaler, scaler, skipped);
    }
    told.weights = weights;
    if (t.held_out.samples > 0) evaluate(told);
    return told;
  }

 private:
  void evaluate(FreeRun& told) const {
    Training still = t;
    still.model.drop_embedding = still.model.drop_attention = still.model.drop_residual = 0;
    still.batch = t.held_out.samples, still.curriculum = {};
    const auto values = losses_and_gradients<Noisy>(still, parameters, weights, held_out_tokens(t), t.steps, 1);
    told.held_out = values.loss.v;
    told.held_out_bound = deviations(t.compute) * std::sqrt(values.loss.s);
    told.held_out_unsettled = values.unsettled;
    told.routing.push_back(values.routing);
  }
  // +1 or -1, or 0 in a run without noise.
  double sign(std::size_t parameter, std::size_t element, std::int64_t step) const {
    if (options.noise == 0) return 0;
    const auto words =
        philox({std::uint32_t(element), std::uint32_t(parameter), 0, std::uint32_t(step)}, options.noise);
    return words[0] & 1 ? 1 : -1;
  }
  // Returns the norm. bound: what rounding does to it.
  double disturb_and_measure(std::vector<std::vector<Noisy>>& gradients, std::int64_t step, double& bound) const {
    double squares = 0, variance = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::size_t k = 0; k < gradients[i].size(); ++k) {
        Noisy& g = gradients[i][k];
        g.v += sign(i, k, step) * std::sqrt(g.s);
        squares += g.v * g.v;
        variance += g.v * g.v * g.s;
      }
    }
    const double norm = std::sqrt(squares);
    bound = norm > 0 ? deviations(t.compute) * (std::sqrt(variance) / norm + kUnit * norm) : 0;
    return norm;
  }
  void update(const std::vector<std::vector<Noisy>>& gradients, double norm, std::int64_t number, std::int64_t step) {
    const double factor = clip_factor(clipping(t, step), norm).v, rate = learning_rate(t, number - 1, step);
    const Corrections bias = corrections(t.optimizer, number);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double decay = parameters[i].matrix || t.optimizer.decay_all ? t.optimizer.weight_decay : 0;
      const double unit = t.masters ? kUnit : unit_of(t.compute);
      if (is_muons(t.optimizer, parameters[i]) && !parameters[i].frozen) {
        MatrixBefore before{weights[i], first[i], {}};
        for (const Noisy& g : gradients[i]) before.gradients.push_back(g.v);
        const auto next = muon_updated(t.optimizer, parameters[i], t.model.llama, before, Bounded(factor), decay, rate);
        for (std::size_t k = 0; k < next.size(); ++k) {
          weights[i][k] = next[k].weight.v * (1 + sign(i, k, step) * unit / 2);
          first[i][k] = next[k].first.v;
        }
        continue;
      }
      const double rest = rate * (t.optimizer.muon ? t.optimizer.adamw_rate : 1);
      for (std::size_t k = 0; k < gradients[i].size(); ++k) {
        const BoundedElement next = updated(t.optimizer, {weights[i][k], first[i][k], second[i][k]}, gradients[i][k].v,
                                            Bounded(factor), decay, rest, bias);
        weights[i][k] = next.weight.v * (1 + sign(i, k, step) * unit / 2);
        first[i][k] = next.first.v, second[i][k] = next.second.v;
      }
    }
  }

  const Training& t;
  const FreeOptions& options;
  std::vector<Parameter> parameters;
  std::vector<std::vector<double>> weights, first, second;
};

}  // namespace

FreeRun run_freely(const Training& t, const FreeOptions& options) { return Run(t, options).run(); }

}  // namespace seeksim::reference
