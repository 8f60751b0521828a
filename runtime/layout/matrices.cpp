#include "runtime/layout/matrices.h"

#include <algorithm>

#include "runtime/layout/gpt2_parameters.h"

namespace seeksim::runtime {
namespace {

// Rows of several matrices by turns: group after group, of each matrix as many as it has in a group.
std::vector<Matrix> interleaved(Index groups, const std::vector<Index>& rows_in_group) {
  std::vector<Matrix> matrices(rows_in_group.size());
  Index row = 0;
  for (Index group = 0; group < groups; ++group) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      matrices[i].rows.push_back({row, rows_in_group[i]});
      row += rows_in_group[i];
    }
  }
  return matrices;
}

// Gate and up, slab by slab, beginning at `row`. The last slabs are short or empty.
void add_gate_and_up(const MlpShape& mlp, Index row, std::vector<Matrix>& out) {
  Matrix gate, up;
  for (Index first = 0; first < mlp.F; first += mlp.segment()) {
    const Index n = std::min(mlp.segment(), mlp.F - first);
    gate.rows.push_back({row, n});
    up.rows.push_back({row + n, n});
    row += 2 * n;
  }
  out.push_back(std::move(gate));
  out.push_back(std::move(up));
}

std::vector<Matrix> matrices_in(const ModelShape& s, const ParameterInfo& p) {
  std::vector<Matrix> out;
  switch (p.layout) {
    case HfLayout::grouped_qkv:
      return interleaved(s.K, {s.G * s.D, s.D, s.D});
    case HfLayout::gate_up:
      add_gate_and_up({.F = p.whole_size / p.cols() / 2, .U = p.whole_size / p.cols()}, 0, out);
      return out;
    case HfLayout::experts_gate_up:
      for (Index row = 0; row < p.rows(); row += s.U) add_gate_and_up({s.F, s.U}, row, out);
      return out;
    case HfLayout::experts_down:
      for (Index row = 0; row < p.rows(); row += s.F) out.push_back({{{row, s.F}}});
      return out;
    default:
      return {{{{0, p.rows()}}}};
  }
}

}  // namespace

std::vector<Matrix> matrices_of(const ModelPlan& plan, const ParameterInfo& p) {
  if (p.shape.size() != 2 || p.module < 1 || p.module > plan.layers) return {};
  std::vector<Matrix> matrices = matrices_in(ModelShape(plan), p);
  for (Matrix& m : matrices) {
    const auto rows = double(m.count()), cols = double(p.cols());
    m.outputs_per_input = p.rows_are_inputs ? cols / rows : rows / cols;
  }
  return matrices;
}

}  // namespace seeksim::runtime
