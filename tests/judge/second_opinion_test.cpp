// The reference itself: against PyTorch's stored values in float64, against finite differences, and its randomness
// against published vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/model.h"
#include "reference/parameters.h"
#include "reference/random.h"
#include "reference/run.h"
#include "reference/step.h"
#include "runtime/files/safetensors.h"
#include "tests/support/paths.h"

namespace seeksim::reference {
namespace {

using runtime::NamedTensor;

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// ---- PyTorch -------------------------------------------------------------------------------------------------------

struct Stored {
  Training training;
  FreeOptions options;
  nlohmann::json expected;
  std::map<std::string, NamedTensor> gradients, last;
};

std::map<std::string, NamedTensor> tensors_of(const std::string& file) {
  std::map<std::string, NamedTensor> tensors;
  for (const runtime::TensorBytes& t : runtime::read_safetensors(contents(file))) tensors[t.name] = to_floats(t);
  return tensors;
}

Stored load(const std::string& name) {
  const std::string folder = seeksim::paths::source_dir() + "/golden/pytorch/" + name;
  const auto config = nlohmann::json::parse(contents(folder + "/config.json"));
  Stored s;
  Training& t = s.training;
  Model& m = t.model;
  m.llama = config.contains("family");
  m.L = config["layers"], m.C = config["width"], m.H = config["heads"], m.T = config["context"], m.V = config["vocab"];
  m.tied = config["tied"];
  m.K = m.llama ? int(config["kv_heads"]) : m.H, m.F = m.llama ? int(config["ffn"]) : 4 * m.C;
  if (m.llama) m.rope_theta = config["rope_theta"], m.norm_eps = config["norm_eps"];
  t.optimizer = {
      true, 0, config["betas"][0], config["betas"][1], config["eps"], config["weight_decay"], config["decay"] == "all"};
  t.schedule.type = "table", t.schedule.table = config["lr"].get<std::vector<double>>();
  t.clipping = config["grad_clip"];
  t.compute = t.gradients = Type::f64;
  t.steps = std::int64_t(t.schedule.table.size());
  const runtime::TensorBytes tokens = runtime::read_safetensors(contents(folder + "/batches.safetensors")).at(0);
  t.batch = int(tokens.shape[1]);
  t.data.tokens.resize(tokens.bytes.size() / sizeof(std::int32_t));
  std::memcpy(t.data.tokens.data(), tokens.bytes.data(), tokens.bytes.size());
  const auto first = tensors_of(folder + "/init.safetensors");
  for (const Parameter& p : parameters_of(m)) {
    const std::vector<float>& values = first.at(p.name).values;
    s.options.first_weights.emplace_back(values.begin(), values.end());
  }
  s.expected = nlohmann::json::parse(contents(folder + "/expected.json"));
  s.gradients = tensors_of(folder + "/grads_step1.safetensors");
  s.last = tensors_of(folder + "/final.safetensors");
  return s;
}

double worst_weight(const Stored& s, const FreeRun& run) {
  const std::vector<Parameter> parameters = parameters_of(s.training.model);
  double worst = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float>& want = s.last.at(parameters[i].name).values;
    for (std::size_t k = 0; k < want.size(); ++k) {
      // Softmax does not see the keys' bias: its true gradient is 0, and Adam divides noise by noise.
      const bool key = parameters[i].part == Part::qkv_bias && k / (want.size() / 3) == 1;
      if (!key) worst = std::max(worst, std::abs(double(want[k]) - run.weights[i][k]));
    }
  }
  return worst;
}

class StoredByPyTorch : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, StoredByPyTorch,
                         testing::Values("tiny", "tiny_untied", "tiny_llama", "tiny_llama_tied"));

TEST_P(StoredByPyTorch, TenStepsAreTheSame) {
  const Stored s = load(GetParam());
  const FreeRun run = run_freely(s.training, s.options);
  for (std::size_t i = 0; i < run.loss.size(); ++i) {
    const double loss = s.expected["loss"][i], norm = s.expected["grad_norm"][i];
    EXPECT_NEAR(run.loss[i], loss, 1e-6 * loss) << "step " << i + 1;
    EXPECT_NEAR(run.norm[i], norm, 1e-6 * norm) << "step " << i + 1;
  }
  EXPECT_LE(worst_weight(s, run), 5e-6);
}

