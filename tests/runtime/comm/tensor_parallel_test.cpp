// What ways of tensor parallelism exchange: put together it has the bits of one way, in worlds of 2, 4 and 8 ranks,
// with and without sequence parallelism; and the mistakes that must show.
#include "runtime/comm/tensor_parallel.h"

#include <gtest/gtest.h>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/random.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using kernels::Lane;
using kernels::Mat;
using kernels::Stretch;
using kernels::Trans;
using kernels::Vec;

constexpr Index kSamples = 3, kTokens = 15, kWidth = 20, kVocabulary = 23, kRows = kSamples * kTokens;
const TensorShape kShape{kSamples + 1, kTokens, kWidth, kVocabulary, false, true, 0, ElementType::f32};

// Normal numbers of a stream, rounded to S.
template <class S>
std::vector<S> numbers(Index n, std::uint32_t stream) {
  std::vector<float> wide(static_cast<std::size_t>(n));
  kernels::fill_normal({}, {wide.data(), n}, stream, 0, 1.0F, 5);
  std::vector<S> values(wide.size());
  kernels::narrow<S>({}, {wide.data(), n}, {values.data(), n});
  return values;
}
std::vector<std::int32_t> tokens_of(std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  for (Index r = 0; r < kRows; ++r) ids.push_back(std::int32_t((std::uint64_t(r) * 7919 + seed * 31) % kVocabulary));
  return ids;
}
template <class T>
Mat<const T> rows_of(const std::vector<T>& x, Index cols) {
  return {x.data(), Index(x.size()) / cols, cols, cols};
}
template <class T>
Mat<T> rows_of(std::vector<T>& x, Index cols) {
  return {x.data(), Index(x.size()) / cols, cols, cols};
}
template <class T>
Vec<const T> all_of(const std::vector<T>& x) {
  return {x.data(), Index(x.size())};
}

// What a test's body works with, on one way.
struct Way {
  Rank& rank;
  TensorAxis& axis;
  Launcher& launch;
  std::vector<BufferPtr> buffers = {};

  // Memory of the device that holds `values`.
  template <class T>
  Buffer& hold(const std::vector<T>& values) {
    buffers.push_back(
        rank.device.allocate(std::max<std::size_t>(values.size(), 1) * sizeof(T), MemoryTag::activations, "of a test"));
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(buffers.back()->data));
    return *buffers.back();
  }
};

struct Outcome {
  std::vector<std::vector<float>> results;  // by way
  std::size_t races = 0;
  std::string text = {};  // of the races
  std::vector<sim::CommUse> comm = {};
};

// Every way's `body(way)`, whose result is a matrix of S.
template <class S, class Body>
Outcome on_ways(int ways, bool sequence_parallel, const PlantedBug& bug, Body body) {
  Outcome outcome;
  outcome.results.resize(std::size_t(ways));
  sim::WorldPlan plan = world_of(ways);
  sim::World world(plan);
  const sim::WorldResult result = world.run([&](Rank& rank) {
    TensorShape shape = kShape;
    shape.sequence_parallel = sequence_parallel;
    shape.type = element_type<S>();
    TensorAxis axis(rank.device, shape, ways, rank.id, bug);
    axis.connect(rank, 0, rank.control.members(), kSecond, 0);
    Launcher launch(rank.device.compute_queue(), rank.id);
    launch.at(0, 0);
    Way way{rank, axis, launch};
    const MatView<S> out = body(way);
    axis.communicator()->wait(launch.queue().record(), axis.last_op());
    std::vector<float>& wide = outcome.results[std::size_t(rank.id)];
    wide.resize(std::size_t(out.rows * out.cols));
    kernels::widen<S>({}, {out.get().data, out.rows * out.cols}, {wide.data(), Index(wide.size())});
    rank.device.drain();
  });
  for (const sim::RankEnd& end : result.ranks) EXPECT_EQ(end.what, "");
  outcome.races = result.races.size();
  outcome.comm = result.comm;
  for (const sim::Race& race : result.races) outcome.text += race.text + "\n";
  return outcome;
}

