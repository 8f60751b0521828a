#include "mlp_family.h"

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/layout/parameter_list.h"
#include "runtime/model/gpt2_ops.h"

namespace {

using namespace seeksim::runtime;
using seeksim::kernels::Index;
using seeksim::kernels::slab_size;

constexpr int kWeight = 0;  // the only part of a layer

class Mlp final : public Model {
 public:
  Mlp(Device& device, const TrainPlan& plan, const Parameters& parameters, std::size_t piece, Index samples_max,
      bool mistaken)
      : T_(plan.definition.model.context),
        C_(plan.definition.model.width),
        V_(plan.definition.model.vocab),
        parameters_(parameters),
        piece_(parameters.pieces()[piece]),
        last_(piece + 1 == parameters.pieces().size()),
        mistaken_(mistaken),
        rows_max_(samples_max * T_) {
    const auto floats = [&](const char* name, Index n) {
      return device.allocate(std::size_t(n) * sizeof(float), MemoryTag::activations, name);
    };
    tokens_ = device.allocate(std::size_t(2 * rows_max_) * sizeof(std::int32_t), MemoryTag::data, "tokens, targets");
    x_ = floats("residual stream", (piece_.layers() + 1) * rows_max_ * C_);
    h_ = floats("before gelu", std::max(piece_.layers(), 1) * rows_max_ * C_);
    branch_ = floats("branch", rows_max_ * C_);
    dx_ = floats("d residual", rows_max_ * C_);
    logits_ = floats("logits", rows_max_ * V_);
    losses_ = floats("losses", rows_max_ + samples_max);
  }

  VecView<std::int32_t> inputs(Index samples) const override {
    return {tokens_.get(), 0, piece_.embeds ? samples * T_ : 0};
  }
  VecView<std::int32_t> targets(Index samples) const override {
    return {tokens_.get(), rows_max_, piece_.heads ? samples * T_ : 0};
  }
  AnyVec arriving(Index samples) override { return flat(x(samples, piece_.first)); }
  AnyVec leaving(Index samples) override { return flat(x(samples, piece_.end)); }
  AnyVec gradient_in(Index samples) override { return flat(dx(samples)); }
  AnyVec gradient_out(Index samples) override { return flat(dx(samples)); }

  void forward(Launcher& launch, Weights& weights, const Batch& batch) override {
    const Index n = batch.samples;
    if (piece_.embeds) {
      weights.fetch(0);
      launch(
          "wte", SEEKSIM_SITE, memory_cost(2 * n * T_ * C_),
          [T = T_](Lane lane, Vec<const std::int32_t> tokens, Mat<const float> table, Mat<float> rows) {
            seeksim::kernels::embedding_forward<float>(lane, tokens, T, table, {}, rows);
          },
          reads(inputs(n)), table(weights, parameters_.wte()), x(n, 0));
      weights.release(0);
    }
    for (int l = piece_.first; l < piece_.end; ++l) {
      launch.layer(l);
      weights.fetch(1 + l);
      product<float, float>(launch, w(l).name, SEEKSIM_SITE, Trans::no, Trans::no, x(n, l), table(weights, w(l)),
                            h(n, l), 0);
      launch(
          "gelu", SEEKSIM_SITE, memory_cost(2 * n * T_ * C_, 10),
          [](Lane lane, Mat<const float> in, Mat<float> out) { seeksim::kernels::gelu_forward<float>(lane, in, out); },
          reads(h(n, l)), branch(n));
      launch(
          "residual", SEEKSIM_SITE, memory_cost(3 * n * T_ * C_),
          [](Lane lane, Mat<const float> a, Mat<const float> b, Mat<float> sum) {
            seeksim::kernels::add<float>(lane, a, b, sum);
          },
          reads(x(n, l)), reads(branch(n)), x(n, l + 1));
      weights.release(1 + l);
    }
    launch.layer(-1);
    if (!piece_.heads) return;
    weights.fetch(head_module());
    product<float, float>(launch, "logits", SEEKSIM_SITE, Trans::no, Trans::yes, x(n, piece_.end),
                          table(weights, parameters_.head()), logits(n), 0);
    weights.release(head_module());
  }

