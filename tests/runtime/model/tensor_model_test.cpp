// A model over several tensor ways against the model of one way: losses, and every way's gradients of every parameter,
// bit for bit; with all that a pass may do differently. And the mistakes that must show.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "kernels/random.h"
#include "runtime/comm/tensor_parallel.h"
#include "runtime/model/model.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

struct Case {
  ModelPlan model = {};
  ElementType type = ElementType::f32;
  CheckpointingPlan checkpointing = {};
  bool defers = false;  // backward in two parts
  PlantedBug bug = {};
};

// Heads, vocabulary and context that 8 does not divide, so that the last slabs are short.
Case small_case(ElementType type = ElementType::f32) {
  Case c;
  c.type = type;
  c.model.layers = 2;
  c.model.width = 32;
  c.model.heads = 8;
  c.model.context = 15;
  c.model.vocab = 29;
  c.model.dropout = {0.1, 0.2, 0.3};
  return c;
}

constexpr Index kSamples = 3;
const GradientBlock kBlocks[] = {{0, 2}, {2, 1}};

TrainPlan plan_of(const Case& c, const ParallelPlan& parallel) {
  TrainPlan plan;
  plan.definition.model = c.model;
  plan.definition.precision.compute = c.type;
  plan.layout.checkpointing = c.checkpointing;
  plan.layout.parallel = parallel;
  if (c.defers) {  // as on a stage of a pipeline
    plan.layout.parallel.schedule = PipelineSchedule::zero_bubble;
    plan.layout.parallel.pipeline = 2;
  }
  plan.bug = c.bug;
  return plan;
}

// The gradient space of each block, and where the parameters of a part of the model lie in it.
struct Gradients {
  std::shared_ptr<Parameters> parameters;
  std::vector<std::vector<float>> nodes;
};

template <class S>
void fill(const Parameters& parameters, Buffer& flat) {
  std::vector<float> wide(std::size_t(parameters.size()));
  for (const ParameterInfo& p : parameters.all())
    kernels::fill_normal({}, {wide.data() + p.offset, p.size}, p.number, std::uint64_t(p.first), 0.3F, 11);
  kernels::narrow<S>({}, {wide.data(), Index(wide.size())}, vec<S>(flat, 0, parameters.size()).get());
}
void fill_tokens(VecView<std::int32_t> tokens, int vocabulary, int stream) {
  for (Index i = 0; i < tokens.n; ++i) tokens.get()[i] = int((i * 7919 + stream * 104729) % 1009 % vocabulary);
}

// One micro-batch on one rank.
template <class S>
Gradients pass(Rank& rank, const TrainPlan& plan, int way, TensorAxis* axis, Communicator& comm) {
  const ModelPlan& shape = plan.definition.model;
  Gradients out;
  ParallelPlan one_stage = plan.layout.parallel;
  one_stage.pipeline = 1;
  out.parameters = std::make_shared<Parameters>(shape, false, model_part(shape, one_stage, 0, way));
  const Parameters& parameters = *out.parameters;
  const BufferPtr flat = rank.device.allocate(std::size_t(parameters.size()) * sizeof(S), MemoryTag::parameters, "all");
  fill<S>(parameters, *flat);
  const auto model = std::move(make_models(rank.device, plan, parameters, 0, kSamples, 1, axis).front());
  fill_tokens(model->inputs(kSamples), shape.vocab, 1);
  fill_tokens(model->targets(kSamples), shape.vocab, 2);
  std::vector<BufferPtr> buffers;
  std::vector<VecView<float>> nodes;
  for (std::size_t b = 0; b < std::size(kBlocks); ++b) {
    const std::size_t bytes = std::size_t(parameters.gradient_size()) * sizeof(float);
    buffers.push_back(rank.device.allocate(bytes, MemoryTag::partial_sums, "gradients"));
    nodes.push_back(vec<float>(*buffers.back(), 0, parameters.gradient_size()));
  }
  Launcher launch(rank.device.compute_queue(), rank.id);
  launch.at(0, 3);
  ReplicatedWeights weights(AnyVec(flat.get(), 0, parameters.size(), element_type<S>()));
  NodeSink sink(nodes);
  const Batch batch{kSamples, 5, 3, 9};
  model->forward(launch, weights, batch);
  model->loss(launch, kSamples, 0.25F);
  if (plan.layout.parallel.defers()) {
    model->backward_input(launch, weights, batch);
    model->backward_weight(launch, weights, batch, 0.5F, kBlocks, sink);
  } else {
    model->backward(launch, weights, batch, 0.5F, kBlocks, sink);
  }
  Op op = launch.last();
  comm.wait(launch.queue().record(), op);
  for (const VecView<float>& node : nodes) out.nodes.emplace_back(node.get().data, node.get().data + node.n);
  rank.device.drain();
  return out;
}