// What a way should have of a matrix of all rows.
template <class S>
std::vector<float> share(const std::vector<S>& whole, Index cols, const TensorAxis& axis) {
  std::vector<float> rows;
  for (Index s = 0; s < kSamples; ++s) {
    const Stretch mine = axis.tokens();
    const Index first = rows.size(), n = mine.size * cols;
    rows.resize(std::size_t(first + n));
    kernels::widen<S>({}, {whole.data() + (s * kTokens + mine.first) * cols, n}, {rows.data() + first, n});
  }
  return rows;
}
template <class S>
void expect_shares(const Outcome& outcome, const std::vector<S>& whole, Index cols, bool sequence_parallel,
                   const char* what) {
  const int ways = int(outcome.results.size());
  sim::World world(world_of(1));
  world.run([&](Rank& rank) {
    for (int way = 0; way < ways; ++way) {
      TensorShape shape = kShape;
      shape.sequence_parallel = sequence_parallel;
      const TensorAxis axis(rank.device, shape, ways, way, {});
      EXPECT_EQ(outcome.results[std::size_t(way)], share(whole, cols, axis))
          << what << ", way " << way << " of " << ways;
    }
  });
  EXPECT_EQ(outcome.races, 0U) << what << "\n" << outcome.text;
}

// ---- the operations, each as a model would use it ------------------------------------------------------------------

constexpr Index kInner = 44;  // slabs of 6, the last one of 2

template <class S>
Outcome row_parallel(int ways, bool sequence_parallel, const PlantedBug& bug = {}) {
  const auto a = numbers<S>(kRows * kInner, 1), b = numbers<S>(kInner * kWidth, 2), bias = numbers<S>(kWidth, 3);
  return on_ways<S>(ways, sequence_parallel, bug, [&](Way& way) {
    const Stretch k = kernels::stretch_of_way(kInner, ways, way.axis.way());
    const MatView<const S> x{&way.hold(a), k.first, kRows, k.size, kInner},
        w = MatView<const S>{&way.hold(b), 0, kInner, kWidth, kWidth}.row_range(k.first, k.size);
    const auto product = [&] {
      way.launch(
          "product", SEEKSIM_SITE, {},
          [](Lane lane, Mat<const S> left, Mat<const S> right, Mat<float> node) {
            kernels::gemm<S, float>(lane, Trans::no, Trans::no, left, right, node, kernels::slab_size(kInner));
          },
          x, w, way.axis.node(kSamples));
    };
    const MatView<S> out = mat<S>(way.hold(numbers<S>(kRows * kWidth, 4)), 0, way.axis.rows(kSamples), kWidth);
    const VecView<const S> added = vec<const S>(way.hold(bias), 0, kWidth);
    // Twice: what an exchange left behind is used again.
    for (int again = 0; again < 2; ++again) {
      product();
      way.axis.sum_nodes<S>(way.launch, "product", SEEKSIM_SITE, kSamples, added, out);
    }
    return out;
  });
}
template <class S>
std::vector<S> whole_product() {
  const auto a = numbers<S>(kRows * kInner, 1), b = numbers<S>(kInner * kWidth, 2), bias = numbers<S>(kWidth, 3);
  std::vector<S> want(kRows * kWidth);
  kernels::gemm<S>({}, Trans::no, Trans::no, rows_of(a, kInner), rows_of(b, kWidth), rows_of(want, kWidth),
                   kernels::slab_size(kInner), all_of(bias));
  return want;
}

template <class S>
Outcome embedding(int ways, bool sequence_parallel) {
  const auto wte = numbers<S>(kVocabulary * kWidth, 6), wpe = numbers<S>(kTokens * kWidth, 7);
  return on_ways<S>(ways, sequence_parallel, {}, [&](Way& way) {
    const Stretch v = kernels::stretch_of_way(kVocabulary, ways, way.axis.way());
    const VecView<const std::int32_t> ids = vec<const std::int32_t>(way.hold(tokens_of(1)), 0, kRows);
    way.launch(
        "wte", SEEKSIM_SITE, {},
        [v](Lane lane, Vec<const std::int32_t> tokens, Mat<const S> table, Mat<const S> positions, Mat<S> x) {
          kernels::embedding_forward_slice<S>(lane, tokens, kTokens, kVocabulary, v.first, table, positions, x);
        },
        ids, MatView<const S>{&way.hold(wte), 0, kVocabulary, kWidth, kWidth}.row_range(v.first, v.size),
        MatView<const S>{&way.hold(wpe), 0, kTokens, kWidth, kWidth}, way.axis.embedded<S>(kSamples));
    const MatView<S> rows = mat<S>(way.hold(numbers<S>(kRows * kWidth, 4)), 0, way.axis.rows(kSamples), kWidth);
    way.axis.select_rows<S>(way.launch, "wte", SEEKSIM_SITE, kSamples, ids, rows);
    return rows;
  });
}