  void loss(Launcher& launch, Index samples, float scale) override {
    launch(
        "logits", SEEKSIM_SITE, memory_cost(2 * samples * T_ * V_, 6),
        [scale](Lane lane, Mat<float> in_place, Vec<const std::int32_t> target, Vec<float> each) {
          seeksim::kernels::softmax_cross_entropy<float>(lane, in_place, target, scale, each, in_place);
        },
        logits(samples), reads(targets(samples)), token_losses(samples));
    launch(
        "losses", SEEKSIM_SITE, memory_cost(samples * T_),
        [T = T_](Lane lane, Vec<const float> tokens, Vec<float> sums) {
          seeksim::kernels::sample_losses(lane, tokens, T, sums);
        },
        reads(token_losses(samples)), losses_of_samples(samples));
  }

  // Gradients are opened from the end of their space to its front: the loss, the head's share, the layers, the table.
  void backward(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                std::span<const GradientBlock> blocks, GradientSink& sink) override {
    const Index n = batch.samples;
    if (last_) sum_losses(launch, loss_factor, blocks, sink);
    if (piece_.heads) {
      weights.fetch(head_module());
      weight_grad(launch, parameters_.head(), parameters_.head_gradient_offset(), logits(n), x(n, piece_.end), T_,
                  blocks, sink);
      product<float, float>(launch, "logits", SEEKSIM_SITE, Trans::no, Trans::no, logits(n),
                            table(weights, parameters_.head()), dx(n), slab_size(V_));
      weights.release(head_module());
    }
    for (int l = piece_.end - 1; l >= piece_.first; --l) {
      launch.layer(l);
      weights.fetch(1 + l);
      launch(
          "gelu", SEEKSIM_SITE, memory_cost(3 * n * T_ * C_, 8),
          [](Lane lane, Mat<const float> dy, Mat<const float> in, Mat<float> d) {
            seeksim::kernels::gelu_backward<float>(lane, dy, in, d);
          },
          reads(dx(n)), reads(h(n, l)), branch(n));
      weight_grad(launch, w(l), w(l).offset, x(n, l), branch(n), mistaken_ ? 0 : T_, blocks, sink);
      // The branch before gelu has served: its place takes what goes back through the weight.
      product<float, float>(launch, w(l).name, SEEKSIM_SITE, Trans::no, Trans::yes, branch(n), table(weights, w(l)),
                            h(n, l), 0);
      launch(
          "residual", SEEKSIM_SITE, memory_cost(3 * n * T_ * C_),
          [](Lane lane, Mat<float> sum, Mat<const float> b) { seeksim::kernels::add<float>(lane, sum, b, sum); }, dx(n),
          reads(h(n, l)));
      weights.release(1 + l);
    }
    launch.layer(-1);
    if (!piece_.embeds) return;
    weights.fetch(0);  // nothing of it is used; every pass fetches every module in turn
    table_grad(launch, n, blocks, sink);
    weights.release(0);
  }

  void backward_input(Launcher&, Weights&, const Batch&) override {
    SEEKSIM_CHECK(false, "%s", "refused by problem()");
  }
  void backward_weight(Launcher&, Weights&, const Batch&, float, std::span<const GradientBlock>,
                       GradientSink&) override {
    SEEKSIM_CHECK(false, "%s", "refused by problem()");
  }

 private:
  int head_module() const { return parameters_.layers() + 1; }
  const ParameterInfo& w(int l) const { return parameters_.layer(l, kWeight); }
  static AnyVec flat(MatView<float> m) { return {m.buffer, m.offset, m.rows * m.cols, ElementType::f32}; }
  MatView<const float> table(Weights& weights, const ParameterInfo& p) const {
    const VecView<const float> flat = weights.of(p).as<const float>();
    return {flat.buffer, flat.offset, p.rows(), p.cols(), p.cols()};
  }
  MatView<float> x(Index samples, int l) const {  // (R, C), the residual stream into layer l
    return mat<float>(*x_, (l - piece_.first) * rows_max_ * C_, samples * T_, C_);
  }
  MatView<float> h(Index samples, int l) const {  // (R, C)
    return mat<float>(*h_, (l - piece_.first) * rows_max_ * C_, samples * T_, C_);
  }
  MatView<float> branch(Index samples) const { return mat<float>(*branch_, 0, samples * T_, C_); }
  MatView<float> dx(Index samples) const { return mat<float>(*dx_, 0, samples * T_, C_); }
  MatView<float> logits(Index samples) const { return mat<float>(*logits_, 0, samples * T_, V_); }
  VecView<float> token_losses(Index samples) const { return vec<float>(*losses_, 0, samples * T_); }
  VecView<float> losses_of_samples(Index samples) const { return vec<float>(*losses_, rows_max_, samples); }

