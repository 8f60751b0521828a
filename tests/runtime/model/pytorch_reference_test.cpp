// seeksim against PyTorch in float64, on the same weights and batches. docs/goldens.md has the tolerances, what
// PyTorch's own float32 needs of them, and which mistakes they are known to catch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/files/safetensors.h"
#include "runtime/rules/mutants.h"
#include "tests/support/plans.h"

namespace seeksim::test {
namespace {

constexpr double kLossTolerance = 2e-6;                                   // relative
constexpr double kGradientTolerance = 1e-5;                               // of the tensor's largest
constexpr double kWeightTolerance = 5e-6;                                 // absolute
constexpr double kBf16LossTolerance = 8e-4, kBf16NormTolerance = 2.5e-3;  // relative
constexpr double kFp16LossTolerance = 6e-5, kFp16NormTolerance = 3e-4;

struct Reference {
  nlohmann::json config, expected;
  std::map<std::string, NamedTensor> gradients, final_weights;
  TrainPlan plan;
};

std::map<std::string, NamedTensor> load_tensors(const std::string& path) {
  std::map<std::string, NamedTensor> tensors;
  for (const TensorBytes& t : read_safetensors(read_file(path))) tensors[t.name] = to_floats(t);
  return tensors;
}

Reference load(const std::string& folder) {
  Reference r;
  r.config = nlohmann::json::parse(read_file(folder + "/config.json"));
  r.expected = nlohmann::json::parse(read_file(folder + "/expected.json"));
  r.gradients = load_tensors(folder + "/grads_step1.safetensors");
  r.final_weights = load_tensors(folder + "/final.safetensors");
  Definition& d = r.plan.definition;
  d.model.layers = r.config["layers"];
  d.model.width = r.config["width"];
  d.model.heads = r.config["heads"];
  d.model.context = r.config["context"];
  d.model.vocab = r.config["vocab"];
  d.model.tied = r.config["tied"];
  if (r.config.contains("family")) {
    d.model.family = r.config["family"];
    d.model.kv_heads = r.config["kv_heads"];
    d.model.ffn = r.config["ffn"];
    d.model.rope_theta = r.config["rope_theta"];
    d.model.norm_eps = r.config["norm_eps"];
  }
  d.optimizer.betas = {r.config["betas"][0], r.config["betas"][1]};
  d.optimizer.eps = r.config["eps"];
  d.optimizer.weight_decay = r.config["weight_decay"];
  d.optimizer.decay_all = r.config["decay"] == "all";
  d.gradient_clipping = r.config["grad_clip"];
  d.steps = std::int64_t(r.config["lr"].size());
  d.initial_weights = read_file(folder + "/init.safetensors");
  const TensorBytes tokens = read_safetensors(read_file(folder + "/batches.safetensors")).at(0);
  d.global_batch = int(tokens.shape[1]);
  d.data.tokens.resize(tokens.bytes.size() / 4);
  std::memcpy(d.data.tokens.data(), tokens.bytes.data(), tokens.bytes.size());
  d.scheduler.type = "table";
  d.scheduler.table = r.config["lr"].get<std::vector<double>>();
  return r;
}

class PyTorchReference : public testing::TestWithParam<const char*> {};

void expect_near_tensors(const std::map<std::string, NamedTensor>& expected, const std::vector<NamedTensor>& got,
                         double relative, double absolute, bool skip_key_bias) {
  ASSERT_EQ(expected.size(), got.size());
  for (const NamedTensor& tensor : got) {
    ASSERT_TRUE(expected.contains(tensor.name)) << tensor.name;
    const NamedTensor& want = expected.at(tensor.name);
    ASSERT_EQ(want.shape, tensor.shape) << tensor.name;
    double largest = 0, worst = 0;
    const std::size_t n = want.values.size();
    for (std::size_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::fabs(double(want.values[i])));
      // Softmax does not see the keys' bias: its true gradient is zero, and Adam divides noise by noise.
      const bool key = skip_key_bias && tensor.name.ends_with("c_attn.bias") && i >= n / 3 && i < 2 * n / 3;
      if (!key) worst = std::max(worst, std::fabs(double(want.values[i]) - double(tensor.values[i])));
    }
    EXPECT_LE(worst, relative * largest + absolute) << tensor.name;
  }
}

TEST_P(PyTorchReference, LossesNormsGradientsAndWeightsAgree) {
  Reference r = load(GetParam());
  const Trained run = run_alone(r.plan, 0);
  ASSERT_EQ(run.outcome.ending, Ending::finished) << run.outcome.why;
  const auto& steps = run.observer.steps.at(0);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double loss = r.expected["loss"][i], norm = r.expected["grad_norm"][i];
    EXPECT_NEAR(steps[i].loss, loss, kLossTolerance * loss) << "step " << i + 1;
    EXPECT_NEAR(steps[i].grad_norm, norm, kLossTolerance * norm) << "step " << i + 1;
  }
  expect_near_tensors(r.gradients, run.observer.kept_gradients.at(0), kGradientTolerance, 0, false);
  expect_near_tensors(r.final_weights, run.weights, 0, kWeightTolerance, true);
}

