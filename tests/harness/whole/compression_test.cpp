// Compressed gradients against an emulation that shares none of their code: with a learning rate of 0 the gradient of
// each group is what an uncompressed run with the group as its batch has, and the algorithm is these few lines over
// plain vectors. And what compression cannot be together with is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "kernels/random.h"
#include "runtime/model/weights.h"
#include "tests/harness/whole/emulated_runs.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
// Where a parameter's slabs, and in them its blocks of 1,024, begin and end.
std::vector<std::pair<std::size_t, std::size_t>> blocks_of(const std::string& text) {
  const Scenario scenario = load_scenario_text(text, "emulated.json");
  const runtime::Parameters parameters(scenario.train.definition.model, false);
  std::vector<std::pair<std::size_t, std::size_t>> blocks;
  for (const runtime::ParameterInfo& p : parameters.all()) {
    for (runtime::Index slab = 0; slab < p.size; slab += p.slab) {
      const runtime::Index end = std::min(slab + p.slab, p.size);
      for (runtime::Index at = slab; at < end; at += 1024)
        blocks.emplace_back(p.offset + at, p.offset + std::min(at + 1024, end));
    }
  }
  return blocks;
}

// ---- the algorithm -------------------------------------------------------------------------------------------------

float power_below(const float* x, std::size_t n) {
  float most = std::numeric_limits<float>::min();
  for (std::size_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return std::ldexp(1.0F, std::ilogb(most));
}

// Rounds a block in place to what its wire can say.
void to_int8(Floats& sent) {
  const float step = std::max(power_below(sent.data(), sent.size()) / 64, std::numeric_limits<float>::min());
  for (float& x : sent) x = std::clamp(std::nearbyint(x / step), -127.0F, 127.0F) * step;
}

void to_grid(Floats& x) {
  const double grid = std::ldexp(double(power_below(x.data(), x.size())), -21);
  for (float& one : x) one = float(std::nearbyint(double(one) / grid) * grid);
}

void to_signs(Floats& sent) {
  Floats lane(128, 0.0F);
  for (std::size_t i = 0; i < sent.size(); ++i) lane[i % 128] += std::fabs(sent[i]);
  for (std::size_t w = 64; w > 0; w /= 2)
    for (std::size_t l = 0; l < w; ++l) lane[l] += lane[l + w];
  const double grid = std::ldexp(double(power_below(sent.data(), sent.size())), -21);
  const float mean = float(std::nearbyint(double(lane[0] / float(sent.size())) / grid) * grid);
  for (float& x : sent) x = x >= 0 ? mean : -mean;
}

void to_largest(Floats& sent) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sent.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::fabs(sent[a]) > std::fabs(sent[b]); });
  for (std::size_t k = 16; k < order.size(); ++k) sent[order[k]] = 0;
}

struct Form {
  const char* name;
  void (*round)(Floats& sent);
  bool on_grid;
};
const Form kForms[] = {{"int8", to_int8, false}, {"sign", to_signs, true}, {"top", to_largest, false}};

// Every worker in turn: what it owes, what it sends, what it keeps; and the sum of all, in pairs.
ByStep emulated(const Form& form, bool feeds_back, const ByStep& groups,
                const std::vector<std::pair<std::size_t, std::size_t>>& blocks) {
  ByStep sums;
  std::vector<Floats> kept(kParts, Floats(groups.at(0).size(), 0.0F));
  for (int step = 0; step < kPartsSteps; ++step) {
    std::vector<Floats> sent(kParts);
    for (int group = 0; group < kParts; ++group) {
      Floats owed = groups.at(step * kParts + group);
      for (std::size_t i = 0; i < owed.size(); ++i) {
        owed[i] = owed[i] / kParts;
        if (feeds_back) owed[i] += kept[std::size_t(group)][i];
      }
      Floats& all = sent[std::size_t(group)];
      for (const auto& [begin, end] : blocks) {
        Floats block(owed.begin() + std::ptrdiff_t(begin), owed.begin() + std::ptrdiff_t(end));
        if (form.on_grid) to_grid(block);
        std::copy(block.begin(), block.end(), owed.begin() + std::ptrdiff_t(begin));
        form.round(block);
        all.insert(all.end(), block.begin(), block.end());
      }
      for (std::size_t i = 0; i < owed.size(); ++i) kept[std::size_t(group)][i] = owed[i] - all[i];
    }
    Floats& sum = sums[step];
    for (std::size_t i = 0; i < sent[0].size(); ++i)
      sum.push_back((sent[0][i] + sent[1][i]) + (sent[2][i] + sent[3][i]));
  }
  return sums;
}

