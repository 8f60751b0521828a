// Kernels that work along rows: norms, softmax cross-entropy, sums of squares, folds. A row sum (F4) is a warp's.
// Included after elements.inl.

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

// ---- softmax cross-entropy: eight warps, one a segment of the vocabulary ----

constexpr int kTokenThreads = kWarp * static_cast<int>(kSlabs);

SEEKSIM_HD float token_loss(float sum, float max, float at_target) {
  return FloatOps::sub(FloatOps::add(math::log<FloatOps>(sum), max), at_target);
}

// The steps of kernels on rows of logits. Each warp has one segment of [0, n). shared: 8 floats.
template <class T>
struct TokenRow {
  const T* x;
  Index n, segment;

  SEEKSIM_BODY float e(Index i, float max) const { return math::exp<FloatOps>(FloatOps::sub(as_float(x[i]), max)); }

  // F5; -infinity where n is 0. Every thread gets it.
  template <class Block, class Local>
  SEEKSIM_BODY void maximum(Block& block, float* shared, Local& max) const {
    block.threads([&](int t) SEEKSIM_PHASE {
      float m = FloatOps::from_bits(0xff800000U);
      for (Index i = t; i < n; i += kTokenThreads) {
        const float v = as_float(x[i]);
        m = v > m ? v : m;
      }
      max(t) = m;
    });
    block.max_of_warps(max);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (thread_of_warp(t) == 0) shared[t / kWarp] = max(t);
    });
    block.threads([&](int t) SEEKSIM_PHASE {
      float m = shared[0];
      for (int w = 1; w < static_cast<int>(kSlabs); ++w) m = shared[w] > m ? shared[w] : m;
      max(t) = m;
    });
  }
  // F4 of e inside a segment, F3 over the segments. Every thread gets it. n > 0.
  template <class Block, class Local>
  SEEKSIM_BODY void sum(Block& block, float* shared, Local& max, Local& sums) const {
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index begin = t / kWarp * segment, size = least(segment, n - begin);
      const float m = max(t);
      sums(t) =
          four_lanes(thread_of_warp(t), size, [&](float s, Index i) { return FloatOps::add(s, e(begin + i, m)); });
    });
    gather(block, shared, sums);
  }
  // From each warp's lanes to the tree over the segments that have any elements.
  template <class Block, class Local>
  SEEKSIM_BODY void gather(Block& block, float* shared, Local& sums) const {
    block.fold_warps(sums);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (thread_of_warp(t) == 0) shared[t / kWarp] = sums(t);
    });
    block.threads([&](int t) SEEKSIM_PHASE {
      Counter<4> tree;
      for (Index w = 0; w * segment < n; ++w) tree.push(shared[w]);
      sums(t) = tree.finish();
    });
  }
  // d = (e / sum - onehot(target)) * scale; d may be x. A target outside of [0, n) is not in this row.
  SEEKSIM_BODY float gradient(Index i, float max, float inverse, float scale, Index target) const {
    const float p = FloatOps::mul(e(i, max), inverse);
    return FloatOps::mul(i == target ? FloatOps::sub(p, 1.0F) : p, scale);
  }
};

template <class T>
struct SoftmaxCrossEntropy {
  static constexpr int kThreads = kTokenThreads;
  Mat<const T> logits;
  const std::int32_t* targets;
  float scale;
  float* losses;
  Mat<T> dlogits;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    float* const shared = block.template shared<float, static_cast<int>(kSlabs)>();
    const Index r = block.x(), n = logits.cols, target = targets[r];
    Block::demand(target >= 0 && target < n);
    const TokenRow<T> row{logits.row(r), n, slab_size(n)};
    typename Block::template Local<float> max, sum;
    row.maximum(block, shared, max);
    row.sum(block, shared, max, sum);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t == 0) losses[r] = token_loss(sum(t), max(t), as_float(row.x[target]));
    });
    if (dlogits.data == nullptr) return;
    block.threads([&](int t) SEEKSIM_PHASE {
      const float inverse = FloatOps::div(1.0F, sum(t));
      for (Index i = t; i < n; i += kThreads)
        dlogits(r, i) = from_float<T>(row.gradient(i, max(t), inverse, scale, target));
    });
  }
};

template <class T>
struct SliceMaxima {
  static constexpr int kThreads = kTokenThreads;
  Mat<const T> logits;
  Index first, vocabulary;
  const std::int32_t* targets;
  float *maxima, *at_target;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    float* const shared = block.template shared<float, static_cast<int>(kSlabs)>();
    const Index r = block.x();
    Block::demand(targets[r] >= 0 && targets[r] < vocabulary);
    const TokenRow<T> row{logits.row(r), logits.cols, 1};
    typename Block::template Local<float> max;
    row.maximum(block, shared, max);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t != 0) return;
      const Index target = targets[r] - first;
      maxima[r] = max(t);
      at_target[r] = target >= 0 && target < logits.cols ? as_float(row.x[target]) : not_a_number();
    });
  }
};

