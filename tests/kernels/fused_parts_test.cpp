// Chunks of queries against chunks of keys, joined by the tree over chunks, against fused attention of whole samples:
// the same bits, on every instruction set, stored in every type; and the mistakes that must be seen.

#include <algorithm>

#include "kernels/cast.h"
#include "kernels/fused_attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

struct ChunkCase {
  std::size_t b, chunk, chunks, h, d, g;
  AttentionCase whole() const { return {b, chunk * chunks, h, d, g}; }
  AttentionCase part() const { return {b, chunk, h, d, g}; }
  std::size_t keys() const { return h / g * 2 * d; }
};
const ChunkCase kChunkCases[] = {{1, 32, 2, 1, 4, 1}, {2, 32, 4, 2, 8, 1},   {1, 32, 8, 3, 5, 3}, {1, 64, 4, 4, 16, 2},
                                 {2, 64, 2, 2, 3, 2}, {1, 128, 2, 1, 12, 1}, {1, 32, 1, 2, 8, 1}, {1, 32, 5, 2, 33, 2}};

template <class T>
std::vector<T> to_stored(const Floats& x) {
  std::vector<T> y(x.size());
  narrow<T>({}, {x.data(), Index(x.size())}, {y.data(), Index(y.size())});
  return y;
}
template <class T>
Floats as_floats(const std::vector<T>& x) {
  Floats y(x.size());
  widen<T>({}, {x.data(), Index(x.size())}, {y.data(), Index(y.size())});
  return y;
}

// What may be done wrong with the nodes.
struct PartMistake {
  bool chain = false;       // chunks are joined one after the other
  bool no_offset = false;   // dropout counts from the first key of a chunk
  bool all_before = false;  // a chunk's own keys are all seen
};

// Rows of one chunk, of all samples.
template <class V>
V chunk_rows(const ChunkCase& c, const V& all, std::size_t cols, std::size_t chunk) {
  V rows;
  for (std::size_t s = 0; s < c.b; ++s) {
    const auto first = all.begin() + std::ptrdiff_t((s * c.chunks + chunk) * c.chunk * cols);
    rows.insert(rows.end(), first, first + std::ptrdiff_t(c.chunk * cols));
  }
  return rows;
}

// F3 over the chunks [begin, begin + width) that there are: `join` adds the newer to the older.
template <class Join>
Floats chunk_tree(const std::vector<Floats>& leaves, std::size_t begin, std::size_t width, bool chain, Join join) {
  if (chain) {
    Floats sum;
    for (const Floats& leaf : leaves) {
      if (leaf.empty()) continue;
      if (sum.empty())
        sum = leaf;
      else
        join(sum, leaf);
    }
    return sum;
  }
  if (begin >= leaves.size()) return {};
  if (width == 1) return leaves[begin];
  Floats left = chunk_tree(leaves, begin, width / 2, false, join);
  const Floats right = chunk_tree(leaves, begin + width / 2, width / 2, false, join);
  if (left.empty()) return right;
  if (!right.empty()) join(left, right);
  return left;
}

template <class T>
struct InChunks {
  Floats stats;        // by chunk, sample, head, token
  std::vector<T> out;  // by chunk, sample, token
  Floats dq, dkv;      // likewise
};