TEST(CompressionEmulation, EachStepSendsWhatTheAlgorithmSaysOnAnyNumberOfRanks) {
  const std::string plain = emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "");
  const ByStep groups = reduced_in(plain);
  const auto blocks = blocks_of(plain);
  for (const Form& form : kForms) {
    for (const bool feeds_back : {true, false}) {
      const ByStep want = emulated(form, feeds_back, groups, blocks);
      for (const auto& [ranks, stage] : {std::pair(1, 0), std::pair(4, 0), std::pair(3, 1)}) {
        const std::string compression =
            fmt::format(R"("compression": {{ "method": "{}", "groups": {}, "error_feedback": {} }},)", form.name,
                        kParts, feeds_back);
        const ByStep got = reduced_in(emulated_text(kPartsBatch, kPartsSteps, ranks, stage, compression));
        ASSERT_EQ(got.size(), std::size_t(kPartsSteps));
        for (int step = 0; step < kPartsSteps; ++step)
          EXPECT_EQ(got.at(step), want.at(step))
              << form.name << ", " << ranks << " ranks, stage " << stage << ", step " << step;
      }
    }
  }
}

TEST(CompressionEmulation, SeesAnEmulationWithoutTheResiduals) {
  const std::string plain = emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "");
  const ByStep groups = reduced_in(plain);
  const ByStep with = emulated(kForms[1], true, groups, blocks_of(plain));
  const ByStep without = emulated(kForms[1], false, groups, blocks_of(plain));
  EXPECT_EQ(with.at(0), without.at(0));
  EXPECT_NE(with.at(1), without.at(1));
}

// ---- 1-bit Adam ----------------------------------------------------------------------------------------------------

using Blocks = std::vector<std::pair<std::size_t, std::size_t>>;

// Sends what is owed in signs; what is owed becomes what is kept.
Floats sent_in_signs(Floats& owed, const Blocks& blocks) {
  Floats sent;
  for (const auto& [begin, end] : blocks) {
    Floats block(owed.begin() + std::ptrdiff_t(begin), owed.begin() + std::ptrdiff_t(end));
    to_grid(block);
    std::copy(block.begin(), block.end(), owed.begin() + std::ptrdiff_t(begin));
    to_signs(block);
    sent.insert(sent.end(), block.begin(), block.end());
  }
  for (std::size_t i = 0; i < owed.size(); ++i) owed[i] -= sent[i];
  return sent;
}

constexpr float kBeta1 = 0.9F;
const float kRest1 = float(1.0 - 0.9), kRest2 = float(1.0 - 0.999);

enum class Slip { none, no_server_residual, no_warm_up };

// What the optimizer is given in each step: first gradients, then momentum. The server is one more worker, of the sum.
ByStep onebit(const ByStep& whole, const ByStep& groups, const Blocks& blocks, int start, Slip slip = Slip::none) {
  ByStep given;
  const std::size_t n = whole.at(0).size();
  Floats momentum(n, 0.0F), server(n, 0.0F);
  std::vector<Floats> kept(kParts, Floats(n, 0.0F));
  for (int step = 0; step < kPartsSteps; ++step) {
    if (step < start) {
      given[step] = whole.at(step);
      if (slip == Slip::no_warm_up) continue;
      for (std::size_t i = 0; i < n; ++i) momentum[i] = std::fma(kBeta1, momentum[i], kRest1 * whole.at(step)[i]);
      continue;
    }
    std::vector<Floats> sent;
    for (int group = 0; group < kParts; ++group) {
      const Floats& gradient = groups.at(step * kParts + group);
      Floats& owed = kept[std::size_t(group)];
      for (std::size_t i = 0; i < n; ++i) {
        const float old = momentum[i] * float(0.9 / kParts), fresh = gradient[i] / kParts * kRest1;
        owed[i] = (old + fresh) + owed[i];
      }
      sent.push_back(sent_in_signs(owed, blocks));
    }
    for (std::size_t i = 0; i < n; ++i) {
      const float before = slip == Slip::no_server_residual ? 0.0F : server[i];
      server[i] = ((sent[0][i] + sent[1][i]) + (sent[2][i] + sent[3][i])) + before;
    }
    momentum = given[step] = sent_in_signs(server, blocks);
  }
  return given;
}