template <class T>
struct SliceSums {
  static constexpr int kThreads = kTokenThreads;
  Mat<const T> logits;
  Index segment;
  const float* maxima;
  float* sums;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    float* const shared = block.template shared<float, static_cast<int>(kSlabs)>();
    const Index r = block.x();
    const TokenRow<T> row{logits.row(r), logits.cols, segment};
    typename Block::template Local<float> max, sum;
    block.threads([&](int t) SEEKSIM_PHASE { max(t) = maxima[r]; });
    row.sum(block, shared, max, sum);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t == 0) sums[r] = logits.cols == 0 ? not_a_number() : sum(t);
    });
  }
};

template <class T>
struct SliceCrossEntropy {
  static constexpr int kThreads = kTokenThreads;
  Mat<const T> logits;
  Index first, vocabulary;
  const std::int32_t* targets;
  float scale;
  const float *maxima, *sums, *at_target;
  float* losses;
  Mat<T> dlogits;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const Index r = block.x(), n = logits.cols, target = targets[r] - first;
    Block::demand(targets[r] >= 0 && targets[r] < vocabulary);
    const TokenRow<T> row{logits.row(r), n, 1};
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t == 0) losses[r] = token_loss(sums[r], maxima[r], at_target[r]);
      const float inverse = FloatOps::div(1.0F, sums[r]);
      for (Index i = t; i < n; i += kThreads)
        dlogits(r, i) = from_float<T>(row.gradient(i, maxima[r], inverse, scale, target));
    });
  }
};

// dots: F4 of dlogits * raw, each product rounded, inside a segment, F3 over segments; then dlogits *= scale[0].
struct LogitScaleBackward {
  static constexpr int kThreads = kTokenThreads;
  Mat<const float> raw;
  const float* scale;
  Mat<float> dlogits;
  float* dots;
  Index segment;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    float* const shared = block.template shared<float, static_cast<int>(kSlabs)>();
    const Index r = block.x(), n = raw.cols;
    const TokenRow<float> row{raw.row(r), n, segment};
    typename Block::template Local<float> dot;
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index begin = t / kWarp * segment, size = least(segment, n - begin);
      dot(t) = four_lanes(thread_of_warp(t), size, [&](float s, Index i) {
        return FloatOps::add(s, FloatOps::mul(dlogits(r, begin + i), raw(r, begin + i)));
      });
    });
    row.gather(block, shared, dot);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t == 0) dots[r] = dot(t);
      for (Index i = t; i < n; i += kThreads) dlogits(r, i) = FloatOps::mul(dlogits(r, i), scale[0]);
    });
  }
};

// ---- folds, norms, counts ----

// F3 over values, in segments of `segment` (F3 inside each, then over them), times factor: row r of values to out[r].
// One block a row; 1024 leaves at a time, level by level.
struct TreeFold {
  static constexpr int kThreads = 256;
  static constexpr int kChunk = 1024;
  Mat<const float> values;
  Index segment;
  float factor;
  float* out;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    struct Trees {
      Counter<kDeep> chunks, segments;
    };
    float* const leaves = block.template shared<float, kChunk>();
    typename Block::template Local<Trees> trees;  // of thread 0
    const float* const row = values.row(block.x());
    for (Index begin = 0; begin < values.cols; begin += segment) {
      const Index end = least(begin + segment, values.cols);
      for (Index at = begin; at < end; at += kChunk) {
        const int n = static_cast<int>(least(kChunk, end - at));
        block.threads([&](int t) SEEKSIM_PHASE {
          for (int i = t; i < n; i += kThreads) leaves[i] = row[at + i];
        });
        for (int w = 1; w < n; w *= 2) {
          block.threads([&](int t) SEEKSIM_PHASE {
            for (int i = 2 * w * t; i + w < n; i += 2 * w * kThreads)
              leaves[i] = FloatOps::add(leaves[i], leaves[i + w]);
          });
        }
        block.threads([&](int t) SEEKSIM_PHASE {
          if (t == 0) trees(t).chunks.push(leaves[0]);
        });
      }
      block.threads([&](int t) SEEKSIM_PHASE {
        if (t == 0) trees(t).segments.push(trees(t).chunks.finish());
      });
    }
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t != 0) return;
      const float sum = trees(t).segments.finish();
      out[block.x()] = factor == 1.0F ? sum : FloatOps::mul(sum, factor);
    });
  }
};

