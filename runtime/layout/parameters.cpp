#include "runtime/layout/parameters.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/check.h"
#include "kernels/fused_attention.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "kernels/slabs.h"
#include "runtime/layout/context_cut.h"
#include "runtime/layout/family.h"
#include "runtime/layout/gpt2_parameters.h"
#include "runtime/layout/llama_parameters.h"
#include "runtime/layout/matrices.h"
#include "runtime/layout/model_limits.h"
#include "runtime/layout/parameter_list.h"
#include "runtime/plan/optimizer_kinds.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

bool is_frozen(const ModelPlan& plan, std::string_view name) {
  return std::any_of(plan.frozen.begin(), plan.frozen.end(),
                     [name](const std::string& pattern) { return matches(pattern, name); });
}

}  // namespace

std::vector<ParameterInfo> whole_model(const ModelPlan& plan, bool decay_all) {
  std::vector<ParameterInfo> all = plan.own != nullptr ? plan.own->parameters(plan, decay_all)
                                   : plan.llama()      ? llama_parameters(plan, decay_all)
                                                       : gpt2_parameters(plan, decay_all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ParameterInfo& p = all[i];
    p.number = std::uint32_t(i);
    p.size = p.whole_size = p.rows() * p.cols();
    if (p.experts > 0) p.of_expert = p.whole_expert = p.size / p.experts;
    p.frozen = is_frozen(plan, p.name);
  }
  return all;
}

// ---- which part is whose -------------------------------------------------------------------------------------------

ModelPart model_part(const ModelPlan& model, const ParallelPlan& parallel, int stage, int way) {
  if (const std::string why = problem(model, parallel); !why.empty()) throw std::invalid_argument(why);
  const int count = parallel.pieces();
  std::vector<int> bounds = {0};
  for (const int layers : parallel.layers) bounds.push_back(bounds.back() + layers);
  if (parallel.layers.empty()) bounds = partition_uniform(model.layers, count);
  ModelPart part;
  part.way = way;
  part.ways = parallel.ways();
  part.by_experts = parallel.expert > 1;
  part.by_tokens = parallel.context > 1;
  part.tensor_in_group = parallel.tensor;
  for (int piece = stage; piece < count; piece += parallel.pipeline) {
    part.pieces.push_back({bounds[std::size_t(piece)], bounds[std::size_t(piece) + 1], piece == 0, piece + 1 == count});
  }
  return part;
}

namespace {

// The norm adds experts pairwise, so that a rank's must be a node of that tree.
std::string expert_problem(const ModelPlan& model, const ParallelPlan& parallel) {
  const int experts = model.experts.count, ranks = parallel.expert;
  if (ranks == 1) return "";
  if (experts % ranks != 0)
    return std::to_string(experts) + " experts cannot be divided evenly among " + std::to_string(ranks) + " ranks";
  const int each = experts / ranks;
  if ((each & (each - 1)) == 0) return "";
  return "each of " + std::to_string(ranks) + " ranks would have " + std::to_string(each) +
         " experts: the gradient norm adds them pairwise, so it must be 1, 2, 4, 8, ...";
}

// Each rank of a context group has whole segments of a sample's tokens, and while it attends whole key heads.
std::string context_problem(const ModelPlan& model, const ParallelPlan& parallel) {
  if (parallel.context == 1) return "";
  const auto number = [](long long n) { return std::to_string(n); };
  const ContextCut cut = context_cut(model, parallel);
  if (parallel.context != 2 && parallel.context != 4 && parallel.context != 8)
    return "context parallelism is exact on 1, 2, 4 or 8 ranks, since a sample has 8 segments; not on " +
           number(parallel.context);
  if (cut.chunks() > kernels::kSlabs)
    return "two chunks for each of " + number(parallel.context) + " ranks are more than the 8 segments of a sample";
  if (model.context % kernels::kSlabs != 0)
    return "context parallelism gives each rank whole segments of an eighth of a sample: a context of " +
           number(model.context) + " tokens is no multiple of 8";
  if (parallel.ring_attention) {
    if (!model.fused_attention)
      return "ring attention joins blocks of keys in a fixed order, which standard attention's sums do not have";
    const Index blocks = cut.chunk_size() / kernels::kFusedBlock;
    if (blocks == 0 || cut.chunk_size() % kernels::kFusedBlock != 0 || (blocks & (blocks - 1)) != 0)
      return "ring attention joins chunks as nodes of the tree over blocks of 32 keys: a chunk of " +
             number(cut.chunk_size()) + " tokens is not 32, 64, 128, ...";
  } else if (model.key_heads() % parallel.context != 0) {
    return number(model.key_heads()) + " key heads cannot be divided evenly among " + number(parallel.context) +
           " ranks while they attend; ring attention does not divide them";
  }
  if (!model.segmented_gradients)
    return "one chain over a sample's tokens makes its gradients of weights, and ranks with tokens of their own have "
           "only links of it";
  return "";
}

}  // namespace