std::string onebit_keys(int start) {
  return fmt::format(
      R"("compression": {{ "method": "sign", "groups": {}, "optimizer": "onebit_adam", "start_step": {} }},)", kParts,
      start);
}

TEST(OneBitAdamEmulation, EachStepHasTheMomentumThatTheAlgorithmSaysOnAnyNumberOfRanks) {
  const std::string plain = emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "");
  const ByStep groups = reduced_in(plain), whole = reduced_in(emulated_text(kPartsBatch, kPartsSteps, 1, 0, ""));
  const Blocks blocks = blocks_of(plain);
  for (const int start : {1, 2}) {
    const ByStep want = onebit(whole, groups, blocks, start);
    for (const int ranks : {1, 3, 4}) {
      const ByStep got = reduced_in(emulated_text(kPartsBatch, kPartsSteps, ranks, 0, onebit_keys(start)));
      ASSERT_EQ(got.size(), std::size_t(kPartsSteps));
      for (int step = 0; step < kPartsSteps; ++step)
        EXPECT_EQ(got.at(step), want.at(step)) << ranks << " ranks, from step " << start << ", step " << step;
    }
    for (const Slip slip : {Slip::no_server_residual, Slip::no_warm_up})
      EXPECT_NE(onebit(whole, groups, blocks, start, slip).at(3), want.at(3));
  }
}

// From the weights before a step, the gradients that made the variance, and the momentum that came back.
TEST(OneBitAdamEmulation, AFrozenStepDividesByTheVarianceOfItsStart) {
  constexpr double kRate = 1e-2;
  constexpr int kStart = 2, kStep = 3;
  const Trained before = trained(emulated_text(kPartsBatch, kStep, 2, 0, onebit_keys(kStart), kRate));
  const Trained after = trained(emulated_text(kPartsBatch, kStep + 1, 2, 0, onebit_keys(kStart), kRate));
  Floats want = before.weights;
  const double power1 = 0.9 * 0.9 * 0.9 * 0.9, power2 = 0.999 * 0.999;  // after four steps, and two
  const float bias1 = float(1.0 / (1.0 - power1)), bias2 = float(1.0 / std::sqrt(1.0 - power2));
  for (std::size_t i = 0; i < want.size(); ++i) {
    float v = 0;
    for (int step = 0; step < kStart; ++step) {
      const float g = before.gradients.at(step)[i];
      v = std::fma(0.999F, v, kRest2 * g * g);
    }
    const float m = after.gradients.at(kStep)[i];
    want[i] = std::fma(-float(kRate), m * bias1 / std::fma(std::sqrt(v), bias2, 1e-8F), want[i]);
  }
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(after.weights, want);
}

// ---- PowerSGD ------------------------------------------------------------------------------------------------------

using Rows = std::vector<Floats>;

float dot_of(const Floats& a, const Floats& b) {
  float sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float product = a[i] * b[i];
    sum += product;
  }
  return sum;
}

void make_orthogonal(Rows& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float length = std::sqrt(dot_of(rows[i], rows[i]));
    for (float& x : rows[i]) x /= length;
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      const float along = dot_of(rows[i], rows[j]);
      for (std::size_t k = 0; k < rows[i].size(); ++k) {
        const float part = along * rows[i][k];
        rows[j][k] -= part;
      }
    }
  }
}

// What factors make of one matrix, step by step.
struct PowerOfMatrix {
  std::size_t rows, cols, rank;
  Rows q;                  // kept
  std::vector<Rows> kept;  // by group, by row
  bool shares = true;      // false, a mistake: a group takes the whole sum for its own

