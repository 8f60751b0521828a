// The scale of the logits against its definition, on every instruction set.
#include "kernels/logit_scale.h"

#include "kernels/layer_norm.h"
#include "kernels/tree.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

class LogitScale : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(LogitScale);

TEST_P(LogitScale, ForwardAndBackwardAreTheWrittenSequence) {
  Rng rng(11);
  for (const std::size_t v : {1, 7, 8, 9, 37, 128, 250, 256, 1024, 1031, 2100}) {
    const std::size_t rows = 3, stride = v + 2;
    const Floats raw = tames(rng, rows * stride), scale = {1.37F}, start = tames(rng, rows * v);
    Floats logits(rows * v), d = start, dots(rows), want(rows * v), want_d(rows * v), want_dots(rows);
    logit_scale_forward({}, mat(raw, rows, v, stride), vec(scale), mat(logits, rows, v));
    logit_scale_backward({}, mat(raw, rows, v, stride), vec(scale), mat(d, rows, v), vec(dots));
    const std::size_t slab = (v + 7) / 8;
    for (std::size_t r = 0; r < rows; ++r) {
      Floats slabs;
      for (std::size_t begin = 0; begin < v; begin += slab) {
        slabs.push_back(lanes(std::min(slab, v - begin), [&](float s, std::size_t i) {
          const float product = start[r * v + begin + i] * raw[r * stride + begin + i];
          return s + product;
        }));
      }
      want_dots[r] = tree_fold(vec(slabs));
      for (std::size_t i = 0; i < v; ++i) {
        want[r * v + i] = raw[r * stride + i] * 1.37F;
        want_d[r * v + i] = start[r * v + i] * 1.37F;
      }
    }
    ASSERT_EQ(difference(logits, want), "") << v;
    ASSERT_EQ(difference(d, want_d), "") << v;
    ASSERT_EQ(difference(dots, want_dots), "") << v;
  }
}

// The whole gradient of the scalar: rows' dots, then bias_grad over one column.
TEST_P(LogitScale, SumOverTokensIsThatOfABiasOfOneElement) {
  Rng rng(12);
  for (const std::size_t tokens : {1, 5, 8, 16, 37}) {
    const std::size_t samples = 3, segment = (tokens + 7) / 8;
    const Floats dots = tames(rng, samples * tokens);
    Floats got(1), leaves;
    bias_grad({}, mat(dots, samples * tokens, 1), Index(tokens), vec(got));
    for (std::size_t s = 0; s < samples; ++s) {
      Floats segments;
      for (std::size_t begin = 0; begin < tokens; begin += segment) {
        float sum = 0;
        for (std::size_t t = begin; t < std::min(begin + segment, tokens); ++t) sum += dots[s * tokens + t];
        segments.push_back(sum);
      }
      leaves.push_back(tree_fold(vec(segments)));
    }
    ASSERT_EQ(difference(got, {tree_fold(vec(leaves))}), "") << tokens;
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
