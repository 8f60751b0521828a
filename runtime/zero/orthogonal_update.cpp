#include "runtime/zero/orthogonal_update.h"

#include <algorithm>
#include <utility>

#include "kernels/gemm.h"
#include "kernels/norms.h"
#include "kernels/pointwise.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Trans;
using kernels::Vec;

namespace {

Index blocks_of(Index elements) { return (elements + kernels::kBlock - 1) / kernels::kBlock; }

VecView<float> flat(const MatView<float>& m) { return {m.buffer, m.offset, m.rows * m.cols}; }

// C = op(A) op(B).
void multiply(Launcher& launch, const char* name, MatView<float> a, bool ta, MatView<float> b, bool tb,
              MatView<float> c) {
  const Index k = ta ? a.rows : a.cols;
  launch(
      name, SEEKSIM_SITE, gemm_cost(c.rows, c.cols, k),
      [ta, tb](Lane lane, Mat<const float> left, Mat<const float> right, Mat<float> out) {
        kernels::gemm<float>(kernels::by_contract(lane), ta ? Trans::yes : Trans::no, tb ? Trans::yes : Trans::no, left,
                             right, out);
      },
      reads(a), reads(b), c);
}

// y = a x + b y.
void add_weighted(Launcher& launch, const char* name, float a, MatView<float> x, float b, MatView<float> y) {
  launch(
      name, SEEKSIM_SITE, memory_cost(3 * y.rows * y.cols, 1),
      [a, b](Lane lane, Vec<const float> from, Vec<float> to) { kernels::weighted_sum(lane, a, from, b, to); },
      reads(flat(x)), flat(y));
}

}  // namespace

bool OrthogonalUpdate::wants(const std::vector<ParameterPiece>& pieces) {
  return std::ranges::any_of(pieces, [](const ParameterPiece& p) { return !p.parameter->matrices.empty(); });
}

Index OrthogonalUpdate::floats_for(Index rows, Index cols) {
  const Index side = std::min(rows, cols);
  return 2 * rows * cols + 2 * side * side + blocks_of(rows * cols) + 1;
}

OrthogonalUpdate::OrthogonalUpdate(Device& device, const std::vector<ParameterPiece>& pieces, Space space) {
  Index most = 0;
  for (const ParameterPiece& piece : pieces) {
    for (const Matrix& matrix : piece.parameter->matrices)
      most = std::max(most, floats_for(matrix.count(), piece.parameter->cols()));
  }
  memory_ =
      device.allocate_in(space, static_cast<std::size_t>(most) * sizeof(float), MemoryTag::scratch, "muon matrices");
}

void OrthogonalUpdate::begin_step(double momentum, float grad_factor, float lr) {
  momentum_ = momentum;
  factor_ = grad_factor;
  lr_ = lr;
}

OrthogonalUpdate::Work OrthogonalUpdate::work(const Matrix& matrix, Index cols) const {
  const Index rows = matrix.count(), n = rows * cols, side = std::min(rows, cols);
  Index at = 0;
  const auto take = [&](Index r, Index c) {
    const Index from = std::exchange(at, at + r * c);
    return mat<float>(*memory_, from, r, c);
  };
  Work w{rows, cols, side, take(rows, cols), take(rows, cols), take(side, side), take(side, side), {}, {}};
  w.blocks = vec<float>(*memory_, at, blocks_of(n));
  w.norm2 = vec<float>(*memory_, at + blocks_of(n), 1);
  return w;
}

void OrthogonalUpdate::for_each_part(const ParameterPiece& piece, const Matrix& matrix, const Part& part) const {
  const Index cols = piece.parameter->cols(), end = piece.first + piece.size;
  Index in_matrix = 0;
  for (const Rows& rows : matrix.rows) {
    const Index begin = rows.first * cols, n = rows.count * cols;
    const Index lo = std::max(begin, piece.first), hi = std::min(begin + n, end);
    if (lo < hi) part(lo - piece.first, vec<float>(*memory_, in_matrix + lo - begin, hi - lo));
    in_matrix += n;
  }
}