  // One factor's row times all groups' matrices, summed in pairs. of_rows: the factor has an element a row of them.
  Floats product(const Floats& factor, const std::vector<Rows>& owed, bool of_rows) const {
    Rows of_group;
    for (const Rows& m : owed) {
      Floats& out = of_group.emplace_back(of_rows ? cols : rows, 0.0F);
      for (std::size_t k = 0; k < factor.size(); ++k)
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::fma(factor[k], of_rows ? m[k][i] : m[i][k], out[i]);
    }
    Floats sum;
    for (std::size_t i = 0; i < of_group[0].size(); ++i)
      sum.push_back((of_group[0][i] + of_group[1][i]) + (of_group[2][i] + of_group[3][i]));
    return sum;
  }

  Rows step(const std::vector<Rows>& gradients) {
    std::vector<Rows> owed = gradients;
    for (std::size_t g = 0; g < owed.size(); ++g)
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < cols; ++j) owed[g][i][j] += kept[g][i][j];
    make_orthogonal(q);
    Rows p;
    for (const Floats& one : q) p.push_back(product(one, owed, false));
    make_orthogonal(p);
    q.clear();
    for (const Floats& one : p) q.push_back(product(one, owed, true));
    Rows sum(rows, Floats(cols, 0.0F));
    for (std::size_t c = 0; c < rank; ++c)
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < cols; ++j) sum[i][j] = std::fma(p[c][i], q[c][j], sum[i][j]);
    for (std::size_t g = 0; g < owed.size(); ++g)
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < cols; ++j)
          kept[g][i][j] = owed[g][i][j] - (shares ? sum[i][j] / kParts : sum[i][j]);
    return sum;
  }
};

ByStep power(const std::string& text, const ByStep& groups, std::size_t most, bool shares) {
  const Scenario scenario = load_scenario_text(text, "emulated.json");
  const runtime::Parameters parameters(scenario.train.definition.model, false);
  ByStep given;
  for (int step = 0; step < kPartsSteps; ++step) {
    const auto of = [&](int group, std::size_t i) { return groups.at(step * kParts + group)[i] / kParts; };
    for (std::size_t i = 0; i < groups.at(0).size(); ++i)
      given[step].push_back((of(0, i) + of(1, i)) + (of(2, i) + of(3, i)));
  }
  for (const runtime::ParameterInfo& p : parameters.all()) {
    const std::size_t rows = std::size_t(p.rows()), cols = std::size_t(p.cols()), rank = std::min({most, rows, cols});
    if (cols == 1 || 2 * rank * (rows + cols) >= rows * cols) continue;
    PowerOfMatrix matrix{rows, cols, rank, {}, std::vector<Rows>(kParts, Rows(rows, Floats(cols, 0.0F))), shares};
    Floats drawn(rank * cols);
    kernels::fill_normal({}, {drawn.data(), kernels::Index(drawn.size())}, 0x50000000U + p.number, 0, 1.0F,
                         scenario.train.definition.training_seed);
    for (std::size_t c = 0; c < rank; ++c)
      matrix.q.emplace_back(drawn.begin() + std::ptrdiff_t(c * cols), drawn.begin() + std::ptrdiff_t((c + 1) * cols));
    for (int step = 0; step < kPartsSteps; ++step) {
      std::vector<Rows> gradients(kParts, Rows(rows));
      for (int g = 0; g < kParts; ++g)
        for (std::size_t i = 0; i < rows * cols; ++i)
          gradients[std::size_t(g)][i / cols].push_back(groups.at(step * kParts + g)[std::size_t(p.offset) + i] /
                                                        kParts);
      const Rows sum = matrix.step(gradients);
      for (std::size_t i = 0; i < rows * cols; ++i) given[step][std::size_t(p.offset) + i] = sum[i / cols][i % cols];
    }
  }
  return given;
}