// F4 of x^2 over each block of 1024 elements, a warp each.
template <class T>
struct Norm2Blocks {
  static constexpr int kThreads = kRowThreads;
  Vec<const T> x;
  Vec<float> out;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    typename Block::template Local<float> sum;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index b = number(t);
      if (b >= out.n) return;
      const T* const of_block = x.data + b * kBlock;
      sum(t) = four_lanes(thread_of_warp(t), least(kBlock, x.n - b * kBlock), [=](float s, Index i) {
        const float v = as_float(of_block[i]);
        return FloatOps::fma(v, v, s);
      });
    });
    block.fold_warps(sum);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (number(t) < out.n && thread_of_warp(t) == 0) out[number(t)] = sum(t);
    });
  }
};

template <class T>
struct CountNonfinite {
  static constexpr int kThreads = 256;
  Vec<const T> x;
  std::int64_t* out;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    block.threads([&](int t) SEEKSIM_PHASE {
      std::int64_t count = 0;
      for (Index i = block.x() * kThreads + t; i < x.n; i += block.blocks_x() * kThreads)
        count += is_finite(x[i]) ? 0 : 1;
      Block::add_to(out, count);
    });
  }
};

struct SetNumber {
  std::int64_t *at, before, value;  // at[0] = value if it is `before`, or always
  bool always;
  SEEKSIM_BODY void operator()(Index, Index) const {
    if (always || *at == before) *at = value;
  }
};
constexpr std::int64_t kNowhere = std::int64_t{1} << 62;

template <class T>
struct FirstNonfinite {
  static constexpr int kThreads = 256;
  Mat<const T> x;
  std::int64_t* out;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    for (Index r = block.y(); r < x.rows; r += block.blocks_y()) {
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index c = block.x() * kThreads + t;
        if (c < x.cols && !is_finite(x(r, c))) Block::least_of(out, r * x.cols + c);
      });
    }
  }
};

// ---- the range of a tensor: a warp a block of 1024 elements of a row, then one thread over the blocks ----

struct RangePart {
  float min, max, sum;
  std::int32_t zeros, subnormals, infinities, nans;
  std::int64_t first_nonfinite;
};

template <class T>
struct RangeParts {
  static constexpr int kThreads = kRowThreads;
  Mat<const T> x;
  Index of_row;  // blocks of a row
  RangePart* parts;

  static SEEKSIM_BODY void count(RangePart& p, float v, Index place) {
    const float a = FloatOps::from_bits(FloatOps::bits(v) & 0x7fffffffU);
    const float normal = std::is_same_v<T, fp16> ? 0x1p-14F : 0x1p-126F;
    if (a == 0.0F) {
      ++p.zeros;
    } else if (a < normal) {
      ++p.subnormals;
    }
    if (a < infinity()) {
      const float counted = FloatOps::add(v, 0.0F);  // +0 for -0
      p.min = counted < p.min ? counted : p.min;
      p.max = counted > p.max ? counted : p.max;
      return;
    }
    if (a != a) {
      ++p.nans;
    } else {
      ++p.infinities;
    }
    if (p.first_nonfinite < 0) p.first_nonfinite = place;
  }
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    typename Block::template Local<float> sum;
    RangePart* const of_thread = block.template shared<RangePart, kThreads>();
    const Index all = x.rows * of_row;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index b = number(t);
      if (b >= all) return;
      const Index r = b / of_row, begin = b % of_row * kBlock, n = least(kBlock, x.cols - begin);
      const T* const values = x.row(r) + begin;
      sum(t) = four_lanes(thread_of_warp(t), n, [=](float s, Index i) {
        const float v = as_float(values[i]);
        return FloatOps::add(s, is_finite(v) ? FloatOps::add(v, 0.0F) : 0.0F);
      });
      RangePart p{infinity(), math::negate<FloatOps>(infinity()), 0.0F, 0, 0, 0, 0, -1};
      for (Index i = thread_of_warp(t); i < n; i += kWarp) count(p, as_float(values[i]), r * x.cols + begin + i);
      of_thread[t] = p;
    });
    block.fold_warps(sum);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (number(t) >= all || thread_of_warp(t) != 0) return;
      RangePart p = of_thread[t];
      p.sum = sum(t);
      for (int i = 1; i < kWarp; ++i) add(p, of_thread[t + i]);
      parts[number(t)] = p;
    });
  }
  static SEEKSIM_BODY void add(RangePart& p, const RangePart& other) {
    p.min = other.min < p.min ? other.min : p.min;
    p.max = other.max > p.max ? other.max : p.max;
    p.zeros += other.zeros;
    p.subnormals += other.subnormals;
    p.infinities += other.infinities;
    p.nans += other.nans;
    const bool earlier = p.first_nonfinite < 0 || other.first_nonfinite < p.first_nonfinite;
    if (other.first_nonfinite >= 0 && earlier) p.first_nonfinite = other.first_nonfinite;
  }
};