std::string problem(const ModelPlan& model, const ParallelPlan& parallel) {
  if (std::string why = problem(model); !why.empty()) return why;
  const auto number = [](long long n) { return std::to_string(n); };
  const int count = parallel.pieces();
  if (!parallel.layers.empty()) {
    long long sum = 0;
    for (const int layers : parallel.layers) {
      if (layers < 0) return "a piece of " + number(layers) + " layers";
      sum += layers;
    }
    if (int(parallel.layers.size()) != count) {
      return number((long long)parallel.layers.size()) + " pieces are given, and " + number(parallel.pipeline) +
             " stages with " + number(parallel.virtual_stages) + " each need " + number(count);
    }
    if (sum != model.layers) return "the pieces have " + number(sum) + " layers, the model " + number(model.layers);
  } else if (count > 1 && model.layers < count) {
    return number(model.layers) + " layers do not make " + number(count) + " pieces of a pipeline";
  }
  if (parallel.tensor != 1 && parallel.tensor != 2 && parallel.tensor != 4 && parallel.tensor != 8) {
    return "tensor parallelism is exact on 1, 2, 4 or 8 ranks, since each parameter has 8 slabs; not on " +
           number(parallel.tensor);
  }
  if (std::string why = expert_problem(model, parallel); !why.empty()) return why;
  if (std::string why = context_problem(model, parallel); !why.empty()) return why;
  if (parallel.tensor == 1) return "";
  if (parallel.sequence_parallel && kernels::filled_ways(model.context, parallel.tensor) < parallel.tensor) {
    return "sequence parallelism gives each of the " + number(parallel.tensor) + " tensor-parallel ranks segments of " +
           number(kernels::slab_size(model.context)) + " tokens: a context of " + number(model.context) +
           " leaves the last rank without any";
  }
  if (model.experts.on() && !model.experts.slabs)
    return "an expert's sums go over its whole width, and tensor-parallel ranks have slabs of it";
  for (const ParameterInfo& p : whole_model(model, false)) {
    const Index rows_before_last = (parallel.tensor - 1) * (kernels::kSlabs / parallel.tensor) * p.slab_rows();
    if (!p.splits || rows_before_last < p.rows()) continue;
    return "tensor parallelism gives each of the " + number(parallel.tensor) + " ranks slabs of " +
           number(p.slab_rows()) + " rows: '" + p.name + "' with " + number(p.rows()) +
           " rows leaves the last rank without any (use more heads or a larger vocabulary)";
  }
  return "";
}

namespace {

ShardInfo slabs_of_way(const ParameterInfo& whole, Index all, const ModelPart& part) {
  const Index slabs = kernels::kSlabs / part.tensor_ways() * whole.slab;
  const Index first = std::min(part.tensor_way() * slabs, all);
  return {first, std::min(first + slabs, all) - first};
}

}  // namespace

ShardInfo range_of_way(const ParameterInfo& whole, const ModelPart& part) {
  if (whole.experts == 0)
    return part.cuts_slabs(whole) ? slabs_of_way(whole, whole.whole_size, part) : ShardInfo{0, whole.whole_size};
  if (!part.cuts_experts(whole)) return {0, whole.whole_size};
  const Index own = whole.experts / part.expert_ranks() * whole.whole_expert;
  return {part.expert_rank() * own, own};
}

ShardInfo range_in_expert(const ParameterInfo& whole, const ModelPart& part) {
  return part.cuts_slabs(whole) ? slabs_of_way(whole, whole.whole_expert, part) : ShardInfo{0, whole.whole_expert};
}

// ---- the flat space
// --------------------------------------------------------------------------------------------------

Parameters::Parameters(const ModelPlan& plan, bool decay_all, ModelPart part)
    : part_(std::move(part)), layers_(plan.layers), tied_(plan.tied) {
  if (part_.pieces.empty()) part_.pieces.push_back({0, layers_, true, true});
  const std::vector<ParameterInfo> whole = whole_model(plan, decay_all);
  for (const ModelPiece& piece : part_.pieces) take(whole, piece);
  place();
}

Parameters::Parameters(const ModelPlan& plan, const OptimizerPlan& optimizer, ModelPart part)
    : Parameters(plan, optimizer.decay_all, std::move(part)) {
  if (kind_of(optimizer).takes_matrices) keep_matrices(plan);
}

void Parameters::keep_matrices(const ModelPlan& plan) {
  for (ParameterInfo& p : all_) {
    if (p.frozen) continue;
    p.matrices = matrices_of(plan, p);
    p.undivided = !p.matrices.empty();
  }
}

// A tied head on a stage without the embeddings lies where a head of its own would.
void Parameters::take(const std::vector<ParameterInfo>& whole, const ModelPiece& piece) {
  const std::size_t number = std::size_t(&piece - part_.pieces.data());
  const auto add = [&](const ParameterInfo& p) {
    all_.push_back(p);
    if (part_.cuts(p)) cut_to_way(all_.back());
    piece_of_.push_back(number);
  };
  for (const ParameterInfo& p : whole) {
    const bool before_scale = p.module > layers_ && p.part == int(HeadPart::logit_scale);
    if (before_scale && piece.heads && tied_ && !embeds()) add(whole.front());
    if (piece.has(p.module, layers_)) add(p);
  }
  const bool has_scale = whole.back().module > layers_ && whole.back().part == int(HeadPart::logit_scale);
  if (piece.heads && tied_ && !embeds() && !has_scale) add(whole.front());
}