  // dw = a^T b of each block: a sample's tokens are one chain, samples are leaves of the tree (K-segments of T rows).
  void weight_grad(Launcher& launch, const ParameterInfo& p, Index offset, MatView<const float> a,
                   MatView<const float> b, Index segment, std::span<const GradientBlock> blocks, GradientSink& sink) {
    if (p.frozen) return;
    for (Index i = 0; i < Index(blocks.size()); ++i) {
      const Index first = blocks[i].first * T_, rows = blocks[i].count * T_;
      const VecView<float> dw = sink.open(i, offset, p.size);
      product<float, float>(launch, p.name, SEEKSIM_SITE, Trans::yes, Trans::no, a.row_range(first, rows),
                            b.row_range(first, rows), {dw.buffer, dw.offset, p.rows(), p.cols(), p.cols()}, segment);
    }
    sink.close(offset, p.size);
  }

  void table_grad(Launcher& launch, Index samples, std::span<const GradientBlock> blocks, GradientSink& sink) {
    const ParameterInfo& wte = parameters_.wte();
    if (wte.frozen) return;
    for (Index i = 0; i < Index(blocks.size()); ++i) {
      const Index first = blocks[i].first * T_, rows = blocks[i].count * T_;
      const VecView<float> dw = sink.open(i, wte.offset, wte.size);
      launch(
          wte.name, SEEKSIM_SITE, memory_cost(rows * C_ + wte.size),
          [T = T_](Lane lane, Vec<const std::int32_t> tokens, Mat<const float> dy, Mat<float> d) {
            seeksim::kernels::embedding_backward<float>(lane, tokens, T, dy, d);
          },
          reads(inputs(samples).part(first, rows)), reads(dx(samples).row_range(first, rows)),
          MatView<float>{dw.buffer, dw.offset, V_, C_, C_});
    }
    sink.close(wte.offset, wte.size);
  }

  // Called on the last piece that a rank has; where the head is another stage's, it adds nothing.
  void sum_losses(Launcher& launch, float factor, std::span<const GradientBlock> blocks, GradientSink& sink) {
    const Index offset = parameters_.loss_offset();
    for (Index i = 0; i < Index(blocks.size()); ++i) {
      const Index count = piece_.heads ? blocks[i].count : 0;
      launch(
          "loss", SEEKSIM_SITE, memory_cost(blocks[i].count),
          [factor](Lane lane, Vec<const float> losses, Vec<float> sum) {
            seeksim::kernels::tree_fold(lane, losses, sum, factor);
          },
          reads(vec<float>(*losses_, rows_max_ + blocks[i].first, count)), sink.open(i, offset, 1));
    }
    sink.close(offset, 1);
  }

  Index T_, C_, V_;
  const Parameters& parameters_;
  const ModelPiece piece_;
  bool last_, mistaken_;
  Index rows_max_;
  BufferPtr tokens_, x_, h_, branch_, dx_, logits_, losses_;
};

}  // namespace

std::vector<ParameterInfo> MlpFamily::parameters(const ModelPlan& plan, bool decay_all) const {
  static constexpr const char* kParts[] = {"w"};
  static const LayerNames names("layers", kParts);
  ParameterList list(decay_all);
  list.whole(EmbeddingPart::tokens, "wte", {plan.vocab, plan.width}, Init::normal);
  for (int l = 0; l < plan.layers; ++l) {
    list.begin_module(l + 1);
    list.whole(kWeight, names.of(l, kWeight), {plan.width, plan.width}, Init::residual);
  }
  return list.take();
}

std::vector<std::unique_ptr<Model>> MlpFamily::models(Device& device, const TrainPlan& plan,
                                                      const Parameters& parameters, std::size_t piece,
                                                      Index samples_max, int count, TensorAxis*) const {
  std::vector<std::unique_ptr<Model>> all;
  for (int i = 0; i < count; ++i)
    all.push_back(std::make_unique<Mlp>(device, plan, parameters, piece, samples_max, mistaken_));
  return all;
}

std::string MlpFamily::problem(const TrainPlan& plan) const {
  const ModelPlan& model = plan.definition.model;
  if (plan.layout.parallel.tensor > 1) return "an mlp has no tensor ways";
  if (plan.layout.parallel.defers()) return "an mlp's backward is in one part: use another schedule";
  if (plan.layout.checkpointing.any()) return "an mlp keeps its activations: take \"checkpointing\" out";
  if (plan.definition.precision != PrecisionPlan{}) return "an mlp is trained in fp32";
  if (!model.tied || model.logit_scale || model.dropout.any()) return "an mlp is tied, without logit_scale and dropout";
  return "";
}
