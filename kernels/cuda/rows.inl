// Kernels that work along rows: norms and sums of columns here, softmax in logits.inl, sums of squares and folds in
// folds.inl. A row sum (F4) is a warp's. Included after elements.inl.

constexpr int kRowThreads = 128;
constexpr int kRowsABlock = kRowThreads / kWarp;
SEEKSIM_HD int thread_of_warp(int t) { return t % kWarp; }

// A kernel in which each warp has one row. It has no barrier of its own.
template <class Launch, class Kernel>
void by_warps(Launch& launch, Index rows, const Kernel& kernel) {
  if (rows > 0) launch({blocks_for(rows, kRowsABlock), 1}, kernel);
}

// mean and rstd of layer norm, or rstd alone of rms norm; then the row.
template <bool kCentred, class T>
struct NormForward {
  static constexpr int kThreads = kRowThreads;
  Mat<const T> x;
  Vec<const T> gamma, beta;
  float eps;
  Mat<T> y;
  Vec<float> mean, rstd;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    const Index n = x.cols;
    const float count = V::from_int(static_cast<std::int32_t>(n));
    typename Block::template Local<float> sum, squares;
    const auto row_of = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    if constexpr (kCentred) {
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index r = row_of(t);
        if (r >= x.rows) return;
        const T* const xr = x.row(r);
        sum(t) = four_lanes(thread_of_warp(t), n, [=](float s, Index i) { return V::add(s, as_float(xr[i])); });
      });
      block.fold_warps(sum);
    }
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = row_of(t);
      if (r >= x.rows) return;
      const T* const xr = x.row(r);
      if constexpr (kCentred) {
        const float m = V::div(sum(t), count);
        squares(t) = four_lanes(thread_of_warp(t), n, [=](float s, Index i) {
          const float d = V::sub(as_float(xr[i]), m);
          return V::fma(d, d, s);
        });
      } else {
        squares(t) = four_lanes(thread_of_warp(t), n, [=](float s, Index i) {
          const float v = as_float(xr[i]);
          return V::fma(v, v, s);
        });
      }
    });
    block.fold_warps(squares);
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = row_of(t);
      if (r >= x.rows) return;
      const float rs = math::inverse_sqrt<V>(V::add(V::div(squares(t), count), eps));
      const float m = kCentred ? V::div(sum(t), count) : 0.0F;
      if (thread_of_warp(t) == 0) {
        if (kCentred) mean[r] = m;
        rstd[r] = rs;
      }
      for (Index i = thread_of_warp(t); i < n; i += kWarp) {
        const float a = as_float(x(r, i)), g = as_float(gamma[i]);
        if constexpr (kCentred) {
          y(r, i) = from_float<T>(V::fma(V::mul(V::sub(a, m), rs), g, as_float(beta[i])));
        } else {
          y(r, i) = from_float<T>(V::mul(V::mul(a, rs), g));
        }
      }
    });
  }
};

// With g = dy * gamma and xhat = (x - mean) * rstd:  dx = (g - sum(g)/n - xhat * sum(g xhat)/n) * rstd; without the
// means for rms norm. dx may be residual.
template <bool kCentred, class T>
struct NormBackward {
  static constexpr int kThreads = kRowThreads;
  Mat<const T> dy, x;
  Vec<const T> gamma;
  Vec<const float> mean, rstd;
  Mat<const T> residual;
  Mat<T> dx;

