// Kernels on rows of logits: softmax, cross-entropy and its gradient. Part of rows.inl.

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
