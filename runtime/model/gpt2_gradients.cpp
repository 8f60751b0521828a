// Gradients of parameters: sums over samples, made block by block, each block a node of the tree.
#include "kernels/embedding.h"
#include "kernels/host_access.h"
#include "kernels/layer_norm.h"
#include "kernels/pointwise.h"
#include "kernels/rms_norm.h"
#include "kernels/slabs.h"
#include "kernels/tree.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {
namespace {

MatView<float> as_matrix(VecView<float> flat, Index rows, Index cols) {
  return {flat.buffer, flat.offset, rows, cols, cols};
}

}  // namespace

template <class S>
void Gpt2<S>::embedding_grads(const Pass& p) {
  const MatView<const S> d = all_rows(p, "embeddings", SEEKSIM_SITE, dx(p.batch.samples, 0));  // (R, C)
  if (positions() != nullptr && !positions()->frozen) position_grads(p, *positions(), d);
  const ParameterInfo& wte = parameters_.wte();
  for (Index b = 0; b < Index(p.blocks.size()) && !wte.frozen; ++b) {
    const GradientBlock& block = p.blocks[b];
    const MatView<const S> rows = d.row_range(block.first * way_.block, block.count * way_.block);
    p.launch(
        wte.name, SEEKSIM_SITE, memory_cost(rows.rows * rows.cols + wte.size),
        [T = way_.segment, V = s_.V, from = way_.first_vocabulary](Lane lane, Vec<const std::int32_t> tokens,
                                                                   Mat<const S> dy, Mat<float> dw) {
          kernels::embedding_backward_slice<S>(lane, tokens, T, V, from, dy, dw);
        },
        ids_here(p.batch.samples, false).part(block.first * way_.block, block.count * way_.block), rows,
        as_matrix(p.sink->open(b, wte.offset, wte.size), way_.V, s_.C));
  }
  if (!wte.frozen) p.sink->close(wte.offset, wte.size);
}

template <class S>
void Gpt2<S>::position_grads(const Pass& p, const ParameterInfo& wpe, MatView<const S> d) {
  const std::int32_t separator = documents(p.batch, Bug::packing_positions_go_on) != nullptr ? p.batch.separator : -1;
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const GradientBlock& block = p.blocks[b];
    const MatView<const S> rows = d.row_range(block.first * way_.block, block.count * way_.block);
    const MatView<float> sums = as_matrix(p.sink->open(b, wpe.offset, wpe.size), s_.T, s_.C);
    if (separator >= 0) {
      packed_position_grads(p, wpe, separator, block, rows, sums);
      continue;
    }
    const Index first = way_.context != nullptr ? way_.context->first_token(int(b / p.batch.samples)) : 0;
    p.launch(
        wpe.name, SEEKSIM_SITE, memory_cost(rows.rows * rows.cols + wpe.size),
        [T = way_.block, first](Lane lane, Mat<const S> dy, Mat<float> dw) {
          // Positions of other chunks get +0: a sum from +0 on is never -0, and stays what it is when +0 is added.
          if (T < dw.rows) kernels::clear(lane, Vec<float>{dw.data, dw.rows * dw.cols});
          kernels::position_backward<S>(lane, dy, T, {dw.row(first), T, dw.cols, dw.stride});
        },
        rows, sums);
  }
  p.sink->close(wpe.offset, wpe.size);
}

// A sample's documents have the same positions: in a sample a chain over its tokens, as of words that occur twice.
template <class S>
void Gpt2<S>::packed_position_grads(const Pass& p, const ParameterInfo& wpe, std::int32_t separator,
                                    const GradientBlock& block, MatView<const S> rows, MatView<float> sums) {
  p.launch(
      wpe.name, SEEKSIM_SITE, memory_cost(rows.rows * rows.cols + wpe.size),
      [T = s_.T, separator](Lane lane, Vec<const std::int32_t> tokens, Mat<const S> dy, Mat<float> dw) {
        std::vector<std::int32_t> places(static_cast<std::size_t>(tokens.n));
        for (Index i = 0; i < tokens.n; ++i) {
          const bool begins = i % T == 0 || tokens[i - 1] == separator;
          places[std::size_t(i)] = begins ? 0 : places[std::size_t(i - 1)] + 1;
        }
        kernels::embedding_backward<S>(lane, {places.data(), tokens.n}, T, dy, dw);
      },
      reads(inputs(p.batch.samples).part(block.first * s_.T, block.count * s_.T)), rows, sums);
}

template <class S>
void Gpt2<S>::linear_grad(const Pass& p, const ParameterInfo& w, const ParameterInfo* bias, bool column,
                          MatView<const S> x, MatView<const S> dy, Index weight_offset) {
  if (bias != nullptr) bias_grad<S>(p, *bias, dy);
  if (w.frozen) return;
  weight_grad(p, w, column, column ? all_rows(p, w.name, SEEKSIM_SITE, x) : x, dy, weight_offset);
}

