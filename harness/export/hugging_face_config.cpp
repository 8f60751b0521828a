#include "harness/export/hugging_face_config.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using runtime::ModelPlan;

Json gpt2_config(const ModelPlan& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"n_layer", m.layers},
          {"n_embd", m.width},
          {"n_head", m.heads},
          {"n_positions", m.context},
          {"n_ctx", m.context},
          {"vocab_size", m.vocab},
          {"layer_norm_epsilon", m.norm_eps},
          {"embd_pdrop", m.dropout.embedding},
          {"attn_pdrop", m.dropout.attention},
          {"resid_pdrop", m.dropout.residual}};
}

Json llama_config(const ModelPlan& m) {
  const bool experts = m.experts.on();
  Json config = {{"architectures", {experts ? "MixtralForCausalLM" : "LlamaForCausalLM"}},
                 {"model_type", experts ? "mixtral" : "llama"},
                 {"hidden_act", "silu"},
                 {"num_hidden_layers", m.layers},
                 {"hidden_size", m.width},
                 {"num_attention_heads", m.heads},
                 {"num_key_value_heads", m.key_heads()},
                 {"head_dim", m.width / m.heads},
                 {"intermediate_size", m.hidden()},
                 {"max_position_embeddings", m.context},
                 {"vocab_size", m.vocab},
                 {"rms_norm_eps", m.norm_eps},
                 {"rope_theta", m.rope_theta}};
  if (!experts) return config;
  config["num_local_experts"] = m.experts.count;
  config["num_experts_per_tok"] = m.experts.per_token;
  config["output_router_logits"] = m.experts.balance > 0;
  config["router_aux_loss_coef"] = m.experts.balance;
  config["sliding_window"] = nullptr;
  return config;
}

}  // namespace

Json hugging_face_config(const ModelPlan& model, const char* dtype) {
  if (model.own != nullptr) return nullptr;
  Json config = model.llama() ? llama_config(model) : gpt2_config(model);
  config["initializer_range"] = model.init_stddev;
  config["tie_word_embeddings"] = model.tied;
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["torch_dtype"] = dtype;
  return config;
}

}  // namespace seeksim::harness