// torch.optim.Muon on the matrices of the same models, its iteration in float64 (golden/pytorch/train_muon.py).
TEST(StoredByMuon, TenStepsAreTheSame) {
  for (const char* name : {"tiny", "tiny_llama"}) {
    Stored s = load(name);
    const std::string folder = seeksim::paths::source_dir() + "/golden/pytorch/muon_" + name;
    s.expected = nlohmann::json::parse(contents(folder + "/expected.json"));
    s.last = tensors_of(folder + "/final.safetensors");
    s.training.optimizer.muon = true;
    s.training.optimizer.momentum = s.expected["momentum"];
    EXPECT_LE(worst_weight(s, run_freely(s.training, s.options)), 2e-6) << name;
    s.training.optimizer.momentum *= 0.99;
    EXPECT_GT(worst_weight(s, run_freely(s.training, s.options)), 2e-5) << name << ", another momentum";
  }
}

TEST_P(StoredByPyTorch, GradientsOfTheFirstStepAreTheSame) {
  const Stored s = load(GetParam());
  const std::vector<Parameter> parameters = parameters_of(s.training.model);
  const auto values = losses_and_gradients<double>(s.training, parameters, s.options.first_weights,
                                                   tokens_of_step(s.training, 0), 0, 1);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float>& want = s.gradients.at(parameters[i].name).values;
    double largest = 0, worst = 0;
    for (std::size_t k = 0; k < want.size(); ++k) {
      largest = std::max(largest, std::abs(double(want[k])));
      worst = std::max(worst, std::abs(double(want[k]) - values.gradients[i][k]));
    }
    EXPECT_LE(worst, 1e-6 * largest + 1e-12) << parameters[i].name;
  }
}

// ---- finite differences --------------------------------------------------------------------------------------------

Training small(bool llama, bool tied, bool drops) {
  Training t;
  t.seed = 7, t.batch = 3;
  t.compute = t.gradients = Type::f64;
  Model& m = t.model;
  m.llama = llama, m.tied = tied;
  m.L = 2, m.C = 16, m.H = llama ? 4 : 2, m.K = 2, m.T = 8, m.V = 32, m.F = llama ? 24 : 64;
  if (drops) m.drop_embedding = 0.1, m.drop_attention = 0.2, m.drop_residual = 0.3;
  return t;
}

// Of a few elements of every parameter.
double worst_slope(const Training& t) {
  const std::vector<Parameter> parameters = parameters_of(t.model);
  std::vector<std::vector<double>> weights;
  for (const Parameter& p : parameters) weights.push_back(initial_values(t, p));
  const auto tokens = tokens_of_step(t, 0);
  const auto at = [&] { return losses_and_gradients<double>(t, parameters, weights, tokens, 0, 1); };
  const auto values = at();
  double worst = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const std::size_t k : {i * 37 % parameters[i].size(), i * 61 % parameters[i].size()}) {
      const double h = 1e-5, old = weights[i][k];
      weights[i][k] = old + h;
      const double above = at().loss;
      weights[i][k] = old - h;
      const double below = at().loss;
      weights[i][k] = old;
      const double slope = (above - below) / (2 * h);
      worst = std::max(worst, std::abs(slope - values.gradients[i][k]) / (std::abs(slope) + 1e-4));
    }
  }
  return worst;
}

// It decays all the same.
TEST(SecondOpinion, AMatrixOfOneColumnIsNoVector) {
  Model m;
  m.llama = true, m.L = 1, m.C = 4, m.H = 1, m.K = 1, m.T = 1, m.V = 1, m.F = 1;
  for (const Parameter& p : parameters_of(m)) {
    const bool vector = p.part == Part::norm1 || p.part == Part::norm2 || p.part == Part::norm;
    EXPECT_EQ(p.matrix, !vector) << p.name;
  }
}

TEST(SecondOpinion, GradientsAreTheSlopesOfTheLoss) {
  for (const bool llama : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const bool drops : {false, true})
        EXPECT_LT(worst_slope(small(llama, tied, drops)), 2e-5) << llama << tied << drops;
    }
  }
}