Gradients pass_as(Rank& rank, const TrainPlan& plan, int way, TensorAxis* axis, Communicator& comm) {
  return with_float_type(plan.definition.precision.compute,
                         [&](auto like) { return pass<decltype(like)>(rank, plan, way, axis, comm); });
}

Gradients of_one_way(const Case& c) {
  Gradients whole;
  sim::World world(world_of(1));
  const sim::WorldResult result = world.run([&](Rank& rank) {
    Communicator comm(rank, Axis::tensor, 0, rank.control.members(), kSecond);
    Case at_once = c;
    at_once.defers = false;
    whole = pass_as(rank, plan_of(at_once, {}), 0, nullptr, comm);
  });
  EXPECT_EQ(result.ranks[0].what, "");
  return whole;
}

struct Ways {
  std::vector<Gradients> ways;
  std::string races;
};

Ways of_ways(const Case& c, int ways, bool sequence_parallel) {
  ParallelPlan parallel;
  parallel.tensor = ways;
  parallel.sequence_parallel = sequence_parallel;
  const TrainPlan plan = plan_of(c, parallel);
  Ways out;
  out.ways.resize(std::size_t(ways));
  sim::World world(world_of(ways));
  const sim::WorldResult result = world.run([&](Rank& rank) {
    TensorAxis axis(rank.device, tensor_shape(plan, kSamples, true), ways, rank.id, plan.bug);
    axis.connect(rank, 0, rank.control.members(), kSecond, 0);
    out.ways[std::size_t(rank.id)] = pass_as(rank, plan, rank.id, &axis, *axis.communicator());
  });
  for (const sim::RankEnd& end : result.ranks) EXPECT_EQ(end.what, "");
  for (const sim::Race& race : result.races) out.races += race.text + '\n';
  return out;
}

// Empty, or the first parameter whose gradient is another than one way's.
std::string difference(const Gradients& whole, const Ways& split) {
  const Parameters& all = *whole.parameters;
  for (std::size_t w = 0; w < split.ways.size(); ++w) {
    const Parameters& here = *split.ways[w].parameters;
    for (std::size_t b = 0; b < std::size(kBlocks); ++b) {
      const std::vector<float>&one = whole.nodes[b], &part = split.ways[w].nodes[b];
      const auto same = [&](Index offset, Index first, Index at, Index size) {
        return std::equal(part.begin() + at, part.begin() + at + size, one.begin() + offset + first);
      };
      const std::string where = ", block " + std::to_string(b) + ", way " + std::to_string(w);
      for (const ParameterInfo* p : here.trainable()) {
        const ParameterInfo& in_whole = all.all()[p->number];
        if (!same(in_whole.offset, p->first, p->offset, p->size)) return p->name + where;
      }
      if (here.shares_head() &&
          !same(all.head_gradient_offset(), here.wte().first, here.head_gradient_offset(), here.wte().size))
        return "the head's share" + where;
      if (!same(all.loss_offset(), 0, here.loss_offset(), 1)) return "the loss" + where;
    }
  }
  return split.races;
}