void Parameters::cut_to_way(ParameterInfo& p) const {
  const ShardInfo range = range_of_way(p, part_);
  p.first = range.offset;
  p.size = range.size;
  if (p.experts > 0) {
    const ShardInfo of_expert = range_in_expert(p, part_);
    p.first += of_expert.offset;
    p.of_expert = of_expert.size;
    p.size = range.size / p.whole_expert * of_expert.size;
  }
  p.shape[0] = p.size / p.cols();
}

void Parameters::place() {
  modules_.resize(std::size_t(modules()));
  gradient_begins_.assign(part_.pieces.size(), 0);
  for (const bool frozen : {false, true}) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      ParameterInfo& p = all_[i];
      if (p.frozen != frozen) continue;
      p.offset = size_;
      size_ += p.size;
      (frozen ? frozen_ : trainable_).push_back(&p);
      for (std::size_t piece = piece_of_[i] + 1; piece < part_.pieces.size() && !frozen; ++piece)
        gradient_begins_[piece] = size_;
    }
    if (!frozen) trainable_size_ = size_;
  }
  for (const ParameterInfo& p : all_) {
    const bool is_head = tied_ && p.module == 0 && p.part == int(EmbeddingPart::tokens) && heads();
    if (p.module != 0 || embeds()) modules_[std::size_t(p.module)].push_back(&p);
    if (is_head) modules_.back().push_back(&p);
  }
  const auto place_in_head = [](const ParameterInfo* p) { return p->module == 0 ? int(HeadPart::head) : p->part; };
  std::stable_sort(modules_.back().begin(), modules_.back().end(),
                   [&](const auto* a, const auto* b) { return place_in_head(a) < place_in_head(b); });
  // A whole model with nothing to train is a mistake. A stage may hold frozen parameters alone.
  SEEKSIM_CHECK(trainable_size_ > 0 || !whole(), "all %zu parameters are frozen: nothing is left to train",
                all_.size());
}

const ParameterInfo* Parameters::find(int module, int part) const {
  if (tied_ && module > layers_ && part == int(HeadPart::head)) {
    const auto& here = modules_.back();
    const auto found = std::find_if(here.begin(), here.end(), [](const ParameterInfo* p) { return p->module == 0; });
    return found == here.end() ? nullptr : *found;
  }
  for (const ParameterInfo* p : modules_[std::size_t(module)]) {
    if (p->module == module && p->part == part) return p;
  }
  return nullptr;
}

const ParameterInfo* Parameters::numbered(std::uint32_t number) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const ParameterInfo& p) { return p.number == number; });
  return found == all_.end() ? nullptr : &*found;
}

const ParameterInfo& Parameters::checked(const ParameterInfo* found, int module, int part) const {
  SEEKSIM_CHECK(found != nullptr, "part %d of module %d is not on this rank", part, module);
  return *found;
}

// ---- names and initial values --------------------------------------------------------------------------------------

bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= name.size(); ++at) {
    if (matches(rest, name.substr(at))) return true;
  }
  return false;
}

std::vector<std::string> parameter_names(const ModelPlan& plan) {
  ModelPlan small = plan;
  small.layers = std::clamp(plan.layers, 0, LayerNames::kLayersMax);  // the plan is not checked yet
  small.width = small.heads = small.context = small.vocab = small.kv_heads = small.ffn = 1;
  small.experts.count = plan.experts.on() ? 1 : 0;
  small.experts.shared = std::clamp(plan.experts.shared, 0, 1);
  small.experts.dense_ffn = 1;
  small.frozen.clear();
  std::vector<std::string> names;
  for (const ParameterInfo& p : whole_model(small, false)) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> frozen_names(const ModelPlan& plan) {
  std::vector<std::string> names = parameter_names(plan);
  std::erase_if(names, [&](const std::string& name) { return !is_frozen(plan, name); });
  return names;
}

void draw_parameter(kernels::Lane lane, const ModelPlan& plan, std::uint64_t seed, Init init, std::uint32_t number,
                    kernels::Vec<float> out, Index first) {
  switch (init) {
    case Init::zeros:
      return kernels::fill_bits(lane, out, 0);
    case Init::ones:
      return kernels::fill_bits(lane, out, 0x3f800000u);
    case Init::normal:
      return kernels::fill_normal(lane, out, number, std::uint64_t(first), static_cast<float>(plan.init_stddev), seed);
    case Init::residual: {
      // The residual stream adds 2 * layers of these; GPT-2 keeps its variance by scaling each.
      const double stddev = plan.init_stddev / host_sqrt(2.0 * plan.layers);
      return kernels::fill_normal(lane, out, number, std::uint64_t(first), static_cast<float>(stddev), seed);
    }
  }
}

}  // namespace seeksim::runtime
