// A user opens our weights in PyTorch, and starts us from PyTorch's: the only place that knows both layouts.
#include "runtime/model/weights.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string_view>

#include "kernels/check.h"
#include "runtime/layout/gpt2_parameters.h"

namespace seeksim::runtime {
namespace {

// A tensor of Hugging Face's that is in one of our parameters.
struct TheirTensor {
  std::string name;
  std::vector<Index> shape;
  Index size() const { return shape[0] * (shape.size() > 1 ? shape[1] : 1); }
};

std::string renamed(const std::string& name, const std::string& ours, const std::string& theirs) {
  std::string out = name;
  return out.replace(out.find(ours), ours.size(), theirs);
}

// Of a gate_up_proj that is no expert's.
Index mlp_width(const ParameterInfo& p) { return p.whole_size / p.cols() / 2; }

// Mixtral's w1, w2 and w3: gate, down and up, as DeepSeek's files call them.
std::vector<TheirTensor> of_experts(const ModelShape& s, const ParameterInfo& p) {
  const bool mixtral = std::string_view(p.name).find("block_sparse_moe") != std::string_view::npos;
  const std::string gate = mixtral ? ".w1" : ".gate_proj", up = mixtral ? ".w3" : ".up_proj",
                    down = mixtral ? ".w2" : ".down_proj";
  std::vector<TheirTensor> all;
  for (Index e = 0; e < s.E; ++e) {
    const std::string number = std::to_string(e);
    if (p.layout == HfLayout::experts_down) {
      all.push_back({renamed(p.name, "down_proj", number + down), {s.C, s.F}});
      continue;
    }
    all.push_back({renamed(p.name, "gate_up_proj", number + gate), {s.F, s.C}});
    all.push_back({renamed(p.name, "gate_up_proj", number + up), {s.F, s.C}});
  }
  return all;
}

// One, but for what we store together.
std::vector<TheirTensor> their_tensors(const ModelShape& s, const ParameterInfo& p) {
  switch (p.layout) {
    case HfLayout::same:
    case HfLayout::qkv:
      return {{p.name, p.shape}};
    case HfLayout::transposed:
    case HfLayout::qkv_transposed:
      return {{p.name, {p.cols(), p.rows()}}};
    case HfLayout::grouped_qkv:
      return {{renamed(p.name, "qkv_proj", "q_proj"), {s.H * s.D, s.C}},
              {renamed(p.name, "qkv_proj", "k_proj"), {s.K * s.D, s.C}},
              {renamed(p.name, "qkv_proj", "v_proj"), {s.K * s.D, s.C}}};
    case HfLayout::gate_up:
      return {{renamed(p.name, "gate_up_proj", "gate_proj"), {mlp_width(p), s.C}},
              {renamed(p.name, "gate_up_proj", "up_proj"), {mlp_width(p), s.C}}};
    case HfLayout::experts_gate_up:
    case HfLayout::experts_down:
      return of_experts(s, p);
  }
  return {};
}

struct TheirRow {
  std::size_t tensor = 0;  // of their_tensors
  Index row = 0;
};

// Where our row is with Hugging Face.
TheirRow their_row(const ModelShape& s, const ParameterInfo& p, Index row) {
  if (p.layout == HfLayout::qkv || p.layout == HfLayout::qkv_transposed) {
    // Ours is (head, q|k|v, element), theirs (q|k|v, head, element).
    const Index head = row / (3 * s.D), part = row % (3 * s.D) / s.D, element = row % s.D;
    return {0, part * s.C + head * s.D + element};
  }
  if (p.layout == HfLayout::grouped_qkv) {
    const Index key_head = row / ((s.G + 2) * s.D), head = row / s.D % (s.G + 2), element = row % s.D;
    if (head < s.G) return {0, (key_head * s.G + head) * s.D + element};
    return {std::size_t(head - s.G + 1), key_head * s.D + element};
  }
  if (p.layout == HfLayout::gate_up || p.layout == HfLayout::experts_gate_up) {
    const Index F = p.layout == HfLayout::gate_up ? mlp_width(p) : s.F, expert = row / (2 * F), r = row % (2 * F);
    const Index slab = kernels::slab_size(F), first = r / (2 * slab) * slab, size = std::min(slab, F - first);
    const Index inside = r - 2 * first;
    return {std::size_t(2 * expert + inside / size), first + inside % size};
  }
  if (p.layout == HfLayout::experts_down) return {std::size_t(row / s.F), row % s.F};
  return {0, row};
}

// Calls visit(ours, tensor, theirs) for every element's two places.
template <class Visit>
void for_each_place(const ModelShape& s, const ParameterInfo& p, Visit visit) {
  const bool of_expert = p.layout == HfLayout::experts_down;
  const Index rows = p.rows(), cols = p.cols(), their_cols = of_expert ? s.F : rows;
  const bool transposed = of_expert || p.layout == HfLayout::transposed || p.layout == HfLayout::qkv_transposed;
  for (Index r = 0; r < rows; ++r) {
    const auto [tensor, row] = their_row(s, p, r);
    for (Index c = 0; c < cols; ++c) visit(r * cols + c, tensor, transposed ? c * their_cols + row : row * cols + c);
  }
}

void add_their_tensors(const ModelShape& s, const ParameterInfo& p, std::span<const float> flat,
                       std::vector<NamedTensor>& out) {
  const std::size_t first = out.size();
  for (TheirTensor& t : their_tensors(s, p)) {
    out.push_back({std::move(t.name), t.shape, std::vector<float>(static_cast<std::size_t>(t.size()))});
  }
  for_each_place(s, p, [&](Index ours, std::size_t tensor, Index theirs) {
    out[first + tensor].values[theirs] = flat[p.offset + ours];
  });
}

std::string shape_text(const std::vector<Index>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string without_prefix(const std::string& name) {
  const std::string prefix = "transformer.";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// Constants that older versions of transformers stored along with the weights: causal masks, frequencies.
bool is_constant(const std::string& name) {
  return (name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"))) ||
         name.ends_with(".rotary_emb.inv_freq");
}

class Import {
 public:
  Import(const Parameters& parameters, const ModelPlan& plan, std::span<float> flat)
      : parameters_(parameters), shape_(plan), flat_(flat) {}

  void run(const std::vector<TensorBytes>& tensors) {
    std::map<std::string, const TensorBytes*> given;
    for (const TensorBytes& tensor : tensors) {
      const std::string name = without_prefix(tensor.name);
      if (is_constant(name)) continue;
      if (!given.emplace(name, &in_fp32(tensor)).second) problems_ += "\n  given twice: " + name;
    }
    for (const ParameterInfo& p : parameters_.all()) {
      std::vector<const TensorBytes*> parts;
      bool fit = true;
      for (const TheirTensor& wanted : their_tensors(shape_, p)) {
        const auto found = given.find(wanted.name);
        if (found == given.end()) {
          problems_ += "\n  missing: " + wanted.name + " " + shape_text(wanted.shape);
          fit = false;
        } else {
          fit = fits(wanted, *found->second) && fit;
          parts.push_back(found->second);
          given.erase(found);
        }
      }
      if (fit) take(p, parts);
    }
    for (const auto& [name, tensor] : given) left_over(name, *tensor);
    if (!problems_.empty()) throw std::runtime_error("the weights do not fit the model:" + problems_);
  }

 private:
  // Every value of 16 bits is one of fp32.
  const TensorBytes& in_fp32(const TensorBytes& tensor) {
    if (tensor.dtype != DType::f16 && tensor.dtype != DType::bf16) return tensor;
    return widened_.emplace_back(to_bytes(to_floats(tensor)));
  }

  bool fits(const TheirTensor& wanted, const TensorBytes& tensor) {
    if (tensor.dtype != DType::f32) {
      problems_ += "\n  neither F32, F16 nor BF16: " + wanted.name;
    } else if (tensor.shape != wanted.shape) {
      problems_ += "\n  shape: " + wanted.name + " is " + shape_text(tensor.shape) + ", the model needs " +
                   shape_text(wanted.shape);
    } else if (tensor.bytes.size() != static_cast<std::size_t>(wanted.size()) * sizeof(float)) {
      problems_ += "\n  size: " + wanted.name + " holds " + std::to_string(tensor.bytes.size()) + " bytes";
    } else {
      return true;
    }
    return false;
  }

  void take(const ParameterInfo& p, const std::vector<const TensorBytes*>& parts) {
    for_each_place(shape_, p, [&](Index ours, std::size_t part, Index theirs) {
      std::memcpy(&flat_[p.offset + ours], parts[part]->bytes.data() + theirs * sizeof(float), sizeof(float));
    });
  }

  void left_over(const std::string& name, const TensorBytes& tensor) {
    if (name == "lm_head.weight" && parameters_.tied()) {
      const ParameterInfo& wte = parameters_.wte();
      const bool equal = tensor.dtype == DType::f32 && tensor.shape == wte.shape &&
                         std::memcmp(tensor.bytes.data(), &flat_[wte.offset], tensor.bytes.size()) == 0;
      if (!equal)
        problems_ +=
            "\n  lm_head.weight differs from " + std::string(wte.name) + ", but the model is tied (model.tied)";
    } else {
      problems_ += "\n  unexpected: " + name;
    }
  }

  const Parameters& parameters_;
  ModelShape shape_;
  std::span<float> flat_;
  std::deque<TensorBytes> widened_;
  std::string problems_;
};

}  // namespace

std::vector<NamedTensor> to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                         std::span<const float> flat) {
  SEEKSIM_CHECK(Index(flat.size()) >= parameters.size(), "%zu floats", flat.size());
  std::vector<NamedTensor> out;
  for (const ParameterInfo& p : parameters.all()) add_their_tensors(ModelShape(plan), p, flat, out);
  return out;
}

std::vector<NamedTensor> gradients_to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                                   std::span<const float> flat) {
  SEEKSIM_CHECK(Index(flat.size()) >= parameters.trainable_size(), "%zu floats", flat.size());
  std::vector<NamedTensor> out;
  for (const ParameterInfo* p : parameters.trainable()) add_their_tensors(ModelShape(plan), *p, flat, out);
  return out;
}

void from_hugging_face(const Parameters& parameters, const ModelPlan& plan, const std::vector<TensorBytes>& tensors,
                       std::span<float> flat) {
  SEEKSIM_CHECK(Index(flat.size()) >= parameters.size(), "%zu floats", flat.size());
  Import(parameters, plan, flat).run(tensors);
}

}  // namespace seeksim::runtime
