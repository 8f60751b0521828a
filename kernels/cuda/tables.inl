// The launchers behind kernels/device_table.h, for any way to launch (those of products.inl are there). Included after
// rows.inl. A Launch is made for one operation:
//
//   Launch launch(lane);
//   launch(grid, kernel);                  every block of the grid
//   launch.scratch(floats)                 working memory, until the operation is over
//   launch.copy(from, to, bytes), launch.clear(to, bytes)

#include "kernels/cuda/experts.inl"

template <class Launch, class T>
struct Rows {
  static void layer_norm_forward(Lane lane, Mat<const T> x, Vec<const T> gamma, Vec<const T> beta, float eps, Mat<T> y,
                                 Vec<float> mean, Vec<float> rstd) {
    Launch launch(lane);
    by_warps(launch, x.rows, NormForward<true, T>{x, gamma, beta, eps, y, mean, rstd});
  }
  static void layer_norm_backward(Lane lane, Mat<const T> dy, Mat<const T> x, Vec<const T> gamma, Vec<const float> mean,
                                  Vec<const float> rstd, Mat<const T> residual, Mat<T> dx) {
    Launch launch(lane);
    by_warps(launch, x.rows, NormBackward<true, T>{dy, x, gamma, mean, rstd, residual, dx});
  }
  static void rms_norm_forward(Lane lane, Mat<const T> x, Vec<const T> gamma, float eps, Mat<T> y, Vec<float> rstd) {
    Launch launch(lane);
    by_warps(launch, x.rows, NormForward<false, T>{x, gamma, {}, eps, y, {}, rstd});
  }
  static void rms_norm_backward(Lane lane, Mat<const T> dy, Mat<const T> x, Vec<const T> gamma, Vec<const float> rstd,
                                Mat<const T> residual, Mat<T> dx) {
    Launch launch(lane);
    by_warps(launch, x.rows, NormBackward<false, T>{dy, x, gamma, {}, rstd, residual, dx});
  }
  template <Columns kOf>
  static void column_sums(Lane lane, Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd,
                          Index tokens, Index segment, Mat<float> plain, Mat<float> scaled) {
    Launch launch(lane);
    const Index of_sample = blocks_for(tokens, segment), samples = dy.rows / tokens, nodes = samples * of_sample;
    const Index rows = kOf == Columns::scaled ? scaled.rows : plain.rows;
    if (nodes == 0 || dy.cols == 0) return;
    SEEKSIM_CHECK(of_sample < 16, "%lld segments in a sample", static_cast<long long>(of_sample));
    float* const of_plain = launch.scratch(kOf == Columns::centred ? 2 * nodes * dy.cols : nodes * dy.cols);
    float* const of_scaled = kOf == Columns::centred ? of_plain + nodes * dy.cols : of_plain;
    using Chains = SegmentChains<kOf, T>;
    launch(Grid{blocks_for(dy.cols, Chains::kThreads), least(nodes, kMostBlocksY)},
           Chains{dy, x, mean, rstd, tokens, segment, of_sample, of_plain, of_scaled});
    const auto fold = [&](const float* from, Mat<float> to) {
      each(launch, rows, to.cols, FoldSegments{from, of_sample, samples / rows, to});
    };
    if constexpr (kOf != Columns::scaled) fold(of_plain, plain);
    if constexpr (kOf != Columns::plain) fold(of_scaled, scaled);
  }
  static void plain_sums(Lane lane, Mat<const T> dy, Index tokens, Index segment, Mat<float> plain) {
    column_sums<Columns::plain>(lane, dy, dy, nullptr, nullptr, tokens, segment, plain, {});
  }
  static void centred_sums(Lane lane, Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd,
                           Index tokens, Index segment, Mat<float> plain, Mat<float> scaled) {
    column_sums<Columns::centred>(lane, dy, x, mean, rstd, tokens, segment, plain, scaled);
  }
  static void scaled_sums(Lane lane, Mat<const T> dy, Mat<const T> x, const float* rstd, Index tokens, Index segment,
                          Mat<float> scaled) {
    column_sums<Columns::scaled>(lane, dy, x, nullptr, rstd, tokens, segment, {}, scaled);
  }
  static void softmax_cross_entropy(Lane lane, Mat<const T> logits, const std::int32_t* targets, float scale,
                                    float* losses, Mat<T> dlogits) {
    Launch launch(lane);
    if (logits.rows > 0) launch(Grid{logits.rows, 1}, SoftmaxCrossEntropy<T>{logits, targets, scale, losses, dlogits});
  }
  static void slice_maxima(Lane lane, Mat<const T> logits, Index vocabulary, Index first, const std::int32_t* targets,
                           float* maxima, float* at_target) {
    Launch launch(lane);
    if (logits.rows > 0)
      launch(Grid{logits.rows, 1}, SliceMaxima<T>{logits, first, vocabulary, targets, maxima, at_target});
  }
  static void slice_sums(Lane lane, Mat<const T> logits, Index segment, const float* maxima, float* sums) {
    Launch launch(lane);
    if (logits.rows > 0) launch(Grid{logits.rows, 1}, SliceSums<T>{logits, segment, maxima, sums});
  }
  static void slice_cross_entropy(Lane lane, Mat<const T> logits, Index vocabulary, Index first,
                                  const std::int32_t* targets, float scale, const float* maxima, const float* sums,
                                  const float* at_target, float* losses, Mat<T> dlogits) {
    Launch launch(lane);
    if (logits.rows > 0)
      launch(Grid{logits.rows, 1},
             SliceCrossEntropy<T>{logits, first, vocabulary, targets, scale, maxima, sums, at_target, losses, dlogits});
  }
  static void embedding_backward(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                                 Index first, Mat<const T> dx, Mat<float> dwte) {
    Launch launch(lane);
    static_assert(sizeof(std::int32_t) == sizeof(float));
    auto* const lists = reinterpret_cast<std::int32_t*>(launch.scratch(2 * tokens.n));
    launch(Grid{blocks_for(tokens.n, TokenLists::kThreads), 1},
           TokenLists{tokens, vocabulary, first, dwte.rows, lists, lists + tokens.n});
    clear_rows(launch, dwte);
    if (dx.cols == 0 || dwte.rows == 0) return;
    using Walk = EmbeddingBackward<T>;
    launch(Grid{blocks_for(dx.cols, Walk::kThreads), least(tokens.n, kMostBlocksY)},
           Walk{tokens, tokens_per_sample, first, dx, lists, lists + tokens.n, dwte});
  }
  // Rows of +0.
  static void clear_rows(Launch& launch, Mat<float> m) {
    if (m.stride == m.cols) return launch.clear(m.data, static_cast<std::size_t>(m.rows * m.cols) * sizeof(float));
    for (Index r = 0; r < m.rows; ++r) launch.clear(m.row(r), static_cast<std::size_t>(m.cols) * sizeof(float));
  }
  static void position_backward(Lane lane, Mat<const T> dx, Index tokens_per_sample, Mat<float> dwpe) {
    Launch launch(lane);
    each(launch, dwpe.rows, dwpe.cols, PositionBackward<T>{dx, tokens_per_sample, dwpe});
  }
  static void norm2_blocks(Lane lane, Vec<const T> x, Vec<float> out) {
    Launch launch(lane);
    by_warps(launch, out.n, Norm2Blocks<T>{x, out});
  }
  static void norm2_of_slabs(Lane lane, Vec<const T> x, Index slab, Vec<float> blocks, float* out) {
    Launch launch(lane);
    float* const slabs = launch.scratch(most(blocks_for(x.n, slab), 1));
    Index n = 0;
    for (Index at = 0; at < x.n; at += slab, ++n) {
      const Index size = least(slab, x.n - at);
      const Vec<float> of_slab{blocks.data, blocks_for(size, kBlock)};
      by_warps(launch, of_slab.n, Norm2Blocks<T>{{x.data + at, size}, of_slab});
      launch(Grid{1, 1}, TreeFold{{of_slab.data, 1, of_slab.n, of_slab.n}, of_slab.n, 1.0F, slabs + n});
    }
    launch(Grid{1, 1}, TreeFold{{slabs, 1, n, n}, most(n, 1), 1.0F, out});
  }
  static void count_nonfinite(Lane lane, Vec<const T> x, std::int64_t* out) {
    Launch launch(lane);
    constexpr Index kBlocks = 1024;
    if (x.n > 0)
      launch(Grid{least(kBlocks, blocks_for(x.n, CountNonfinite<T>::kThreads)), 1}, CountNonfinite<T>{x, out});
  }
  static void range(Lane lane, Mat<const T> x, TensorRange* out) {
    Launch launch(lane);
    const Index of_row = blocks_for(x.cols, kBlock), count = x.rows * of_row;
    static_assert(alignof(RangePart) <= 16 && sizeof(RangePart) % sizeof(float) == 0);
    auto* const parts = reinterpret_cast<RangePart*>(
        launch.scratch(most(count, 1) * static_cast<Index>(sizeof(RangePart) / sizeof(float))));
    by_warps(launch, count, RangeParts<T>{x, of_row, parts});
    each(launch, 1, 1, FoldRange{parts, count, x.rows * x.cols, out});
  }
  static void first_nonfinite(Lane lane, Mat<const T> x, std::int64_t* out) {
    Launch launch(lane);
    each(launch, 1, 1, SetNumber{out, 0, kNowhere, true});
    using Find = FirstNonfinite<T>;
    if (x.rows > 0 && x.cols > 0)
      launch(Grid{blocks_for(x.cols, Find::kThreads), least(x.rows, kMostBlocksY)}, Find{x, out});
    each(launch, 1, 1, SetNumber{out, kNowhere, -1, false});
  }
  static DeviceRows<T> table() {
    return {layer_norm_forward,
            layer_norm_backward,
            rms_norm_forward,
            rms_norm_backward,
            plain_sums,
            centred_sums,
            scaled_sums,
            softmax_cross_entropy,
            slice_maxima,
            slice_sums,
            slice_cross_entropy,
            embedding_backward,
            position_backward,
            norm2_blocks,
            norm2_of_slabs,
            count_nonfinite,
            range,
            first_nonfinite};
  }
};

