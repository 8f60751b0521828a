// Operations of a step, against the formulas that papers give.
#include "harness/oracles/flops.h"

#include <gtest/gtest.h>

#include "runtime/layout/parameters.h"

namespace seeksim::harness {
namespace {

double flops_of(const runtime::ModelPlan& model) {
  double flops = 0;
  for (const ModuleFlops& one : flops_of_sample(model)) flops += one.flops;
  return flops;
}

// 6 a parameter of a matrix and token, and 12 * layers * width * context for attention (Chowdhery et al. 2022). The
// embeddings are looked up, the head is multiplied with: a tied one counts once.
double by_the_paper(const runtime::ModelPlan& model) {
  const runtime::Parameters parameters(model, false);
  double matrices = 0;
  for (const runtime::ParameterInfo& p : parameters.all()) {
    const bool looked_up = p.module == 0 && !(model.tied && p.part == int(runtime::EmbeddingPart::tokens));
    if (p.shape.size() > 1 && !looked_up) matrices += double(p.size);
  }
  return model.context * (6 * matrices + 12.0 * model.layers * model.width * model.context);
}

TEST(Flops, AreThoseOfThePapersFormula) {
  runtime::ModelPlan gpt2;
  gpt2.layers = 12, gpt2.width = 768, gpt2.heads = 12, gpt2.context = 1024, gpt2.vocab = 50257;
  EXPECT_DOUBLE_EQ(flops_of(gpt2), by_the_paper(gpt2));
  runtime::ModelPlan llama;
  llama.family = "llama", llama.tied = false;
  llama.layers = 3, llama.width = 64, llama.heads = 8, llama.kv_heads = 2, llama.ffn = 100;
  llama.context = 32, llama.vocab = 300;
  EXPECT_DOUBLE_EQ(flops_of(llama), by_the_paper(llama));
}

// A token goes to some of the experts only.
TEST(Flops, OfExpertsAreThoseOfTheChosenOnes) {
  runtime::ModelPlan model;
  model.family = "llama", model.tied = false, model.ffn = 48;
  const double dense = flops_of(model);
  model.experts.count = 8;
  model.experts.per_token = 2;
  const double mlp = 6.0 * model.layers * model.context * 3 * model.width * 48;
  const double router = 6.0 * model.layers * model.context * model.width * 8;
  EXPECT_DOUBLE_EQ(flops_of(model), dense + mlp + router);
}

TEST(Flops, OfADeepSeekCountSharedExpertsAndDenseLayers) {
  runtime::ModelPlan model;
  model.family = "llama", model.tied = false, model.ffn = 48, model.layers = 3;
  model.experts = {.count = 8, .per_token = 2};
  const double mixtral = flops_of(model), of_width = 6.0 * model.context * 3 * model.width;
  model.experts.shared = 1;
  EXPECT_DOUBLE_EQ(flops_of(model), mixtral + 3 * of_width * 48);
  const double all_routed = flops_of(model);
  model.experts.dense_layers = 1;  // as wide as two experts and the shared one: a router less
  EXPECT_DOUBLE_EQ(flops_of(model), all_routed - 6.0 * model.context * model.width * 8);
  model.experts.dense_ffn = 100;
  EXPECT_DOUBLE_EQ(flops_of(model), all_routed - 6.0 * model.context * model.width * 8 + of_width * (100 - 144));
}

TEST(Flops, OfAStepAreThoseOfItsSamples) {
  runtime::Definition definition;
  definition.global_batch = 12;
  EXPECT_DOUBLE_EQ(flops_of_step(definition), 12 * flops_of(definition.model));
}

}  // namespace
}  // namespace seeksim::harness
