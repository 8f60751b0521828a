// A user opens our weights in PyTorch, and starts us from PyTorch's: the only place that knows both layouts.
#include "runtime/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "kernels/check.h"
#include "runtime/gpt2_parameters.h"

namespace seeksim::runtime {
namespace {

// Hugging Face's column for our row of c_attn: ours is (head, q|k|v, element), theirs (q|k|v, head, element).
Index their_qkv(const Gpt2Shape& s, Index row) {
  const Index head = row / (3 * s.D), part = row % (3 * s.D) / s.D, element = row % s.D;
  return part * s.C + head * s.D + element;
}

std::vector<Index> their_shape(const ParameterInfo& p) {
  const bool transposed = p.layout == HfLayout::transposed || p.layout == HfLayout::qkv_transposed;
  return transposed ? std::vector<Index>{p.cols(), p.rows()} : p.shape;
}

// Calls visit(ours, theirs) for every element's two places.
template <class Visit>
void for_each_place(const Gpt2Shape& s, const ParameterInfo& p, Visit visit) {
  const Index rows = p.rows(), cols = p.cols();
  for (Index r = 0; r < rows; ++r) {
    const bool qkv = p.layout == HfLayout::qkv || p.layout == HfLayout::qkv_transposed;
    const Index their_row = qkv ? their_qkv(s, r) : r;
    for (Index c = 0; c < cols; ++c) {
      const bool same_order = p.layout == HfLayout::same || p.layout == HfLayout::qkv;
      visit(r * cols + c, same_order ? their_row * cols + c : c * rows + their_row);
    }
  }
}

NamedTensor their_tensor(const ModelPlan& plan, const ParameterInfo& p, std::span<const float> flat) {
  NamedTensor tensor{p.name, their_shape(p), std::vector<float>(static_cast<std::size_t>(p.size))};
  for_each_place(Gpt2Shape(plan), p, [&](Index ours, Index theirs) { tensor.values[theirs] = flat[p.offset + ours]; });
  return tensor;
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

// Constants that older versions of transformers stored along with the weights.
bool is_causal_mask(const std::string& name) {
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

class Import {
 public:
  Import(const Parameters& parameters, const ModelPlan& plan, std::span<float> flat)
      : parameters_(parameters), shape_(plan), flat_(flat) {}

  void run(const std::vector<TensorBytes>& tensors) {
    std::map<std::string, const TensorBytes*> given;
    for (const TensorBytes& tensor : tensors) {
      const std::string name = without_prefix(tensor.name);
      if (is_causal_mask(name)) continue;
      if (!given.emplace(name, &tensor).second) problems_ += "\n  given twice: " + name;
    }
    for (const ParameterInfo& p : parameters_.all()) {
      const auto found = given.find(p.name);
      if (found == given.end()) {
        problems_ += "\n  missing: " + std::string(p.name) + " " + shape_text(their_shape(p));
      } else {
        take(p, *found->second);
        given.erase(found);
      }
    }
    for (const auto& [name, tensor] : given) left_over(name, *tensor);
    if (!problems_.empty()) throw std::runtime_error("the weights do not fit the model:" + problems_);
  }

 private:
  bool fits(const ParameterInfo& p, const TensorBytes& tensor) {
    const std::string name = p.name;
    if (tensor.dtype != DType::f32) {
      problems_ += "\n  not F32: " + name;
    } else if (tensor.shape != their_shape(p)) {
      problems_ +=
          "\n  shape: " + name + " is " + shape_text(tensor.shape) + ", the model needs " + shape_text(their_shape(p));
    } else if (tensor.bytes.size() != static_cast<std::size_t>(p.size) * sizeof(float)) {
      problems_ += "\n  size: " + name + " holds " + std::to_string(tensor.bytes.size()) + " bytes";
    } else {
      return true;
    }
    return false;
  }

  void take(const ParameterInfo& p, const TensorBytes& tensor) {
    if (!fits(p, tensor)) return;
    for_each_place(shape_, p, [&](Index ours, Index theirs) {
      std::memcpy(&flat_[p.offset + ours], tensor.bytes.data() + theirs * sizeof(float), sizeof(float));
    });
  }

  void left_over(const std::string& name, const TensorBytes& tensor) {
    if (name == "lm_head.weight" && parameters_.tied()) {
      const ParameterInfo& wte = parameters_.wte();
      const bool equal = tensor.dtype == DType::f32 && tensor.shape == wte.shape &&
                         std::memcmp(tensor.bytes.data(), &flat_[wte.offset], tensor.bytes.size()) == 0;
      if (!equal) problems_ += "\n  lm_head.weight differs from wte.weight, but the model is tied (model.tied)";
    } else {
      problems_ += "\n  unexpected: " + name;
    }
  }

  const Parameters& parameters_;
  Gpt2Shape shape_;
  std::span<float> flat_;
  std::string problems_;
};

}  // namespace

std::vector<NamedTensor> to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                         std::span<const float> flat) {
  SEEKSIM_CHECK(Index(flat.size()) >= parameters.size(), "%zu floats", flat.size());
  std::vector<NamedTensor> out;
  for (const ParameterInfo& p : parameters.all()) out.push_back(their_tensor(plan, p, flat));
  return out;
}

std::vector<NamedTensor> gradients_to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                                   std::span<const float> flat) {
  SEEKSIM_CHECK(Index(flat.size()) >= parameters.trainable_size(), "%zu floats", flat.size());
  std::vector<NamedTensor> out;
  for (const ParameterInfo* p : parameters.trainable()) out.push_back(their_tensor(plan, *p, flat));
  return out;
}

void from_hugging_face(const Parameters& parameters, const ModelPlan& plan, const std::vector<TensorBytes>& tensors,
                       std::span<float> flat) {
  SEEKSIM_CHECK(Index(flat.size()) >= parameters.size(), "%zu floats", flat.size());
  Import(parameters, plan, flat).run(tensors);
}

}  // namespace seeksim::runtime
