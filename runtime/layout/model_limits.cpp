#include "runtime/layout/model_limits.h"

#include <algorithm>

#include "kernels/slabs.h"
#include "runtime/layout/parameter_list.h"

namespace seeksim::runtime {

bool is_known(const ModelPlan& model) { return model.own != nullptr || model.llama() || model.family == "gpt2"; }

std::string problem(const ModelPlan& model) {
  struct Size {
    const char* name;
    int value, least, most;
  };
  const Size sizes[] = {{"layers", model.layers, 0, LayerNames::kLayersMax},
                        {"width", model.width, 1, 1'000'000},
                        {"heads", model.heads, 1, 100'000},
                        {"context", model.context, 1, 10'000'000},
                        {"vocab", model.vocab, 1, 10'000'000},
                        {"kv_heads", model.kv_heads, 0, 100'000},
                        {"ffn", model.ffn, 0, 10'000'000},
                        {"experts", model.experts.count, 0, ExpertsPlan::kMost}};
  for (const Size& size : sizes) {
    if (size.value < size.least || size.value > size.most)
      return std::string(size.name) + " is " + std::to_string(size.value) + ", not from " + std::to_string(size.least) +
             " to " + std::to_string(size.most);
  }
  if (model.own != nullptr || !is_known(model)) return "";  // its family's own matter
  const std::string heads = std::to_string(model.heads) + " heads";
  if (model.width % model.heads != 0) return "width " + std::to_string(model.width) + " is no multiple of " + heads;
  if (!model.llama()) return model.experts.on() ? "experts, of which a GPT-2 has none" : "";
  if (model.heads % model.key_heads() != 0)
    return heads + " are no whole number of groups for " + std::to_string(model.key_heads()) + " of keys";
  if (model.width / model.heads % 2 != 0)
    return "heads of " + std::to_string(model.width / model.heads) + " have no two halves for rotary positions";
  const ExpertsPlan& experts = model.experts;
  const int most = std::min(experts.count, ExpertsPlan::kMostPerToken);
  if (experts.on() && (experts.per_token < 1 || experts.per_token > most))
    return std::to_string(experts.per_token) + " experts a token, not from 1 to " + std::to_string(most);
  const int dense = experts.dense_layers, shared = experts.shared;
  if (experts.on() && (dense < 0 || dense >= std::max(model.layers, 1)))
    return std::to_string(dense) + " layers without experts, of " + std::to_string(model.layers) + " in all";
  if (experts.on() && (shared < 0 || shared > ExpertsPlan::kMostShared))
    return std::to_string(shared) + " shared experts, not from 0 to " + std::to_string(ExpertsPlan::kMostShared);
  if (experts.on() && experts.slabs && model.hidden() % kernels::kSlabs != 0)
    return "the 8 slabs of an expert are equal: a width of " + std::to_string(model.hidden()) +
           " inside it is no multiple of 8";
  return "";
}

}  // namespace seeksim::runtime
