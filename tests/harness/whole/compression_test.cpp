// Compressed gradients against an emulation that shares none of their code: with a learning rate of 0 the gradient of
// each group is what an uncompressed run with the group as its batch has, and the algorithm is these few lines over
// plain vectors. Gradients that come late likewise. And what either cannot be together with is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/model/weights.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using ByStep = std::map<std::int64_t, Floats>;

constexpr int kGroups = 4, kBatch = 16, kUpdates = 4;

std::string text_of(int batch, int steps, int ranks, int stage, const std::string& compression) {
  return fmt::format(
      R"({{ "name": "emulated",
  "model": {{ "layers": 1, "width": 34, "heads": 2, "context": 8, "vocab": 61 }},
  "data": {{ "synthetic": true }}, "world": {{ "nodes": 1, "ranks_per_node": {} }},
  "deepspeed": {{ "train_batch_size": {}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {{ "stage": {} }},
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 0, "weight_decay": 0 }} }} }},
  "batch_arithmetic": "by_samples", {} "steps": {} }})",
      ranks, batch, stage, compression, steps);
}

// The reduced gradients of each step, in the order in which they are stored here.
ByStep gradients_of(const std::string& text) {
  const Scenario scenario = load_scenario_text(text, "emulated.json");
  const runtime::ModelPlan& model = scenario.train.definition.model;
  const runtime::Parameters parameters(model, false);
  Floats places(std::size_t(parameters.trainable_size()));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = float(i);
  const std::vector<runtime::NamedTensor> where = runtime::gradients_to_hugging_face(parameters, model, places);
  ByStep all;
  SimulationOptions options;
  options.on_gradients = [&](int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
    if (rank != 0) return;
    Floats& flat = all[step];
    flat.resize(places.size());
    for (std::size_t t = 0; t < gradients.size(); ++t)
      for (std::size_t i = 0; i < gradients[t].values.size(); ++i)
        flat[std::size_t(where[t].values[i])] = gradients[t].values[i];
  };
  Simulation simulation(scenario, options);
  const RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  return all;
}

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
  std::vector<Floats> kept(kGroups, Floats(groups.at(0).size(), 0.0F));
  for (int step = 0; step < kUpdates; ++step) {
    std::vector<Floats> sent(kGroups);
    for (int group = 0; group < kGroups; ++group) {
      Floats owed = groups.at(step * kGroups + group);
      for (std::size_t i = 0; i < owed.size(); ++i) {
        owed[i] = owed[i] / kGroups;
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
  const std::string plain = text_of(kBatch / kGroups, kUpdates * kGroups, 1, 0, "");
  const ByStep groups = gradients_of(plain);
  const auto blocks = blocks_of(plain);
  for (const Form& form : kForms) {
    for (const bool feeds_back : {true, false}) {
      const ByStep want = emulated(form, feeds_back, groups, blocks);
      for (const auto& [ranks, stage] : {std::pair(1, 0), std::pair(4, 0), std::pair(3, 1)}) {
        const std::string compression =
            fmt::format(R"("compression": {{ "method": "{}", "groups": {}, "error_feedback": {} }},)", form.name,
                        kGroups, feeds_back);
        const ByStep got = gradients_of(text_of(kBatch, kUpdates, ranks, stage, compression));
        ASSERT_EQ(got.size(), std::size_t(kUpdates));
        for (int step = 0; step < kUpdates; ++step)
          EXPECT_EQ(got.at(step), want.at(step))
              << form.name << ", " << ranks << " ranks, stage " << stage << ", step " << step;
      }
    }
  }
}

TEST(CompressionEmulation, SeesAnEmulationWithoutTheResiduals) {
  const std::string plain = text_of(kBatch / kGroups, kUpdates * kGroups, 1, 0, "");
  const ByStep groups = gradients_of(plain);
  const ByStep with = emulated(kForms[1], true, groups, blocks_of(plain));
  const ByStep without = emulated(kForms[1], false, groups, blocks_of(plain));
  EXPECT_EQ(with.at(0), without.at(0));
  EXPECT_NE(with.at(1), without.at(1));
}

// ---- gradients that come late --------------------------------------------------------------------------------------

constexpr const char* kUntied =
    R"("model": { "layers": 1, "width": 34, "heads": 2, "context": 8, "vocab": 61, "tied": false },)";

std::string untied(std::string text) {
  const std::size_t begin = text.find("\"model\""), end = text.find("\"data\"");
  return text.replace(begin, end - begin, kUntied);
}

// When the gradient that a worker makes in a step enters: its delay later, and not before earlier ones.
using DelayOf = int (*)(int worker, int step);

// Each step is the sum, in pairs, of what comes of each worker, the oldest first.
ByStep applied_late(DelayOf delay, const ByStep& groups) {
  ByStep sums;
  const std::size_t n = groups.at(0).size();
  for (int step = 0; step < kUpdates; ++step) {
    std::vector<Floats> of(kGroups, Floats(n, 0.0F));
    for (int worker = 0; worker < kGroups; ++worker) {
      bool first = true;
      for (int made = 0, enters = 0; made <= step; ++made) {
        enters = std::max(enters, made + delay(worker, made));
        if (enters != step) continue;
        for (std::size_t i = 0; i < n; ++i) {
          const float x = groups.at(made * kGroups + worker)[i] / kGroups;
          float& sum = of[std::size_t(worker)][i];
          sum = first ? x : sum + x;
        }
        first = false;
      }
    }
    for (std::size_t i = 0; i < n; ++i) sums[step].push_back((of[0][i] + of[1][i]) + (of[2][i] + of[3][i]));
  }
  return sums;
}

TEST(StalenessEmulation, EachStepAppliesWhatTheAlgorithmSaysOnAnyNumberOfRanks) {
  const ByStep groups = gradients_of(untied(text_of(kBatch / kGroups, kUpdates * kGroups, 1, 0, "")));
  const struct {
    const char* keys;
    DelayOf delay;
  } rows[] = {{R"("bound": 0)", [](int, int) { return 0; }},
              {R"("bound": 1)", [](int, int) { return 1; }},
              {R"("bound": 3, "delays": "most")", [](int, int) { return 3; }},
              {R"("bound": 1, "delays": "skewed")", [](int worker, int step) { return 1 - (step + worker) % 2; }},
              {R"("bound": 2, "delays": "listed", "of_workers": [2, 0, 1, 2])", [](int worker, int) {
                 return std::array{2, 0, 1, 2}[std::size_t(worker)];
               }}};
  for (const auto& [keys, delay] : rows) {
    const ByStep want = applied_late(delay, groups);
    for (const auto& [ranks, stage] : {std::pair(1, 0), std::pair(4, 0), std::pair(3, 1), std::pair(2, 1)}) {
      const std::string staleness = fmt::format(R"("staleness": {{ "workers": {}, {} }},)", kGroups, keys);
      EXPECT_EQ(gradients_of(untied(text_of(kBatch, kUpdates, ranks, stage, staleness))), want)
          << keys << ", " << ranks << " ranks, stage " << stage;
    }
  }
}

// By the record of which gradients entered, and by the sums themselves; some come together, and some steps have none.
TEST(StalenessEmulation, DrawnDelaysApplyEachGradientOnce) {
  const ByStep groups = gradients_of(untied(text_of(kBatch / kGroups, kUpdates * kGroups, 1, 0, "")));
  const std::string text = untied(
      text_of(kBatch, kUpdates, 2, 0, R"("staleness": { "workers": 4, "bound": 2, "delays": "drawn", "seed": 5 },)"));
  static std::map<std::pair<int, int>, int> entered;  // the step, by worker and step made
  entered.clear();
  Simulation simulation(load_scenario_text(text, "emulated.json"));
  std::size_t together = 0, none = 0;
  for (const runtime::LateRecord& one : simulation.run().agreement.late) {
    for (const std::int64_t made : one.made) entered[{int(one.worker), int(made)}] = int(one.clock);
    together += one.made.size() > 1;
    none += one.made.empty();
  }
  EXPECT_GT(together, 0U);
  EXPECT_GT(none, 0U);
  const ByStep want = applied_late(
      [](int worker, int made) {
        const auto found = entered.find({worker, made});
        return found == entered.end() ? kUpdates : found->second - made;
      },
      groups);
  EXPECT_EQ(gradients_of(text), want);
}

TEST(StalenessEmulation, SeesAnotherDelay) {
  const ByStep groups = gradients_of(untied(text_of(kBatch / kGroups, kUpdates * kGroups, 1, 0, "")));
  EXPECT_NE(applied_late([](int, int) { return 1; }, groups), applied_late([](int, int) { return 2; }, groups));
}

TEST(Staleness, WithoutDelaysItIsOrdinaryTrainingBitForBit) {
  const auto weights = [&](std::vector<std::string> more) {
    LoadOptions options;
    options.sets = {"faults=[]", R"(checks=["golden:bitwise"])"};
    options.sets.insert(options.sets.end(), more.begin(), more.end());
    Simulation simulation(load_scenario_text(small_text(), "small.json", options));
    return simulation.run().state()->params;
  };
  for (const char* stage : {"0", "1"}) {
    const std::string zero = std::string("deepspeed.zero_optimization.stage=") + stage;
    const auto ordinary = weights({zero});
    EXPECT_EQ(weights({zero, R"(staleness={"workers":4,"bound":0})"}), ordinary);
    EXPECT_EQ(weights({zero, R"(staleness={"workers":4,"bound":3,"delays":"listed","of_workers":[0,0,0,0]})"}),
              ordinary);
    EXPECT_NE(weights({zero, R"(staleness={"workers":4,"bound":1})"}), ordinary);
  }
}

TEST(StalenessLoading, RefusesByName) {
  const auto problems = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"faults=[]", R"(checks=["golden:bitwise"])",
                                     R"(staleness={"workers":4,"bound":2})"};
    sets.insert(sets.end(), more.begin(), more.end());
    return problems_of(small_text(), sets);
  };
  EXPECT_EQ(problems({}), "");
  const std::pair<const char*, const char*> rows[] = {
      {"staleness.workers=3", "8 samples a step for 3 workers: a worker has to have a power of two"},
      {"staleness.delays=late", "\"late\" is not one of"},
      {"staleness.bound=-1", "-1 is out of range"},
      {"staleness.of_workers=[1,1,1,1]", "delays are not \"listed\""},
      {R"(staleness={"workers":4,"delays":"listed","of_workers":[1]})", "1 delays for 4 workers"},
      {R"(staleness={"workers":2,"delays":"listed","bound":1,"of_workers":[1,2]})",
       "a delay of 2 steps is above the bound"},
      {"deepspeed.zero_optimization.stage=2", "not supported: late gradients with ZeRO 2 and 3"},
      {"world.pipeline=2", "not supported: late gradients in a model"},
      {R"(compression={"method":"sign","groups":4})", "not supported: late gradients that are compressed"},
      {R"(quirks=["ds_old_default_clipping"])", "not supported: late gradients with quirks"},
      {"recovery.memory_ladder=true", "not supported: late gradients with the memory ladder"},
      {"recovery.spares=1", "not supported: late gradients with spares"},
      {"recovery.grow=true", "not supported: late gradients in a run that admits ranks"},
      {R"(checks=["conservation"])", "conservation counts the samples of one step"},
  };
  for (const auto& [set, message] : rows) {
    const std::string said = problems({set});
    EXPECT_NE(said.find(message), std::string::npos) << set << ":\n" << said;
  }
}

// ---- what compression cannot be together with
// -------------------------------------------------------------------------------

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
