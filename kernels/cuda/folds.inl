// Folds, sums of squares, counts, ranges, and the gradients of embedding tables. Part of rows.inl.

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