template <class S>
void Gpt2<S>::weight_grad(const Pass& p, const ParameterInfo& w, bool column, MatView<const S> x, MatView<const S> dy,
                          Index weight_offset) {
  if (w.frozen) return;
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const Index first = p.blocks[b].first * way_.block, rows = p.blocks[b].count * way_.block;
    const MatView<const S> xs = x.row_range(first, rows), dys = dy.row_range(first, rows);
    const MatView<float> dw = as_matrix(p.sink->open(b, weight_offset, w.size), w.rows(), w.cols());
    // A sample's tokens, or a segment's, are one chain, and samples or segments are leaves: K-segments (F2).
    if (is_fp8(p, w)) {
      const Fp8Operand<S> in{Fp8Use::input, column ? Trans::no : Trans::yes, xs};
      const Fp8Operand<S> gradient{Fp8Use::gradient, column ? Trans::yes : Trans::no, dys};
      fp8_product<S, float>(p.launch, fp8(p, SEEKSIM_SITE, w), column ? gradient : in, column ? in : gradient, {}, dw,
                            way_.segment);
      continue;
    }
    product<S, float>(p.launch, w.name, SEEKSIM_SITE, Trans::yes, Trans::no, column ? dys : xs, column ? xs : dys, dw,
                      way_.segment);
    if (bug_.is(Bug::router_gradient_of_each_way) && w.part == int(LayerPart::router_weight) && tensor_ != nullptr)
      p.launch(
          w.name, SEEKSIM_SITE, memory_cost(2 * w.size),
          [times = float(tensor_->ways())](Lane lane, Vec<float> all) {
            kernels::change_on_host(lane, all, [times](Vec<float> values) {
              for (Index i = 0; i < values.n; ++i) values.data[i] *= times;
            });
          },
          VecView<float>{dw.buffer, dw.offset, w.size});
  }
  p.sink->close(weight_offset, w.size);
}

template <class S>
template <class D>
void Gpt2<S>::bias_grad(const Pass& p, const ParameterInfo& bias, MatView<const D> dy) {
  if (bias.frozen) return;
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const MatView<const D> dys = dy.row_range(p.blocks[b].first * way_.block, p.blocks[b].count * way_.block);
    p.launch(
        bias.name, SEEKSIM_SITE, memory_cost(dys.rows * dys.cols),
        [T = way_.block, chunk = chunk_segment()](Lane lane, Mat<const D> d, Vec<float> db) {
          if (chunk > 0) return kernels::bias_sample_grads<D>(lane, d, T, chunk, {db.data, 1, db.n, db.n});
          kernels::bias_grad<D>(lane, d, T, db);
        },
        dys, p.sink->open(b, bias.offset, bias.size));
  }
  p.sink->close(bias.offset, bias.size);
}

template <class S>
void Gpt2<S>::norm_grad(const Pass& p, const ParameterInfo& gamma, const ParameterInfo* beta, MatView<const S> dy,
                        MatView<const S> x, VecView<const float> mean, VecView<const float> rstd) {
  if (splits_tokens()) return norm_grad_of_ways(p, gamma, beta, dy, x, mean, rstd);
  if (beta != nullptr) return layer_norm_grad(p, gamma, *beta, dy, x, mean, rstd);
  if (gamma.frozen) return;
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const Index first = p.blocks[b].first * way_.block, rows = p.blocks[b].count * way_.block;
    p.launch(
        gamma.name, SEEKSIM_SITE, memory_cost(2 * rows * x.cols, 2),
        [T = way_.block, chunk = chunk_segment()](Lane lane, Mat<const S> d, Mat<const S> in, Vec<const float> r,
                                                  Vec<float> dg) {
          if (chunk > 0) return kernels::rms_norm_sample_grads<S>(lane, d, in, r, T, chunk, {dg.data, 1, dg.n, dg.n});
          kernels::rms_norm_param_grad<S>(lane, d, in, r, T, dg);
        },
        dy.row_range(first, rows), x.row_range(first, rows), rstd.part(first, rows),
        p.sink->open(b, gamma.offset, gamma.size));
  }
  p.sink->close(gamma.offset, gamma.size);
}

template <class S>
void Gpt2<S>::layer_norm_grad(const Pass& p, const ParameterInfo& gamma, const ParameterInfo& beta, MatView<const S> dy,
                              MatView<const S> x, VecView<const float> mean, VecView<const float> rstd) {
  if (gamma.frozen) return bias_grad<S>(p, beta, dy);  // the same sum, alone
  // Trained both, they lie side by side.
  const Index size = gamma.size + (beta.frozen ? 0 : beta.size);
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const Index first = p.blocks[b].first * way_.block, rows = p.blocks[b].count * way_.block;
    const VecView<float> both = p.sink->open(b, gamma.offset, size);
    const VecView<float> dbeta =
        beta.frozen ? vec<float>(*work_->unused, 0, beta.size) : both.part(gamma.size, beta.size);
    p.launch(
        gamma.name, SEEKSIM_SITE, memory_cost(2 * rows * x.cols, 2),
        [T = way_.block, chunk = chunk_segment()](Lane lane, Mat<const S> d, Mat<const S> in, Vec<const float> m,
                                                  Vec<const float> r, Vec<float> dg, Vec<float> db) {
          if (chunk > 0)
            return kernels::layer_norm_sample_grads<S>(lane, d, in, m, r, T, chunk, {dg.data, 1, dg.n, dg.n},
                                                       {db.data, 1, db.n, db.n});
          kernels::layer_norm_param_grad<S>(lane, d, in, m, r, T, dg, db);
        },
        dy.row_range(first, rows), x.row_range(first, rows), mean.part(first, rows), rstd.part(first, rows),
        both.part(0, gamma.size), dbeta);
  }
  p.sink->close(gamma.offset, size);
}