// 16-bit arithmetic of two programs, which round at different places: near, not equal. What they are apart was
// measured; the tolerances are about twice that (docs/goldens.md).
TEST_P(PyTorchReference, SixteenBitLossesAndNormsAreNear) {
  for (const ElementType type : {ElementType::bf16, ElementType::f16}) {
    Reference r = load(GetParam());
    const bool brain = type == ElementType::bf16;
    const std::string folder = GetParam();
    const auto expected =
        nlohmann::json::parse(read_file(folder + (brain ? "/expected_bfloat16.json" : "/expected_float16.json")));
    r.plan.definition.precision = {type, ElementType::f32, true};
    const Trained run = run_alone(r.plan, 0);
    ASSERT_EQ(run.outcome.ending, Ending::finished) << run.outcome.why;
    const auto& steps = run.observer.steps.at(0);
    ASSERT_EQ(steps.size(), expected["loss"].size());
    double worst_loss = 0, worst_norm = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double loss = expected["loss"][i], norm = expected["grad_norm"][i];
      worst_loss = std::max(worst_loss, std::fabs(steps[i].loss - loss) / loss);
      worst_norm = std::max(worst_norm, std::fabs(steps[i].grad_norm - norm) / norm);
      // And it is 16-bit arithmetic: not fp32's loss to seven digits.
      EXPECT_NE(steps[i].loss, float(r.expected["loss"][i])) << "step " << i + 1;
    }
    RecordProperty(brain ? "bf16_loss" : "fp16_loss", std::to_string(worst_loss));
    EXPECT_LE(worst_loss, brain ? kBf16LossTolerance : kFp16LossTolerance) << name(type);
    EXPECT_LE(worst_norm, brain ? kBf16NormTolerance : kFp16NormTolerance) << name(type);
  }
}

// Small mistakes in what only a Llama has must leave the tolerances.
TEST(PyTorchLlama, AnotherThetaOrEpsilonIsSeen) {
  const auto worst_gradient = [](const Reference& r) {
    const Trained run = run_alone(r.plan, 0);
    double worst = 0;
    for (const NamedTensor& tensor : run.observer.kept_gradients.at(0)) {
      const std::vector<float>& want = r.gradients.at(tensor.name).values;
      double largest = 0, off = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        largest = std::max(largest, std::fabs(double(want[i])));
        off = std::max(off, std::fabs(double(want[i]) - double(tensor.values[i])));
      }
      worst = std::max(worst, off / largest);
    }
    return worst;
  };
  Reference right = load("golden/pytorch/tiny_llama");
  right.plan.definition.steps = 1;
  EXPECT_LE(worst_gradient(right), kGradientTolerance);
  Reference theta = right, eps = right;
  theta.plan.definition.model.rope_theta = 10010;
  eps.plan.definition.model.norm_eps = 1e-6;
  EXPECT_GT(worst_gradient(theta), 10 * kGradientTolerance);
  EXPECT_GT(worst_gradient(eps), 10 * kGradientTolerance);
}