TEST(PowerEmulation, EachStepGetsWhatTheAlgorithmSaysOnAnyNumberOfRanks) {
  const std::string plain = emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "");
  const ByStep groups = reduced_in(plain);
  for (const int rank : {1, 3}) {
    const ByStep want = power(plain, groups, std::size_t(rank), true);
    for (const int ranks : {1, 3, 4}) {
      const std::string keys =
          fmt::format(R"("compression": {{ "method": "power", "groups": {}, "rank": {} }},)", kParts, rank);
      const ByStep got = reduced_in(emulated_text(kPartsBatch, kPartsSteps, ranks, 0, keys));
      ASSERT_EQ(got.size(), std::size_t(kPartsSteps));
      for (int step = 0; step < kPartsSteps; ++step)
        EXPECT_EQ(got.at(step), want.at(step)) << rank << " columns, " << ranks << " ranks, step " << step;
    }
    EXPECT_NE(power(plain, groups, std::size_t(rank), false).at(1), want.at(1));
  }
}

// ---- what becomes of the loss --------------------------------------------------------------------------------------

constexpr int kSeeds = 10;

// Of ten seeds, the mean loss of the last steps.
Floats last_losses(const std::string& more) {
  Floats losses;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Scenario scenario = load_scenario_text(fmt::format(R"({{ "name": "ten_seeds", "training_seed": {},
  "model": {{ "layers": 1, "width": 24, "heads": 2, "context": 16, "vocab": 256 }},
  "data": {{ "text": "{}/golden/corpus.txt" }}, "world": {{ "nodes": 1, "ranks_per_node": 1 }},
  "deepspeed": {{ "train_batch_size": 8, "optimizer": {{ "type": "AdamW", "params": {{ "lr": 3e-3 }} }},
                 "gradient_clipping": 0 }},
  "batch_arithmetic": "by_samples", {} "steps": 60 }})",
                                                             seed, paths::source_dir(), more),
                                                 "ten_seeds.json");
    Simulation simulation(scenario, {});
    const RunRecord run = simulation.run();
    float sum = 0;
    for (std::size_t i = run.steps.size() - 10; i < run.steps.size(); ++i) sum += run.steps[i].loss;
    losses.push_back(sum / 10);
  }
  return losses;
}

float mean_of(const Floats& x) {
  float sum = 0;
  for (const float one : x) sum += one;
  return sum / float(x.size());
}

// How many of the uncompressed runs' standard deviations the mean is away from theirs.
float deviations(const Floats& losses, const Floats& plain) {
  const float mean = mean_of(plain);
  float squares = 0;
  for (const float one : plain) squares += (one - mean) * (one - mean);
  return std::fabs(mean_of(losses) - mean) / std::sqrt(squares / float(plain.size() - 1));
}

TEST(OneBitAdamLoss, IsAdamWsWithinThreeStandardDeviationsOfTenSeeds) {
  const auto keys = [](const char* more) {
    return fmt::format(
        R"("compression": {{ "method": "sign", "groups": 4, "optimizer": "onebit_adam", "start_step": 12{} }},)", more);
  };
  const Floats plain = last_losses("");
  EXPECT_LT(deviations(last_losses(keys("")), plain), 3);
  const Floats broken = last_losses(keys("") + R"("bug": "momentum_in_full",)");
  EXPECT_FALSE(deviations(broken, plain) < 3);
}

TEST(PowerLoss, IsAdamWsWithinThreeStandardDeviationsOfTenSeeds) {
  const std::string keys = R"("compression": { "method": "power", "groups": 4, "rank": 2, "start_step": 2 },)";
  const Floats plain = last_losses("");
  EXPECT_LT(deviations(last_losses(keys), plain), 3);
  EXPECT_FALSE(deviations(last_losses(keys + R"("bug": "residual_of_whole_sum",)"), plain) < 3);
}

// ---- what it cannot be together with -------------------------------------------------------------------------------

std::string problems_with(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"faults=[]", R"(checks=["golden:bitwise"])",
                                   R"(compression={"method":"sign","groups":4})"};
  sets.insert(sets.end(), more.begin(), more.end());
  return problems_of(small_text(), sets);
}