// The loss of each token in the first column, then the gradients of the way's logits.
template <class S>
std::pair<Outcome, Outcome> cross_entropy(int ways) {
  const auto logits = numbers<S>(kRows * kVocabulary, 8);
  std::vector<Outcome> outcomes;
  for (const bool losses_wanted : {true, false}) {
    outcomes.push_back(on_ways<S>(ways, false, {}, [&](Way& way) {
      const Stretch v = kernels::stretch_of_way(kVocabulary, ways, way.axis.way());
      std::vector<S> part;
      for (Index r = 0; r < kRows; ++r)
        part.insert(part.end(), logits.begin() + r * kVocabulary + v.first,
                    logits.begin() + r * kVocabulary + v.first + v.size);
      const MatView<S> mine = mat<S>(way.hold(part), 0, kRows, v.size);
      Buffer& losses = way.hold(std::vector<float>(kRows));
      way.axis.cross_entropy<S>(way.launch, kSamples, mine, vec<const std::int32_t>(way.hold(tokens_of(2)), 0, kRows),
                                0.5F, vec<float>(losses, 0, kRows));
      if (!losses_wanted) return mine;
      // As S, so that one result type serves both: exact for float, and equal on both sides else.
      const MatView<S> out = mat<S>(way.hold(std::vector<S>(kRows)), 0, kRows, 1);
      way.launch(
          "losses", SEEKSIM_SITE, {},
          [](Lane lane, Vec<const float> from, Mat<S> to) {
            kernels::narrow<S>(lane, from, {to.data, to.rows});
          },
          vec<const float>(losses, 0, kRows), out);
      return out;
    }));
  }
  return {std::move(outcomes[0]), std::move(outcomes[1])};
}

template <class S>
void expect_all(int ways) {
  for (const bool sequence_parallel : {false, true}) {
    expect_shares(row_parallel<S>(ways, sequence_parallel), whole_product<S>(), kWidth, sequence_parallel, "product");
    const auto wte = numbers<S>(kVocabulary * kWidth, 6), wpe = numbers<S>(kTokens * kWidth, 7);
    std::vector<S> x(kRows * kWidth);
    kernels::embedding_forward<S>({}, all_of(tokens_of(1)), kTokens, rows_of(wte, kWidth), rows_of(wpe, kWidth),
                                  rows_of(x, kWidth));
    expect_shares(embedding<S>(ways, sequence_parallel), x, kWidth, sequence_parallel, "embedding");
  }
  auto logits = numbers<S>(kRows * kVocabulary, 8);
  std::vector<float> losses(kRows);
  kernels::softmax_cross_entropy<S>({}, rows_of(std::as_const(logits), kVocabulary), all_of(tokens_of(2)), 0.5F,
                                    {losses.data(), kRows}, rows_of(logits, kVocabulary));
  const auto [got_losses, got_logits] = cross_entropy<S>(ways);
  std::vector<S> stored(kRows);
  kernels::narrow<S>({}, all_of(losses), {stored.data(), kRows});
  expect_shares(got_losses, stored, 1, false, "losses");
  for (int way = 0; way < ways; ++way) {
    const Stretch v = kernels::stretch_of_way(kVocabulary, ways, way);
    std::vector<float> want(std::size_t(kRows * v.size));
    for (Index r = 0; r < kRows; ++r)
      kernels::widen<S>({}, {logits.data() + r * kVocabulary + v.first, v.size}, {want.data() + r * v.size, v.size});
    EXPECT_EQ(got_logits.results[std::size_t(way)], want) << "way " << way << " of " << ways;
  }
  EXPECT_EQ(got_logits.races, 0U);
}

TEST(TensorAxis, PutsTogetherWhatOneWayComputes) {
  for (const int ways : {2, 4, 8}) {
    expect_all<float>(ways);
    expect_all<kernels::bf16>(ways);
    expect_all<kernels::fp16>(ways);
  }
}