template <class Launch, class T>
struct Elements {
  static void gelu_forward(Lane lane, Mat<const T> x, Mat<T> y) {
    Launch launch(lane);
    each_of(launch, GeluForward<T>{x, y}, x, y);
  }
  static void gelu_backward(Lane lane, Mat<const T> dy, Mat<const T> x, Mat<T> dx) {
    Launch launch(lane);
    each_of(launch, GeluBackward<T>{dy, x, dx}, dy, x, dx);
  }
  static void swiglu_forward(Lane lane, Index slab, Mat<const T> gate_up, Mat<T> y) {
    Launch launch(lane);
    each(launch, y.rows, y.cols, SwigluForward<T>{slab, gate_up, y});
  }
  static void swiglu_backward(Lane lane, Index slab, Mat<const T> dy, Mat<const T> gate_up, Mat<T> dgate_up) {
    Launch launch(lane);
    each(launch, dy.rows, dy.cols, SwigluBackward<T>{slab, dy, gate_up, dgate_up});
  }
  static void rotate(Lane lane, const AttentionShape& s, Mat<const float> angles, float turn, Mat<T> qkv) {
    Launch launch(lane);
    each(launch, qkv.rows, s.key_heads() * (s.group + 1) * (s.head_dim / 2), Rotate<T>{s, angles, turn, qkv});
  }
  static void add(Lane lane, Mat<const T> a, Mat<const T> b, Mat<T> y) {
    Launch launch(lane);
    each_of(launch, Add<T>{a, b, y}, a, b, y);
  }
  static void dropout(Lane lane, const Dropout& drop, Index tokens, Mat<const T> x, Mat<T> y, Index first_token) {
    Launch launch(lane);
    each(launch, x.rows, x.cols, DropOut<T>{drop, tokens, first_token, x, y});
  }
  static void embedding_forward(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                                Index first, Mat<const T> wte, Mat<const T> wpe, Mat<T> x) {
    Launch launch(lane);
    if (x.cols == 0) return;
    using Forward = EmbeddingForward<T>;
    launch(Grid{blocks_for(x.cols, Forward::kThreads), least(x.rows, kMostBlocksY)},
           Forward{tokens, tokens_per_sample, vocabulary, first, wte, wpe, x});
  }
  static void select_rows(Lane lane, Vec<const std::int32_t> tokens, Index vocabulary, Index rows_of_way,
                          Mat<const T> rows, Mat<T> out) {
    Launch launch(lane);
    if (out.rows == 0 || out.cols == 0) return;
    launch(Grid{blocks_for(out.cols, SelectRows<T>::kThreads), least(out.rows, kMostBlocksY)},
           SelectRows<T>{tokens, vocabulary, rows_of_way, rows, out});
  }
  static void add_ways(Lane lane, Mat<const float> nodes, Vec<const T> bias, Mat<T> y) {
    Launch launch(lane);
    each(launch, y.rows, y.cols, AddWays<T>{nodes, bias, y});
  }
  static void narrow(Lane lane, Vec<const float> x, Vec<T> y) {
    Launch launch(lane);
    each(launch, 1, x.n, Convert<float, T>{x, y});
  }
  static void widen(Lane lane, Vec<const T> x, Vec<float> y) {
    Launch launch(lane);
    each(launch, 1, x.n, Convert<T, float>{x, y});
  }
  static void round_through(Lane lane, Vec<float> x) {
    Launch launch(lane);
    each(launch, 1, x.n, RoundThrough<T>{x});
  }
  static void scale(Lane lane, Vec<T> x, float factor) {
    Launch launch(lane);
    each(launch, 1, x.n, ScaleStored<T>{x, factor});
  }
  static void move_mean(Lane lane, float weight, Vec<const T> x, Vec<float> mean) {
    Launch launch(lane);
    each(launch, 1, mean.n, MoveMean<T>{weight, x, mean});
  }
  // Calls loop.template operator()<Rule>() as the step asks.
  template <class Loop>
  static void by_rule(const OptimizerStep& step, Loop loop) {
    using V = FloatOps;
    const bool decays = step.weight_decay != 0.0F;
    if (step.rule == OptimizerRule::lion)
      return decays ? loop.template operator()<LionRule<V, true>>() : loop.template operator()<LionRule<V, false>>();
    if (step.rule == OptimizerRule::given)
      return decays ? loop.template operator()<GivenRule<V, true>>() : loop.template operator()<GivenRule<V, false>>();
    if (step.rule == OptimizerRule::sgd)
      return decays ? loop.template operator()<SgdRule<V, true, 0, false>>()
                    : loop.template operator()<SgdRule<V, false, 0, false>>();
    if (step.rule == OptimizerRule::momentum)
      return decays ? loop.template operator()<SgdRule<V, true, 1, false>>()
                    : loop.template operator()<SgdRule<V, false, 1, false>>();
    if (step.rule == OptimizerRule::nesterov)
      return decays ? loop.template operator()<SgdRule<V, true, 1, true>>()
                    : loop.template operator()<SgdRule<V, false, 1, true>>();
    if (step.rule == OptimizerRule::frozen)
      return decays ? loop.template operator()<FrozenRule<V, true>>() : loop.template operator()<FrozenRule<V, false>>();
    if (!decays) return loop.template operator()<AdamWRule<V, false, false>>();
    if (step.decoupled) return loop.template operator()<AdamWRule<V, true, true>>();
    loop.template operator()<AdamWRule<V, true, false>>();
  }
  template <class G>
  static void masters(Lane lane, const OptimizerStep& step, const G* grad, float* p, float* m, float* v, T* copy,
                      Index n) {
    Launch launch(lane);
    by_rule(step, [&]<class Rule>() { each(launch, 1, n, Optimize<Rule, G, T>{step, grad, p, m, v, copy}); });
  }
  template <class G>
  static void rounding(Lane lane, const OptimizerStep& step, const G* grad, T* p, float* m, float* v, Index n,
                       Stagnation* out) {
    Launch launch(lane);
    if (n == 0) return;
    constexpr Index kBlocks = 2048;
    by_rule(step, [&]<class Rule>() {
      using Kernel = OptimizeRounding<Rule, G, T>;
      launch(Grid{least(kBlocks, blocks_for(n, Kernel::kThreads)), 1}, Kernel{step, grad, p, m, v, n, out});
    });
  }
  static DeviceElements<T> table() {
    DeviceElements<T> t{
        gelu_forward,      gelu_backward, swiglu_forward, swiglu_backward, rotate, add,           dropout,
        embedding_forward, select_rows,   add_ways,       narrow,          widen,  round_through, scale,
        move_mean,         masters<float>, masters<T>,    nullptr,         nullptr};
    if constexpr (kIsHalf<T>) {
      t.optimize_rounding = rounding<float>;
      t.optimize_rounding_of_stored = rounding<T>;
    }
    return t;
  }
};