// Experts: k of four for a token, with the losses of the router and with room for all or for half of their choices.
TEST(SecondOpinion, GradientsOfExpertsAreTheSlopesOfTheLoss) {
  for (const int k : {1, 2, 3}) {
    for (const bool normalized : {false, true}) {
      for (const double capacity : {0.0, 0.5}) {
        if (k == 1 && normalized) continue;  // the gate is 1
        Training t = small(true, false, capacity > 0);
        t.model.E = 4, t.model.k = k, t.model.F = 10;
        t.model.gates_normalized = normalized, t.model.capacity_factor = capacity;
        t.model.balance = 0.7, t.model.z = 0.3;
        EXPECT_LT(worst_slope(t), 2e-5) << k << normalized << capacity;
      }
    }
  }
}

// DeepSeek's: gates by sigmoids or softmax, times a scale, a shared expert, and a dense layer in front.
TEST(SecondOpinion, GradientsOfADeepSeekAreTheSlopesOfTheLoss) {
  for (const bool sigmoid : {false, true}) {
    for (const bool normalized : {false, true}) {
      for (const int k : {1, 3}) {
        if (k == 1 && normalized) continue;  // the gate is the scale
        Training t = small(true, false, k == 3);
        Model& m = t.model;
        m.E = 4, m.k = k, m.F = 10;
        m.gates_normalized = normalized, m.capacity_factor = k == 3 ? 0.5 : 0;
        m.balance = 0.7, m.z = 0.3;
        m.sigmoid = sigmoid, m.gate_scale = 2.5, m.shared = 2, m.dense_layers = 1, m.dense_F = 9;
        EXPECT_LT(worst_slope(t), 2e-5) << k << normalized << sigmoid;
      }
    }
  }
}

TEST(SecondOpinion, TheRoutersLossesAreInTheLoss) {
  Training t = small(true, false, false);
  t.model.E = 4, t.model.k = 2;
  const std::vector<Parameter> parameters = parameters_of(t.model);
  std::vector<std::vector<double>> weights;
  for (const Parameter& p : parameters) weights.push_back(initial_values(t, p));
  const auto loss = [&](double balance, double z) {
    t.model.balance = balance, t.model.z = z;
    return losses_and_gradients<double>(t, parameters, weights, tokens_of_step(t, 0), 0, 1).loss;
  };
  // Two layers. Experts are chosen evenly almost, and the logits are small: about 1 a layer, and log(4)^2.
  EXPECT_NEAR(loss(1, 0) - loss(0, 0), 2, 0.1);
  EXPECT_NEAR(loss(0, 1) - loss(0, 0), 2 * std::log(4.0) * std::log(4.0), 0.1);
}

TEST(SecondOpinion, APlantedMistakeIsNoSlope) {
  // The slope of another loss: one whose norm adds another epsilon.
  const Training t = small(false, true, false);
  Training other = t;
  other.model.norm_eps = 1e-3;
  const std::vector<Parameter> parameters = parameters_of(t.model);
  std::vector<std::vector<double>> weights;
  for (const Parameter& p : parameters) weights.push_back(initial_values(t, p));
  const auto tokens = tokens_of_step(t, 0);
  const auto right = losses_and_gradients<double>(t, parameters, weights, tokens, 0, 1);
  const auto wrong = losses_and_gradients<double>(other, parameters, weights, tokens, 0, 1);
  EXPECT_GT(std::abs(wrong.gradients[1][5] - right.gradients[1][5]), 1e-3 * std::abs(right.gradients[1][5]));
}

// ---- randomness, types, bounds -------------------------------------------------------------------------------------

// Random123's known answers for Philox4x32-10.
TEST(SecondOpinion, PhiloxGivesThePublishedWords) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, ~0ULL),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(SecondOpinion, TheNormalDistributionIsTurnedRound) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-15);
  EXPECT_NEAR(normal_quantile(1e-7), -5.199337582187471, 1e-9);
}

TEST(SecondOpinion, TypesRoundToTheNearestTiesToEven) {
  EXPECT_EQ(nearest(1 + 0x1p-8, Type::bf16), 1);
  EXPECT_EQ(nearest(1 + 3 * 0x1p-8, Type::bf16), 1 + 0x1p-6);
  EXPECT_EQ(nearest(65519, Type::f16), 65504);
  EXPECT_TRUE(std::isinf(nearest(65520, Type::f16)));
  EXPECT_EQ(nearest(0x1p-25, Type::f16), 0);
  EXPECT_EQ(nearest(0x1.8p-24, Type::f16), 0x1p-23);
}