template <class T>
InChunks<T> run_chunks(const ChunkCase& c, const std::vector<T>& qkv, const std::vector<T>& dout, const Dropout& drop,
                       const PartMistake& wrong = {}) {
  const AttentionCase part = c.part();
  const std::size_t rows = part.rows(), wide = c.h * c.d, state_columns = c.d + 2;
  std::vector<std::vector<T>> in(c.chunks), kv(c.chunks), go(c.chunks), out(c.chunks);
  for (std::size_t i = 0; i < c.chunks; ++i) {
    in[i] = chunk_rows(c, qkv, part.width(), i), go[i] = chunk_rows(c, dout, wide, i);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t k = 0; k < c.h / c.g; ++k) {
        const auto from = in[i].begin() + std::ptrdiff_t(r * part.width() + (k * (c.g + 2) + c.g) * c.d);
        kv[i].insert(kv[i].end(), from, from + std::ptrdiff_t(2 * c.d));
      }
  }
  const auto of = [rows](const std::vector<T>& v, std::size_t cols) {
    return Mat<const T>{v.data(), Index(rows), Index(cols), Index(cols)};
  };
  const auto place = [&](std::size_t q, std::size_t k) {
    return FusedPlace{Index(c.chunk * c.chunks), Index(q * c.chunk), wrong.no_offset ? 0 : Index(k * c.chunk),
                      k < q || wrong.all_before};
  };
  const std::size_t width = std::bit_ceil(c.chunks);
  InChunks<T> r;
  std::vector<std::vector<Floats>> dkv(c.chunks, std::vector<Floats>(c.chunks));
  for (std::size_t q = 0; q < c.chunks; ++q) {
    std::vector<Floats> states, dq;
    for (std::size_t k = 0; k <= q; ++k) {
      states.emplace_back(rows * c.h * state_columns, 7.0F);
      fused_part_forward<T>({}, part.shape(), place(q, k), of(in[q], part.width()), of(kv[k], c.keys()),
                            mat(states.back(), rows * c.h, state_columns), drop);
    }
    const Floats root = chunk_tree(states, 0, width, wrong.chain, [&](Floats& older, const Floats& newer) {
      fused_join({}, mat(newer, rows * c.h, state_columns), mat(older, rows * c.h, state_columns));
    });
    Floats stats(rows * c.h * 2, 7.0F);
    out[q].resize(rows * wide);
    fused_root<T>({}, part.shape(), mat(root, rows * c.h, state_columns), mat(stats, rows * c.h, 2),
                  {out[q].data(), Index(rows), Index(wide), Index(wide)});
    for (std::size_t k = 0; k <= q; ++k) {
      dq.emplace_back(rows * wide, 7.0F), dkv[k][q].assign(rows * c.keys(), 7.0F);
      fused_part_backward<T>({}, part.shape(), place(q, k), of(go[q], wide), of(in[q], part.width()),
                             of(kv[k], c.keys()), of(out[q], wide), mat(std::as_const(stats), rows * c.h, 2),
                             mat(dq.back(), rows, wide), mat(dkv[k][q], rows, c.keys()), drop);
    }
    const auto add = [](Floats& older, const Floats& newer) {
      for (std::size_t i = 0; i < older.size(); ++i) older[i] += newer[i];
    };
    const Floats sum = chunk_tree(dq, 0, width, wrong.chain, add);
    r.dq.insert(r.dq.end(), sum.begin(), sum.end());
    r.stats.insert(r.stats.end(), stats.begin(), stats.end());
    r.out.insert(r.out.end(), out[q].begin(), out[q].end());
  }
  for (std::size_t k = 0; k < c.chunks; ++k) {
    const Floats sum = chunk_tree(dkv[k], 0, width, wrong.chain, [](Floats& older, const Floats& newer) {
      for (std::size_t i = 0; i < older.size(); ++i) older[i] += newer[i];
    });
    r.dkv.insert(r.dkv.end(), sum.begin(), sum.end());
  }
  return r;
}

// The whole samples' results in the order of chunks; gradients in fp32, before they are rounded.
template <class T>
InChunks<T> run_whole(const ChunkCase& c, const std::vector<T>& qkv, const std::vector<T>& dout, const Dropout& drop) {
  const AttentionCase w = c.whole();
  const std::size_t wide = c.h * c.d, heads = w.b * w.h * w.t;
  Floats stats(heads * 2);
  std::vector<T> out(w.rows() * wide), dqkv(w.rows() * w.width());
  const Mat<const T> in{qkv.data(), Index(w.rows()), Index(w.width()), Index(w.width())},
      go{dout.data(), Index(w.rows()), Index(wide), Index(wide)};
  const auto of = [&](std::vector<T>& v, std::size_t cols) {
    return Mat<T>{v.data(), Index(w.rows()), Index(cols), Index(cols)};
  };
  fused_attention_forward<T>({}, w.shape(), in, mat(stats, heads, 2), of(out, wide), drop);
  fused_attention_backward<T>({}, w.shape(), go, in, Mat<const T>(of(out, wide)), mat(std::as_const(stats), heads, 2),
                              of(dqkv, w.width()), drop);
  InChunks<T> r;
  for (std::size_t i = 0; i < c.chunks; ++i) {
    const std::vector<T> y = chunk_rows(c, out, wide, i);
    const Floats d = as_floats(chunk_rows(c, dqkv, w.width(), i));
    r.out.insert(r.out.end(), y.begin(), y.end());
    for (std::size_t s = 0; s < c.b * c.h; ++s) {
      const auto from = stats.begin() + std::ptrdiff_t((s * w.t + i * c.chunk) * 2);
      r.stats.insert(r.stats.end(), from, from + std::ptrdiff_t(c.chunk * 2));
    }
    for (std::size_t at = 0; at < d.size(); at += (c.g + 2) * c.d)
      for (std::size_t e = 0; e < (c.g + 2) * c.d; ++e) (e < c.g * c.d ? r.dq : r.dkv).push_back(d[at + e]);
  }
  return r;
}