template <class Launch>
struct Common {
  static void unary(Lane lane, Unary f, Vec<const float> x, Vec<float> y) {
    Launch launch(lane);
    each(launch, 1, x.n, UnaryOf{f, x, y});
  }
  static void fill_bits(Lane lane, Vec<float> x, std::uint32_t bits) {
    Launch launch(lane);
    each(launch, 1, x.n, FillBits{x, bits});
  }
  static void fill_normal(Lane lane, Vec<float> out, std::uint32_t op, std::uint64_t first, float stddev,
                          std::uint64_t key) {
    Launch launch(lane);
    each(launch, 1, out.n, FillNormal{out, op, first, stddev, key});
  }
  static void logit_scale_forward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> logits) {
    Launch launch(lane);
    each_of(launch, LogitScale{raw, scale, logits}, raw, logits);
  }
  static void logit_scale_backward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> dlogits,
                                   Vec<float> dots, Index segment) {
    Launch launch(lane);
    if (raw.rows > 0) launch(Grid{raw.rows, 1}, LogitScaleBackward{raw, scale.data, dlogits, dots.data, segment});
  }
  static void expert_places(Lane lane, Vec<const std::int32_t> slots, Index of_sample, int own, Index places,
                            Vec<std::int32_t> sources, Vec<std::int32_t> experts) {
    Launch launch(lane);
    const Index samples = slots.n / of_sample;
    each(launch, sources.n / (samples * places), samples,
         ExpertPlaces{slots, of_sample, samples, own, places, sources, experts});
  }
  static void expert_accept(Lane lane, int own, Vec<std::int32_t> experts) {
    Launch launch(lane);
    each(launch, 1, experts.n, ExpertAccept{own, experts});
  }
  static void count_choices(Lane lane, Vec<const std::int32_t> slots, Vec<std::int32_t> counts) {
    Launch launch(lane);
    each(launch, 1, counts.n / 2, CountChoices{slots, counts});
  }
  static void route(Lane lane, const Router& r, Mat<const float> logits, const Routes& out) {
    Launch launch(lane);
    if (out.shares.rows > 0) launch(Grid{out.shares.rows, 1}, RouteSample{r, logits, out});
  }
  static void add_token_losses(Lane lane, Mat<const float> more, Vec<float> losses) {
    Launch launch(lane);
    each(launch, 1, losses.n, AddTokenLosses{more, losses});
  }
  static void add_samples(Lane lane, Mat<const float> nodes, Vec<float> out) {
    Launch launch(lane);
    each(launch, 1, out.n, AddSamples{nodes, nodes.cols / out.n, out});
  }
  static void max_over_ways(Lane lane, Mat<const float> values, Vec<float> out) {
    Launch launch(lane);
    each(launch, 1, out.n, MaxOverWays{values, out});
  }
  static void muon_direction(Lane lane, const MuonStep& step, Vec<float> m, Vec<float> x) {
    Launch launch(lane);
    each(launch, 1, x.n, MuonDirection{step, m, x});
  }
  static void scale_to_norm(Lane lane, Vec<const float> norm2, float least, Vec<float> x) {
    Launch launch(lane);
    each(launch, 1, x.n, ScaleToNorm{norm2, least, x});
  }
  static void weighted_sum(Lane lane, float a, Vec<const float> x, float b, Vec<float> y) {
    Launch launch(lane);
    each(launch, 1, y.n, WeightedSum{a, b, x, y});
  }
  static void tree_add(Lane lane, Vec<const float> left, Vec<const float> right, Vec<float> out) {
    Launch launch(lane);
    each(launch, 1, out.n, TreeAdd{left, right, out});
  }
  template <int kMost>
  static void parts_at_most(Lane lane, const float* const* parts, const int* adds_after, Index count, float* out,
                            Index n, float factor) {
    Launch launch(lane);
    TreeParts<kMost> kernel{};
    for (Index p = 0; p < count; ++p) {
      kernel.parts[p] = parts[p];
      kernel.adds[p] = static_cast<std::uint8_t>(adds_after[p]);
    }
    kernel.count = count;
    kernel.out = {out, n};
    kernel.factor = factor;
    each(launch, 1, n, kernel);
  }
  // The tree of 2, 4, 8, ... parts: after part p as many additions as p has ones at its end.
  static bool is_whole_tree(const int* adds_after, Index count) {
    for (Index p = 0; p < count; ++p) {
      int ones = 0;
      for (Index digits = p; (digits & 1) != 0; digits >>= 1) ++ones;
      if (adds_after[p] != ones) return false;
    }
    return (count & (count - 1)) == 0;
  }
  template <int kParts>
  static void whole_tree(Lane lane, const float* const* parts, float* out, Index n, float factor) {
    Launch launch(lane);
    WholeTree<kParts> kernel{};
    for (int p = 0; p < kParts; ++p) kernel.parts[p] = parts[p];
    kernel.out = {out, n};
    kernel.factor = factor;
    each(launch, 1, n, kernel);
  }
  static void tree_parts(Lane lane, const float* const* parts, const int* adds_after, Index count, float* out, Index n,
                         float factor) {
    constexpr int kFew = 32, kSome = 256, kMany = 2048;  // a kernel's arguments may take 32,764 bytes
    SEEKSIM_CHECK(count <= kMany, "a tree of %lld parts", static_cast<long long>(count));
    if (is_whole_tree(adds_after, count)) {
      if (count == 2) return whole_tree<2>(lane, parts, out, n, factor);
      if (count == 4) return whole_tree<4>(lane, parts, out, n, factor);
      if (count == 8) return whole_tree<8>(lane, parts, out, n, factor);
      if (count == 16) return whole_tree<16>(lane, parts, out, n, factor);
    }
    if (count <= kFew) return parts_at_most<kFew>(lane, parts, adds_after, count, out, n, factor);
    if (count <= kSome) return parts_at_most<kSome>(lane, parts, adds_after, count, out, n, factor);
    parts_at_most<kMany>(lane, parts, adds_after, count, out, n, factor);
  }
  static void tree_fold(Lane lane, Mat<const float> values, Index segment, float factor, float* out) {
    Launch launch(lane);
    if (values.rows > 0) launch(Grid{values.rows, 1}, TreeFold{values, segment, factor, out});
  }
  static void copy(Lane lane, const void* from, void* to, std::size_t bytes) {
    Launch launch(lane);
    if (bytes > 0) launch.copy(from, to, bytes);
  }
  static void clear(Lane lane, void* to, std::size_t bytes) {
    Launch launch(lane);
    if (bytes > 0) launch.clear(to, bytes);
  }
  static DeviceCommon table() {
    return {unary,
            fill_bits,
            fill_normal,
            logit_scale_forward,
            logit_scale_backward,
            route,
            expert_places,
            expert_accept,
            count_choices,
            add_token_losses,
            add_samples,
            max_over_ways,
            muon_direction,
            scale_to_norm,
            weighted_sum,
            tree_add,
            tree_parts,
            tree_fold,
            copy,
            clear};
  }
};