// A way's sums of each sample, of gamma's gradient and then of beta's.
template <class S>
void Gpt2<S>::sample_grads(const Pass& p, const ParameterInfo& gamma, bool has_beta, MatView<const S> dy,
                           MatView<const S> x, VecView<const float> mean, VecView<const float> rstd,
                           VecView<float> own) {
  const Cost cost = memory_cost(2 * dy.rows * dy.cols, 2);
  const Index tokens = way_.tokens, segment = kernels::slab_size(s_.T), C = s_.C;
  if (!has_beta) {
    p.launch(
        gamma.name, SEEKSIM_SITE, cost,
        [tokens, segment, C](Lane lane, Mat<const S> d, Mat<const S> in, Vec<const float> r, Vec<float> sums) {
          kernels::rms_norm_sample_grads<S>(lane, d, in, r, tokens, segment, {sums.data, sums.n / C, C, C});
        },
        dy, x, rstd, own);
    return;
  }
  p.launch(
      gamma.name, SEEKSIM_SITE, cost,
      [tokens, segment, C](Lane lane, Mat<const S> d, Mat<const S> in, Vec<const float> m, Vec<const float> r,
                           Vec<float> sums) {
        const Index all = sums.n / 2;
        kernels::layer_norm_sample_grads<S>(lane, d, in, m, r, tokens, segment, {sums.data, all / C, C, C},
                                            {sums.data + all, all / C, C, C});
      },
      dy, x, mean, rstd, own);
}

// Segments of a sample's tokens come together before samples do, so a way hands out its sums of each sample.
template <class S>
void Gpt2<S>::norm_grad_of_ways(const Pass& p, const ParameterInfo& gamma, const ParameterInfo* beta,
                                MatView<const S> dy, MatView<const S> x, VecView<const float> mean,
                                VecView<const float> rstd) {
  const bool trains_beta = beta != nullptr && !beta->frozen;
  if (gamma.frozen && !trains_beta) return;
  const Index samples = p.batch.samples, one = samples * s_.C, all = (beta != nullptr ? 2 : 1) * one;
  const VecView<float> own = tensor_->own_values(all);  // of gamma, then of beta
  sample_grads(p, gamma, beta != nullptr, dy, x, mean, rstd, own);
  tensor_->gather_values(p.launch, gamma.name, SEEKSIM_SITE, all);
  const Index begin = gamma.frozen ? beta->offset : gamma.offset;
  const Index size = (gamma.frozen ? 0 : gamma.size) + (trains_beta ? beta->size : 0);
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const GradientBlock& block = p.blocks[b];
    const VecView<float> both = p.sink->open(b, begin, size);
    for (const ParameterInfo* const norm : {&gamma, beta}) {
      if (norm == nullptr || norm->frozen) continue;
      MatView<const float> nodes =
          tensor_->values(all, (norm == &gamma ? 0 : one) + block.first * s_.C, block.count * s_.C);
      if (bug_.is(Bug::unreduced_norm_gradients)) nodes = nodes.row_range(tensor_->way(), 1);
      p.launch(
          norm->name, SEEKSIM_SITE, memory_cost(nodes.rows * nodes.cols),
          [](Lane lane, Mat<const float> sums, Vec<float> sum) { kernels::add_samples(lane, sums, sum); }, nodes,
          both.part(norm->offset - begin, norm->size));
    }
  }
  p.sink->close(begin, size);
}

#define SEEKSIM_INSTANTIATE(S)                                                                                        \
  template void Gpt2<S>::embedding_grads(const Pass&);                                                                \
  template void Gpt2<S>::linear_grad(const Pass&, const ParameterInfo&, const ParameterInfo*, bool, MatView<const S>, \
                                     MatView<const S>, Index);                                                        \
  template void Gpt2<S>::weight_grad(const Pass&, const ParameterInfo&, bool, MatView<const S>, MatView<const S>,     \
                                     Index);                                                                          \
  template void Gpt2<S>::bias_grad<float>(const Pass&, const ParameterInfo&, MatView<const float>);                   \
  template void Gpt2<S>::norm_grad(const Pass&, const ParameterInfo&, const ParameterInfo*, MatView<const S>,         \
                                   MatView<const S>, VecView<const float>, VecView<const float>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