void OrthogonalUpdate::make(Launcher& launch, const ParameterPiece& piece, const Matrix& matrix, AnyVec gradients,
                            VecView<float> momentum) {
  const char* const name = piece.parameter->name;
  Work w = work(matrix, piece.parameter->cols());
  Index here = 0;
  for_each_part(piece, matrix, [&](Index, VecView<float> x) { here += x.n; });
  if (here == 0) return;  // another's expert
  if (here < w.rows * w.cols) clear_values(launch, name, SEEKSIM_SITE, flat(w.x));
  const float factor = mutant_ == Mutant::muon_clips_update ? 1.0f : factor_;
  const kernels::MuonStep step{static_cast<float>(momentum_), static_cast<float>(1.0 - momentum_), factor};
  for_each_part(piece, matrix, [&](Index at, VecView<float> x) {
    const AnyVec held = gradients.part(at, x.n);
    with_float_type(held.type, [&](auto like) {
      using G = decltype(like);
      launch(
          name, SEEKSIM_SITE, memory_cost(5 * x.n, 1),
          [step, mutant = mutant_, times = times_](Lane lane, Vec<const G> grad, Vec<float> m, Vec<float> out) {
            for (int i = 0; i < times; ++i) {
              if constexpr (std::is_same_v<G, float>) {
                kernels::copy<float>(lane, grad, out);
              } else {
                kernels::widen<G>(lane, grad, out);
              }
              kernels::muon_direction(lane, step, m, out);
            }
            if (mutant == Mutant::muon_without_look_ahead) kernels::copy<float>(lane, m, out);
          },
          held.as<const G>(), momentum.part(at, x.n), x);
    });
  });
  normalize(launch, name, w);
  if (mutant_ != Mutant::muon_moves_by_momentum) iterate(launch, name, w);
}

void OrthogonalUpdate::normalize(Launcher& launch, const char* name, const Work& w) {
  launch(
      name, SEEKSIM_SITE, memory_cost(3 * w.rows * w.cols, 2),
      [](Lane lane, Vec<float> x, Vec<float> blocks, Vec<float> norm2) {
        kernels::norm2_of_slabs<float>(lane, x, x.n, blocks, norm2);
        kernels::scale_to_norm(lane, norm2, kernels::kMuonLeast, x);
      },
      flat(w.x), w.blocks, w.norm2);
}

// After each round x is where `next` was. Five rounds are an odd number, so the result is brought to where it began.
void OrthogonalUpdate::iterate(Launcher& launch, const char* name, Work& w) {
  const bool tall = w.rows > w.cols;
  const MatView<float> first = w.x;
  const int rounds = kernels::kMuonRounds - (mutant_ == Mutant::muon_one_round_less ? 1 : 0);
  for (int round = 0; round < rounds; ++round) {
    multiply(launch, name, w.x, tall, w.x, !tall, w.gram);
    multiply(launch, name, w.gram, false, w.gram, false, w.square);
    add_weighted(launch, name, kernels::kMuonB, w.gram, kernels::kMuonC, w.square);
    if (tall)
      multiply(launch, name, w.x, false, w.square, false, w.next);
    else
      multiply(launch, name, w.square, false, w.x, false, w.next);
    add_weighted(launch, name, kernels::kMuonA, w.x, 1, w.next);
    std::swap(w.x, w.next);
  }
  if (w.x.offset != first.offset) copy_values(launch, name, SEEKSIM_SITE, flat(w.x), flat(first));
}

kernels::OptimizerStep OrthogonalUpdate::step_of(const Matrix& matrix, float decay) const {
  kernels::OptimizerStep step;
  step.rule = kernels::OptimizerRule::given;
  step.lr = lr_;
  step.weight_decay = decay;
  const bool turned = mutant_ == Mutant::muon_scale_turned;
  step.grad_factor =
      static_cast<float>(host_sqrt(std::max(1.0, turned ? 1 / matrix.outputs_per_input : matrix.outputs_per_input)));
  if (mutant_ == Mutant::muon_clips_update) step.grad_factor *= factor_;
  if (mutant_ == Mutant::muon_decays_by_scaled_rate) step.weight_decay *= step.grad_factor;
  return step;
}

}  // namespace seeksim::runtime