void expect_same(const Case& c, const char* what) {
  const Gradients whole = of_one_way(c);
  for (const int ways : {2, 4, 8})
    for (const bool sequence_parallel : {false, true})
      EXPECT_EQ(difference(whole, of_ways(c, ways, sequence_parallel)), "")
          << what << ", " << ways << " ways, sequence parallelism " << sequence_parallel;
}

TEST(TensorModel, EveryWayHasItsPartOfOneWaysGradients) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16})
    expect_same(small_case(type), "");
}

TEST(TensorModel, AlsoWithoutDropoutWithAHeadOfItsOwnAndAScale) {
  Case c = small_case();
  c.model.dropout = {};
  expect_same(c, "no dropout");
  c.model.tied = false;
  expect_same(c, "untied");
  c.model.logit_scale = true;
  expect_same(c, "logit_scale");
}

TEST(TensorModel, AlsoWithFrozenParameters) {
  Case c = small_case();
  c.model.frozen = {"wpe.weight", "h.0.ln_1.weight", "h.1.ln_2.bias", "*c_fc.weight"};
  expect_same(c, "frozen");
}

TEST(TensorModel, AlsoWhereActivationsAreComputedAgain) {
  Case c = small_case();
  c.checkpointing.every = 2;
  expect_same(c, "a segment of two layers");
}

TEST(TensorModel, AlsoWhereBackwardIsInTwoParts) {
  Case c = small_case(ElementType::bf16);
  c.defers = true;
  expect_same(c, "two parts");
}

// Shapes by chance, those that cannot be cut left out: empty slabs, one head or many on a way, no layers at all.
TEST(TensorModel, AlsoForAnyShapeThatCanBeCut) {
  std::mt19937_64 random(7);
  const auto between = [&](int low, int high) { return low + int(random() % std::uint64_t(high - low + 1)); };
  std::map<int, int> cut;
  for (int round = 0; round < 100; ++round) {
    Case c = small_case(std::array{ElementType::f32, ElementType::bf16, ElementType::f16}[std::size_t(between(0, 2))]);
    c.model.layers = between(0, 2);
    c.model.heads = std::array{2, 3, 5, 7, 8, 11, 15, 16}[std::size_t(between(0, 7))];
    c.model.width = c.model.heads * 2 * between(1, 2);
    c.model.context = between(2, 24);
    c.model.vocab = between(8, 70);
    c.model.tied = between(0, 1) == 1;
    c.checkpointing.every = between(0, 1);
    ParallelPlan parallel;
    parallel.tensor = 1 << between(1, 3);
    parallel.sequence_parallel = between(0, 1) == 1;
    if (!problem(c.model, parallel).empty()) continue;
    ++cut[parallel.tensor];
    EXPECT_EQ(difference(of_one_way(c), of_ways(c, parallel.tensor, parallel.sequence_parallel)), "")
        << c.model.heads << " heads, context " << c.model.context << ", vocabulary " << c.model.vocab << ", "
        << parallel.tensor << " ways, sequence parallelism " << parallel.sequence_parallel;
  }
  for (const int ways : {2, 4, 8}) EXPECT_GT(cut[ways], 2) << ways << " ways";
}

// Two query heads a key head, and an mlp of 44 columns in slabs of 6, the last of 2.
Case llama_case(ElementType type = ElementType::f32) {
  Case c = small_case(type);
  c.model.family = "llama";
  c.model.tied = false;
  c.model.heads = 16;
  c.model.kv_heads = 8;
  c.model.ffn = 44;
  return c;
}