struct FoldRange {
  const RangePart* parts;
  Index count, elements;
  TensorRange* out;
  SEEKSIM_BODY void operator()(Index, Index) const {
    TensorRange range;
    range.min = infinity();
    range.max = math::negate<FloatOps>(infinity());
    range.n = elements;
    Counter<kDeep> sums;
    for (Index i = 0; i < count; ++i) {
      const RangePart& p = parts[i];
      range.min = p.min < range.min ? p.min : range.min;
      range.max = p.max > range.max ? p.max : range.max;
      range.zeros += p.zeros;
      range.subnormals += p.subnormals;
      range.infinities += p.infinities;
      range.nans += p.nans;
      if (range.first_nonfinite < 0) range.first_nonfinite = p.first_nonfinite;
      sums.push(p.sum);
    }
    const float sum = sums.finish();
    const Index finite = range.n - range.infinities - range.nans;
    if (finite > 0) range.mean = FloatOps::div(sum, static_cast<float>(finite));
    *out = range;
  }
};

// ---- gradients of embedding tables ----

// For each row of dx, the next row of the same token, or -1, and whether it is the token's first. Rows of tokens that a
// slice of the table lacks are never first.
struct TokenLists {
  static constexpr int kThreads = 256;
  Vec<const std::int32_t> tokens;
  Index vocabulary, first, rows;
  std::int32_t *next, *begins;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = block.x() * kThreads + t;
      if (r >= tokens.n) return;
      const std::int32_t token = tokens[r];
      Block::demand(token >= 0 && token < vocabulary);
      Index before = 0, after = r + 1;
      while (before < r && tokens[before] != token) ++before;
      while (after < tokens.n && tokens[after] != token) ++after;
      next[r] = after < tokens.n ? static_cast<std::int32_t>(after) : -1;
      begins[r] = before == r && token >= first && token - first < rows ? 1 : 0;
    });
  }
};

// The level at which two samples meet.
SEEKSIM_HD int height(Index a, Index b) {
  int level = 0;
  for (auto differ = static_cast<std::uint64_t>(a ^ b); differ != 0; differ >>= 1) ++level;
  return level;
}

// F3 over samples of which only some have a leaf. Leaves and subtrees of +0 would change nothing (embedding.cpp), so
// they are left out. Leaves come in ascending order of samples.
struct SparseTree {
  float slots[kDeep];
  Index samples[kDeep];
  int top = 0;
  SEEKSIM_BODY void push(Index sample, float v) {
    while (top >= 2 && height(samples[top - 2], samples[top - 1]) < height(samples[top - 1], sample)) merge();
    samples[top] = sample;
    slots[top++] = v;
  }
  SEEKSIM_BODY void merge() {
    --top;
    slots[top - 1] = FloatOps::add(slots[top - 1], slots[top]);
  }
  SEEKSIM_BODY float finish() {
    while (top >= 2) merge();
    return slots[0];
  }
};

// Where a token begins, a block walks its rows, a column a thread: F1 in a sample, F3 over samples.
template <class T>
struct EmbeddingBackward {
  static constexpr int kThreads = 128;
  Vec<const std::int32_t> tokens;
  Index tokens_per_sample, first;
  Mat<const T> dx;
  const std::int32_t *next, *begins;
  Mat<float> dwte;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    for (Index r = block.y(); r < tokens.n; r += block.blocks_y()) {
      if (begins[r] == 0) continue;
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index c = block.x() * kThreads + t;
        if (c >= dx.cols) return;
        SparseTree tree;
        float leaf = 0.0F;
        for (Index at = r; at >= 0;) {
          leaf = FloatOps::add(leaf, as_float(dx(at, c)));
          const Index then = next[at], sample = at / tokens_per_sample;
          if (then < 0 || then / tokens_per_sample != sample) {
            tree.push(sample, leaf);
            leaf = 0.0F;
          }
          at = then;
        }
        dwte(tokens[r] - first, c) = tree.finish();
      });
    }
  }
};

// Row t gets the tree over samples of (+0 + dx[s, t]).
template <class T>
struct PositionBackward {
  Mat<const T> dx;
  Index tokens;
  Mat<float> dwpe;
  SEEKSIM_BODY void operator()(Index position, Index c) const {
    Counter<kDeep> samples;
    for (Index r = position; position < tokens && r < dx.rows; r += tokens)
      samples.push(FloatOps::add(0.0F, as_float(dx(r, c))));
    dwpe(position, c) = samples.finish();
  }
};