// ---- Muon ----------------------------------------------------------------------------------------------------------

constexpr double kMuonWeightTolerance = 2e-6;      // absolute; measured: 5e-7
constexpr double kMuonBf16LossTolerance = 1.5e-5;  // relative: PyTorch's own iteration, in bfloat16; measured: 7e-6

// torch.optim.Muon on the matrices of the same model, and AdamW on the rest (golden/pytorch/train_muon.py).
Reference load_muon(const std::string& model) {
  Reference r = load("golden/pytorch/" + model);
  const std::string folder = "golden/pytorch/muon_" + model;
  r.expected = nlohmann::json::parse(read_file(folder + "/expected.json"));
  r.final_weights = load_tensors(folder + "/final.safetensors");
  r.plan.definition.optimizer.type = "Muon";
  r.plan.definition.optimizer.momentum = r.expected["momentum"];
  return r;
}

double worst_weight(const Reference& r, const Trained& run) {
  double worst = 0;
  for (const NamedTensor& tensor : run.weights) {
    const std::vector<float>& want = r.final_weights.at(tensor.name).values;
    const std::size_t n = want.size();
    for (std::size_t i = 0; i < n; ++i) {
      const bool key = tensor.name.ends_with("c_attn.bias") && i >= n / 3 && i < 2 * n / 3;
      if (!key) worst = std::max(worst, std::fabs(double(want[i]) - double(tensor.values[i])));
    }
  }
  return worst;
}

TEST(PyTorchMuon, LossesNormsAndWeightsAgree) {
  for (const char* model : {"tiny", "tiny_llama"}) {
    const Reference r = load_muon(model);
    const auto iterated_in_bf16 =
        nlohmann::json::parse(read_file(std::string("golden/pytorch/muon_") + model + "/expected_bfloat16.json"));
    const Trained run = run_alone(r.plan, 0);
    ASSERT_EQ(run.outcome.ending, Ending::finished) << run.outcome.why;
    const auto& steps = run.observer.steps.at(0);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double loss = r.expected["loss"][i], norm = r.expected["grad_norm"][i];
      EXPECT_NEAR(steps[i].loss, loss, kLossTolerance * loss) << model << " step " << i + 1;
      EXPECT_NEAR(steps[i].grad_norm, norm, kLossTolerance * norm) << model << " step " << i + 1;
      const double rounded = iterated_in_bf16["loss"][i];
      EXPECT_NEAR(steps[i].loss, rounded, kMuonBf16LossTolerance * rounded) << model << " step " << i + 1;
    }
    ASSERT_EQ(r.final_weights.size(), run.weights.size());
    EXPECT_LE(worst_weight(r, run), kMuonWeightTolerance) << model;
  }
}

// Each mistake in it leaves the tolerance.
TEST(PyTorchMuon, MistakesAreSeen) {
  for (const char* model : {"tiny", "tiny_llama"}) {
    for (const Mutant mutant :
         {Mutant::muon_without_look_ahead, Mutant::muon_moves_by_momentum, Mutant::muon_one_round_less,
          Mutant::muon_scale_turned, Mutant::muon_decays_by_scaled_rate}) {
      Reference r = load_muon(model);
      r.plan.bug.mutant = mutant;
      EXPECT_GT(worst_weight(r, run_alone(r.plan, 0)), 5 * kMuonWeightTolerance) << model << ' ' << info(mutant).name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PyTorchReference,
                         testing::Values("golden/pytorch/tiny", "golden/pytorch/tiny_untied",
                                         "golden/pytorch/tiny_llama", "golden/pytorch/tiny_llama_tied"));

}  // namespace
}  // namespace seeksim::test