TEST(TensorAxis, GathersRowsAndValuesOfAllWays) {
  const auto all = numbers<float>(kRows * kWidth, 9);
  for (const int ways : {2, 4, 8}) {
    const Outcome rows = on_ways<float>(ways, true, {}, [&](Way& way) {
      std::vector<float> mine;
      const Stretch t = way.axis.tokens();
      for (Index s = 0; s < kSamples; ++s)
        mine.insert(mine.end(), all.begin() + (s * kTokens + t.first) * kWidth,
                    all.begin() + (s * kTokens + t.first + t.size) * kWidth);
      const MatView<float> out = mat<float>(way.hold(numbers<float>(kRows * kWidth, 4)), 0, kRows, kWidth);
      way.axis.gather_rows<float>(way.launch, "rows", SEEKSIM_SITE, kSamples,
                                  mat<const float>(way.hold(mine), 0, way.axis.rows(kSamples), kWidth), out);
      return out;
    });
    for (const auto& result : rows.results) EXPECT_EQ(result, all);
    EXPECT_EQ(rows.races, 0U);
    const Outcome values = on_ways<float>(ways, false, {}, [&](Way& way) {
      way.launch(
          "values", SEEKSIM_SITE, {},
          [at = way.axis.way()](Lane, Vec<float> x) {
            for (Index i = 0; i < x.n; ++i) x[i] = float(100 * at + i);
          },
          way.axis.own_values(7));
      way.axis.gather_values(way.launch, "values", SEEKSIM_SITE, 7);
      const MatView<float> out = mat<float>(way.hold(std::vector<float>(std::size_t(ways) * 2)), 0, ways, 2);
      way.launch(
          "values", SEEKSIM_SITE, {},
          [](Lane, Mat<const float> from, Mat<float> to) {
            for (Index w = 0; w < to.rows; ++w) to(w, 0) = from(w, 0), to(w, 1) = from(w, 1);
          },
          way.axis.values(7, 3, 2), out);
      return out;
    });
    std::vector<float> want;
    for (int way = 0; way < ways; ++way) want.insert(want.end(), {float(100 * way + 3), float(100 * way + 4)});
    for (const auto& result : values.results) EXPECT_EQ(result, want);
  }
}

// A ring's all-reduce in two halves: every way sends, of what it does not own, its nodes, and of what it owns the rows.
TEST(TensorAxis, SendsTheBytesOfARing) {
  using S = kernels::bf16;
  for (const int ways : {2, 4, 8})
    for (const bool sequence_parallel : {false, true}) {
      const Outcome outcome = row_parallel<S>(ways, sequence_parallel);
      std::uint64_t nodes = 0, rows = 0;
      for (int way = 0; way < ways; ++way) {
        const Index own = sequence_parallel ? kSamples * kernels::stretch_of_way(kTokens, ways, way).size
                                            : kRows * (way + 1) / ways - kRows * way / ways;
        nodes = std::max(nodes, std::uint64_t(kRows - own) * kWidth * sizeof(float));
        rows = std::max(rows, std::uint64_t(own * (ways - 1)) * kWidth * sizeof(S));
      }
      constexpr std::uint64_t kTimes = 2;  // row_parallel does it again
      EXPECT_EQ(outcome.comm[std::size_t(OpKind::reduce_scatter)].bytes_sent_per_rank_max, kTimes * nodes) << ways;
      EXPECT_EQ(outcome.comm[std::size_t(OpKind::all_gather)].bytes_sent_per_rank_max,
                sequence_parallel ? 0 : kTimes * rows)
          << ways;
    }
}

TEST(TensorAxis, AWayThatIsLeftOutShows) {
  PlantedBug bug;
  bug.bug = Bug::lost_partial_sum;
  EXPECT_NE(row_parallel<float>(4, false, bug).results, row_parallel<float>(4, false).results);
}

TEST(TensorAxis, EveryWaitIsNeeded) {
  for (const Edge edge : {Edge::tensor_part_made, Edge::tensor_part_arrived})
    for (const bool sequence_parallel : {false, true}) {
      PlantedBug bug;
      bug.bug = Bug::skip_wait;
      bug.edge = edge;
      EXPECT_GT(row_parallel<float>(2, sequence_parallel, bug).races, 0U) << name(edge);
    }
}

TEST(TensorAxis, RefusesAWayWithoutVocabularyOrTokens) {
  sim::World world(world_of(1));
  world.run([&](Rank& rank) {
    TensorShape shape = kShape;
    shape.vocabulary = 4;
    EXPECT_ANY_THROW(TensorAxis(rank.device, shape, 8, 0, {}));
    shape = kShape;
    shape.tokens = 4;
    EXPECT_NO_THROW(TensorAxis(rank.device, shape, 8, 0, {}));
    shape.sequence_parallel = true;
    EXPECT_ANY_THROW(TensorAxis(rank.device, shape, 8, 0, {}));
  });
}

}  // namespace
}  // namespace seeksim::test