  struct Row {
    const T *dy, *x, *gamma;
    float mean, rstd;
    SEEKSIM_BODY float g(Index i) const { return FloatOps::mul(as_float(dy[i]), as_float(gamma[i])); }
    SEEKSIM_BODY float xhat(Index i) const {
      if constexpr (kCentred) return FloatOps::mul(FloatOps::sub(as_float(x[i]), mean), rstd);
      return FloatOps::mul(as_float(x[i]), rstd);
    }
  };

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    const Index n = x.cols;
    const float count = V::from_int(static_cast<std::int32_t>(n));
    typename Block::template Local<float> sum, dot;
    const auto row_of = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    const auto values_of = [&](Index r) {
      return Row{dy.row(r), x.row(r), gamma.data, kCentred ? mean[r] : 0.0F, rstd[r]};
    };
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = row_of(t);
      if (r >= x.rows) return;
      const Row row = values_of(r);
      if constexpr (kCentred)
        sum(t) = four_lanes(thread_of_warp(t), n, [=](float s, Index i) { return V::add(s, row.g(i)); });
      dot(t) = four_lanes(thread_of_warp(t), n, [=](float s, Index i) { return V::fma(row.g(i), row.xhat(i), s); });
    });
    if constexpr (kCentred) block.fold_warps(sum);
    block.fold_warps(dot);
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = row_of(t);
      if (r >= x.rows) return;
      const Row row = values_of(r);
      const float g_mean = kCentred ? V::div(sum(t), count) : 0.0F, dot_mean = V::div(dot(t), count);
      for (Index i = thread_of_warp(t); i < n; i += kWarp) {
        const float g = kCentred ? V::sub(row.g(i), g_mean) : row.g(i);
        float d = V::mul(V::fma(math::negate<V>(row.xhat(i)), dot_mean, g), row.rstd);
        if (residual.data != nullptr) d = V::add(as_float(residual(r, i)), d);
        dx(r, i) = from_float<T>(d);
      }
    });
  }
};

// The addends of column sums: dy; dy and dy * xhat for layer norm; dy * xhat for rms norm.
enum class Columns { plain, centred, scaled };

// F1 over one segment of tokens of one sample, a column a thread. The node goes to plain, scaled (samples * segments of
// a sample, C). There are as many segments as fit in `tokens`, the last one short.
template <Columns kOf, class T>
struct SegmentChains {
  static constexpr int kThreads = 128;
  Mat<const T> dy, x;
  const float *mean, *rstd;
  Index tokens, segment, of_sample;
  float *plain, *scaled;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const Index all = dy.rows / tokens * of_sample;
    for (Index node = block.y(); node < all; node += block.blocks_y()) {
      block.threads([&](int t) SEEKSIM_PHASE {
        using V = FloatOps;
        const Index c = block.x() * kThreads + t;
        if (c >= dy.cols) return;
        const Index sample = node / of_sample * tokens, begin = node % of_sample * segment;
        const Index end = least(begin + segment, tokens);
        float sum = 0.0F, product = 0.0F;
        for (Index r = sample + begin; r < sample + end; ++r) {
          const float d = as_float(dy(r, c));
          if constexpr (kOf != Columns::scaled) sum = V::add(sum, d);
          if constexpr (kOf == Columns::centred)
            product = V::fma(d, V::mul(V::sub(as_float(x(r, c)), mean[r]), rstd[r]), product);
          if constexpr (kOf == Columns::scaled) product = V::fma(d, V::mul(as_float(x(r, c)), rstd[r]), product);
        }
        if constexpr (kOf != Columns::scaled) plain[node * dy.cols + c] = sum;
        if constexpr (kOf != Columns::plain) scaled[node * dy.cols + c] = product;
      });
    }
  }
};

// F3 over the segments of each sample, then over `samples` consecutive samples: row r of out (samples of nodes /
// samples, C). nodes as above.
struct FoldSegments {
  const float* nodes;
  Index of_sample, samples;
  Mat<float> out;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    Counter<kDeep> all;
    for (Index s = r * samples; s < (r + 1) * samples; ++s) {
      Counter<4> segments;
      for (Index g = 0; g < of_sample; ++g) segments.push(nodes[(s * of_sample + g) * out.cols + c]);
      all.push(segments.finish());
    }
    out(r, c) = all.finish();
  }
};

#include "kernels/cuda/logits.inl"

#include "kernels/cuda/folds.inl"
