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

// With DeepSeek-V3's experts and Llama's attention: GLM-4.5's architecture, which can leave its own additions out.
// Gates by softmax: the first DeepSeek-MoE's, whose code comes with its weights.
Json deepseek_config(const ModelPlan& m) {
  const runtime::ExpertsPlan& x = m.experts;
  Json config = {{"architectures", {x.sigmoid ? "Glm4MoeForCausalLM" : "DeepseekForCausalLM"}},
                 {"model_type", x.sigmoid ? "glm4_moe" : "deepseek"},
                 {"intermediate_size", m.dense_hidden()},
                 {"moe_intermediate_size", m.hidden()},
                 {"n_routed_experts", x.count},
                 {"n_shared_experts", x.shared},
                 {"num_experts_per_tok", x.per_token},
                 {"first_k_dense_replace", x.dense_layers},
                 {"norm_topk_prob", x.normalized},
                 {"attention_bias", false}};
  if (x.sigmoid)
    config.update({{"routed_scaling_factor", x.scale},
                   {"n_group", 1},
                   {"topk_group", 1},
                   {"use_qk_norm", false},
                   {"partial_rotary_factor", 1.0}});
  else
    config.update({{"scoring_func", "softmax"}, {"moe_layer_freq", 1}, {"aux_loss_alpha", x.balance}});
  return config;
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
  if (m.experts.deepseek()) config.update(deepseek_config(m));
  if (!experts || m.experts.deepseek()) return config;
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