TEST(TensorModel, ALlamaToo) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16})
    expect_same(llama_case(type), "llama");
  Case c = llama_case();
  c.model.tied = true;
  c.model.frozen = {"model.layers.0.input_layernorm.weight", "*gate_up_proj.weight"};
  expect_same(c, "tied and frozen");
  c = llama_case();
  c.checkpointing.every = 2;
  expect_same(c, "a segment of two layers");
  c = llama_case(ElementType::bf16);
  c.defers = true;
  expect_same(c, "two parts");
}

TEST(TensorModel, ActivationsAreTheWaysShare) {
  const Case c = small_case();
  const auto peak = [&](int ways, bool sequence_parallel) {
    ParallelPlan parallel;
    parallel.tensor = ways;
    parallel.sequence_parallel = sequence_parallel;
    const TrainPlan plan = plan_of(c, parallel);
    std::size_t bytes = 0;
    sim::World world(world_of(1));
    world.run([&](Rank& rank) {
      const Parameters parameters(c.model, false, model_part(c.model, parallel, 0, 0));
      std::optional<TensorAxis> axis;
      if (ways > 1) axis.emplace(rank.device, tensor_shape(plan, kSamples, true), ways, 0, PlantedBug{});
      const auto models = make_models(rank.device, plan, parameters, 0, kSamples, 1, axis ? &*axis : nullptr);
      bytes = rank.device.use(MemoryTag::activations, Space::device).now;
    });
    return bytes;
  };
  const std::size_t one = peak(1, false);
  EXPECT_LT(peak(4, false), one);
  EXPECT_LT(peak(4, true), peak(4, false));
  EXPECT_LT(peak(8, true), one / 4);
}

TEST(TensorModel, MistakesShow) {
  struct Mistake {
    Bug bug;
    bool sequence_parallel;
    const char* first;  // parameter that is wrong
  };
  for (const Mistake& m :
       {Mistake{Bug::lost_partial_sum, false, "wte.weight"}, Mistake{Bug::lost_partial_sum, true, "wte.weight"},
        Mistake{Bug::unreduced_norm_gradients, true, "h.0.ln_1.weight"},
        Mistake{Bug::local_head_dropout, false, "wte.weight"}}) {
    Case c = small_case();
    const Gradients whole = of_one_way(c);
    c.bug.bug = m.bug;
    const std::string found = difference(whole, of_ways(c, 2, m.sequence_parallel));
    EXPECT_TRUE(found.starts_with(m.first)) << name(m.bug) << ": " << found;
  }
}

TEST(TensorModel, MistakesOfALlamaShow) {
  for (const Bug bug : {Bug::lost_partial_sum, Bug::unreduced_norm_gradients, Bug::local_head_dropout}) {
    Case c = llama_case();
    const Gradients whole = of_one_way(c);
    c.bug.bug = bug;
    EXPECT_NE(difference(whole, of_ways(c, 2, true)), "") << name(bug);
  }
}

TEST(TensorModel, EveryWaitIsNeeded) {
  for (const Edge edge : {Edge::tensor_part_made, Edge::tensor_part_arrived}) {
    Case c = small_case();
    c.bug.bug = Bug::skip_wait;
    c.bug.edge = edge;
    EXPECT_NE(of_ways(c, 2, true).races, "") << name(edge);
  }
}

TEST(TensorModel, AWayWithNothingIsRefusedWithTheReason) {
  ModelPlan model = small_case().model;
  ParallelPlan parallel;
  parallel.tensor = 8;
  EXPECT_EQ(problem(model, parallel), "");
  model.heads = 4;
  EXPECT_NE(problem(model, parallel).find("leaves the last rank without any"), std::string::npos)
      << problem(model, parallel);
  model.heads = 8, model.context = 9;  // segments of two tokens, five of them
  EXPECT_EQ(problem(model, parallel), "");
  parallel.sequence_parallel = true;
  EXPECT_NE(problem(model, parallel).find("a context of 9"), std::string::npos) << problem(model, parallel);
  parallel.tensor = 3;
  EXPECT_NE(problem(model, parallel).find("1, 2, 4 or 8"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::test