// What differs, of out, statistics, dq and dkv.
template <class T>
std::string unlike_whole(Rng& rng, const ChunkCase& c, const Dropout& drop, const PartMistake& wrong = {}) {
  const AttentionCase w = c.whole();
  const std::vector<T> qkv = to_stored<T>(uniforms(rng, w.rows() * w.width(), -3, 3)),
                       dout = to_stored<T>(uniforms(rng, w.rows() * c.h * c.d));
  const InChunks<T> have = run_chunks<T>(c, qkv, dout, drop, wrong), want = run_whole<T>(c, qkv, dout, drop);
  std::string all;
  if (difference(as_floats(have.out), as_floats(want.out)) != "") all += "out ";
  if (difference(have.stats, want.stats) != "") all += "stats ";
  if (difference(as_floats(to_stored<T>(have.dq)), want.dq) != "") all += "dq ";
  if (difference(as_floats(to_stored<T>(have.dkv)), want.dkv) != "") all += "dkv ";
  return all;
}

class FusedParts : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(FusedParts);

TEST_P(FusedParts, JoinedTheyHaveTheBitsOfWholeSamples) {
  Rng rng(21);
  for (const ChunkCase& c : kChunkCases) {
    for (const Dropout& drop : {Dropout{}, some_dropout(0.3)}) {
      const std::string what = std::to_string(c.chunk) + " x " + std::to_string(c.chunks);
      ASSERT_EQ(unlike_whole<float>(rng, c, drop), "") << what;
      ASSERT_EQ(unlike_whole<bf16>(rng, c, drop), "") << what << " bf16";
      ASSERT_EQ(unlike_whole<fp16>(rng, c, drop), "") << what << " fp16";
    }
  }
}

TEST_P(FusedParts, MistakesAreSeen) {
  Rng rng(22);
  const ChunkCase c{1, 32, 4, 2, 8, 1};
  EXPECT_EQ(unlike_whole<float>(rng, c, {}, {.chain = true}), "out stats dq dkv ");
  EXPECT_EQ(unlike_whole<float>(rng, c, {}, {.all_before = true}), "out stats dq dkv ");
  EXPECT_EQ(unlike_whole<float>(rng, c, {}, {.no_offset = true}), "") << "nothing is dropped";
  EXPECT_EQ(unlike_whole<float>(rng, c, some_dropout(0.3), {.no_offset = true}), "out dq dkv ");
}

TEST_P(FusedParts, ChunksThatAreNoNodesAreRefused) {
  const AttentionCase part{1, 96, 1, 4};
  Floats qkv(96 * 12), kv(96 * 8), state(96 * 6);
  const auto run = [&](std::size_t tokens, FusedPlace place) {
    AttentionShape shape = part.shape();
    shape.tokens = Index(tokens);
    fused_part_forward({}, shape, place, mat(std::as_const(qkv), tokens, 12), mat(std::as_const(kv), tokens, 8),
                       mat(state, tokens, 6));
  };
  EXPECT_NO_THROW(run(64, {128, 64, 0, true}));
  EXPECT_ANY_THROW(run(96, {192, 96, 0, true})) << "three blocks";
  EXPECT_ANY_THROW(run(40, {80, 40, 0, true})) << "no whole blocks";
  EXPECT_ANY_THROW(run(64, {128, 32, 0, true})) << "between two nodes";
}

}  // namespace
}  // namespace seeksim::kernels::test