// Two sums of the same numbers in fp32, in two orders, and both within the noise that one of them is said to have.
TEST(SecondOpinion, NoiseIsWhatRoundingDoes) {
  double squares = 0, variance = 0;
  for (std::uint32_t trial = 0; trial < 200; ++trial) {
    Sum<Noisy> sum;
    float single = 0;
    for (std::uint32_t i = 0; i < 300; ++i) {
      const auto x = static_cast<float>(standard_normal(trial, 1, i));
      sum.add(Noisy(double(x)), Noisy(0.5));
      single += 0.5F * x;
    }
    const Noisy value = sum.value();
    squares += (double(single) - value.v) * (double(single) - value.v);
    variance += value.s;
    EXPECT_LE(std::abs(double(single) - value.v), bound_of(value));
  }
  EXPECT_GT(squares, variance / 4) << "the noise is not far more than there is";
  EXPECT_LT(squares, variance * 2) << "nor less";
}

TEST(SecondOpinion, AnOptimizersStepIsBoundedByItsRoundings) {
  Optimizer o{true, 0, 0.9, 0.999, 1e-8, 0.1, false};
  const BoundedElement next = updated(o, {0.5, 0.01, 0.002}, 0.03, Bounded(0.7), 0.1, 1e-3, corrections(o, 5));
  const float g = 0.03F * 0.7F, m = 0.9F * 0.01F + 0.1F * g;
  EXPECT_NEAR(next.first.v, double(m), next.first.e);
  EXPECT_LT(next.first.e, 1e-8);
  EXPECT_LT(next.weight.e, 4e-7);
}

TEST(SecondOpinion, LionStepsByTheSignOfItsOldMomentAndAZeroMovesNothing) {
  Optimizer o{true, 0, 0.9, 0.99, 0, 0, false};
  o.lion = true;
  const auto stepped = [&o](double moment, double gradient) {
    return updated(o, {0.5, moment, 0}, gradient, Bounded(1.0), 0, 1e-3, corrections(o, 1));
  };
  const BoundedElement turned = stepped(0.01, -0.2);
  EXPECT_NEAR(turned.weight.v, 0.501, 1e-12) << "the new moment, and a step by it, have the other sign";
  EXPECT_LT(turned.weight.e, 1e-6);
  EXPECT_NEAR(turned.first.v, 0.0079, 1e-12);
  const BoundedElement still = stepped(0, 0);
  EXPECT_EQ(still.weight.v, 0.5);
  EXPECT_LT(still.weight.e, 1e-6) << "a step of either sign would be seen";
  EXPECT_EQ(still.first.e, 0);
  EXPECT_GT(stepped(0.01, -0.09).weight.e, 1e-3) << "roundings decide this sign";
}

TEST(SecondOpinion, SgdTakesTheFirstGradientWholeAndLooksAheadIfAsked) {
  Optimizer o{true, 0, 0, 0, 0, 0, false};
  o.sgd = true;
  o.momentum = 0.5;
  o.dampening = 0.25;
  const auto stepped = [&o](std::int64_t t, double decay) {
    return updated(o, {0.5, 0.25, 0}, 1.0, Bounded(1.0), decay, 0.125, corrections(o, t));
  };
  EXPECT_NEAR(stepped(1, 0).first.v, 1, 1e-12);
  EXPECT_NEAR(stepped(2, 0).first.v, 0.875, 1e-12) << "half of the old one, and three quarters of the gradient";
  EXPECT_NEAR(stepped(2, 0).weight.v, 0.390625, 1e-12);
  EXPECT_NEAR(stepped(1, 2).first.v, 2, 1e-12) << "the decay is in the momentum";
  o.dampening = 0;
  o.nesterov = true;
  EXPECT_NEAR(stepped(2, 0).weight.v, 0.5 - 0.125 * 1.5625, 1e-12);
  o.momentum = 0;
  o.nesterov = false;
  EXPECT_EQ(stepped(2, 0).first.v, 0) << "nothing is kept";
  EXPECT_NEAR(stepped(2, 0).weight.v, 0.375, 1e-12);
}

}  // namespace
}  // namespace seeksim::reference