TEST(CompressionLoading, RefusesByName) {
  EXPECT_EQ(problems_with({}), "");
  const std::pair<const char*, const char*> rows[] = {
      {"compression.groups=3", "8 samples a step in 3 groups: a group has to be a power of two of samples"},
      {"compression.method=zip", "\"zip\" is not one of"},
      {R"(compression={"method":"sign"})", "the key \"groups\" is missing"},
      {R"(compression={"method":"top","groups":4,"top":0})", "0 is out of range"},
      {"deepspeed.zero_optimization.stage=2", "not supported: compressed gradients with ZeRO 2 and 3"},
      {"world.pipeline=2", "not supported: compressed gradients in a model that is cut"},
      {R"(deepspeed.zero_optimization={"stage":1,"offload_optimizer":{"device":"cpu"}})",
       "not supported: compressed gradients with an offloaded optimizer"},
      {R"(quirks=["ds_old_default_clipping"])", "not supported: compressed gradients with quirks"},
      {"recovery.memory_ladder=true", "not supported: compressed gradients with the memory ladder"},
      {"recovery.spares=1", "not supported: compressed gradients with spares"},
      {"recovery.grow=true", "not supported: compressed gradients in a run that admits ranks"},
      {R"(checks=["conservation"])", "conservation counts samples by tags"},
  };
  for (const auto& [set, message] : rows) {
    const std::string problems = problems_with({set});
    EXPECT_NE(problems.find(message), std::string::npos) << set << ":\n" << problems;
  }
}

TEST(CompressionLoading, OneBitAdamRefusesByName) {
  const auto problems = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {
        "deepspeed.gradient_clipping=0",
        R"(compression={"method":"sign","groups":4,"optimizer":"onebit_adam","start_step":1})"};
    sets.insert(sets.end(), more.begin(), more.end());
    return problems_with(sets);
  };
  EXPECT_EQ(problems({}), "");
  const std::pair<const char*, const char*> rows[] = {
      {"compression.method=top", "1-bit Adam sends signs"},
      {"compression.start_step=0", "1-bit Adam needs a step before it compresses"},
      {R"(deepspeed.optimizer={"type":"Lion"})", "1-bit Adam is AdamW before it freezes"},
      {R"(deepspeed.optimizer={"type":"OneBitAdam"})", "compression.optimizer onebit_adam is like it"},
      {"deepspeed.zero_optimization.stage=1", "not supported: 1-bit Adam with ZeRO"},
      {"deepspeed.gradient_clipping=1", "1-bit Adam cannot clip"},
      {R"(changes=[{"step":2,"gradient_clipping":1}])", "1-bit Adam cannot clip"},
      {"compression.optimizer=none", "only onebit_adam and power begin late"},
  };
  for (const auto& [set, message] : rows) {
    const std::string found = problems({set});
    EXPECT_NE(found.find(message), std::string::npos) << set << ":\n" << found;
  }
  const std::string halves = problems({"deepspeed.bf16.enabled=true", "deepspeed.data_types.grad_accum_dtype=bf16"});
  EXPECT_NE(halves.find("1-bit Adam with gradients held in 16 bits"), std::string::npos) << halves;
}

TEST(CompressionLoading, PowerRefusesByName) {
  const auto problems = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {R"(compression={"method":"power","groups":4})"};
    sets.insert(sets.end(), more.begin(), more.end());
    return problems_with(sets);
  };
  EXPECT_EQ(problems({}), "");
  EXPECT_EQ(problems({"compression.start_step=3", "compression.warm_start=false"}), "");
  const std::pair<const char*, const char*> rows[] = {
      {"compression.rank=0", "0 is out of range"},
      {"deepspeed.zero_optimization.stage=1", "not supported: power with ZeRO"},
      {"compression.optimizer=onebit_adam", "1-bit Adam sends signs"},
  };
  for (const auto& [set, message] : rows) {
    const std::string found = problems({set});
    EXPECT_NE(found.find(message), std::string::npos) << set << ":\n" << found;
  }
  EXPECT_NE(problems({"model.family=llama", "model.experts=4"}).find("power with experts"), std::string::npos);
}

TEST(CompressionLoading, GPUsAreRefused) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  const Ran ran = seeksim({"run", file, "--device", "emulated", "--set", "faults=[]", "--set", "checks=[]", "--set",
                           R"(compression={"method":"sign","groups":4})"});
  EXPECT_EQ(ran.status, 2) << ran.out;
  EXPECT_NE(ran.err.find("no kernels for GPUs"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace seeksim::harness
