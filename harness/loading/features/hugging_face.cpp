#include "harness/loading/features/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>

namespace seeksim::harness {
namespace {

const Json& default_of(const Json& config, const Json& standard, const std::string& key) {
  const auto given = config.find(key);
  if (given != config.end()) return *given;
  static const Json nothing;
  const auto usual = standard.find(key);
  return usual == standard.end() ? nothing : *usual;
}

// A key of theirs and ours for the same thing.
struct Same {
  const char* theirs;
  const char* ours;
};
// A value of theirs that these models can have; any other is not supported.
struct Only {
  const char* key;
  std::function<bool(const Json& value, const Json& config)> fits;
  const char* why;      // it is not supported
  bool changes_a_size;  // else a run without values takes it
};

// An architecture, as transformers names it.
struct Architecture {
  const char* type;    // "model_type"
  const char* family;  // of ours
  Json standard;       // what the class has where a file is silent
  std::vector<Same> same;
  std::vector<Only> only;
  Json own = Json::object();  // what ours are told besides
};

bool is_off(const Json& value, const Json&) { return value.is_null() || value == false || value == 0; }
bool is_on(const Json& value, const Json&) { return value.is_null() || value == true; }

std::int64_t whole(const Json& value) { return value.is_number_integer() ? value.get<std::int64_t>() : 0; }

bool is_the_usual_head(const Json& value, const Json& config) {
  const std::int64_t heads = whole(config.value("num_attention_heads", Json(32)));
  const std::int64_t width = whole(config.value("hidden_size", Json(4096)));
  return value.is_null() || (heads > 0 && whole(value) * heads == width);
}

// "rope_scaling", or "rope_parameters" since transformers 5.
bool scales_nothing(const Json& value, const Json&) {
  if (value.is_null()) return true;
  if (!value.is_object()) return false;
  const Json type = value.value("rope_type", value.value("type", Json("default")));
  return type == "default";
}

bool sees_all(const Json& value, const Json& config) {
  if (value.is_null() || config.value("use_sliding_window", Json(true)) == false) return true;
  const Json context = config.value("context", config.value("max_position_embeddings", Json(0)));
  return whole(value) >= whole(context);
}

template <class... Words>
std::function<bool(const Json&, const Json&)> one_of(Words... words) {
  return [=](const Json& value, const Json&) { return value.is_null() || ((value == words) || ...); };
}

const std::vector<Same> kLlamaKeys = {{"num_hidden_layers", "layers"},
                                      {"hidden_size", "width"},
                                      {"num_attention_heads", "heads"},
                                      {"num_key_value_heads", "kv_heads"},
                                      {"intermediate_size", "ffn"},
                                      {"max_position_embeddings", "context"},
                                      {"vocab_size", "vocab"},
                                      {"rms_norm_eps", "norm_eps"},
                                      {"initializer_range", "init_stddev"},
                                      {"tie_word_embeddings", "tied"},
                                      {"rope_theta", "rope_theta"}};

const std::vector<Only>& llama_limits() {
  static const std::vector<Only> limits = {
      {"hidden_act", one_of("silu"), "a Llama here has SwiGLU", false},
      {"head_dim", is_the_usual_head, "a head is as wide as hidden_size / num_attention_heads", true},
      {"attention_bias", is_off, "a Llama here has no biases", true},
      {"mlp_bias", is_off, "a Llama here has no biases", true},
      {"rope_scaling", scales_nothing, "rotary positions are not scaled", false},
      {"rope_parameters", scales_nothing, "rotary positions are not scaled", false},
      {"partial_rotary_factor", one_of(1, 1.0), "whole heads are rotated", false},
      {"sliding_window", sees_all, "every token sees all before it", false},
      {"quantization_config", is_off, "weights are not quantised", true},
      {"attention_dropout", is_off, "a Llama here has no dropout of attention under this key", false},
  };
  return limits;
}

Json with(Json base, const Json& changes) {
  base.update(changes);
  return base;
}

// Experts as DeepSeek's, with Llama's attention: the first DeepSeek-MoE; and GLM-4.5's class, whose own additions are
// refused.
Architecture deepseek_like(const char* type, bool sigmoid, const Json& standard) {
  std::vector<Same> same = kLlamaKeys;
  for (Same& key : same)
    if (std::string_view(key.theirs) == "intermediate_size") key.ours = "dense_ffn";
  same.insert(same.end(), {{"moe_intermediate_size", "ffn"},
                           {"n_routed_experts", "experts"},
                           {"num_experts_per_tok", "experts_per_token"},
                           {"n_shared_experts", "shared_experts"},
                           {"first_k_dense_replace", "dense_layers"},
                           {"norm_topk_prob", "normalize_gates"}});
  same.push_back(sigmoid ? Same{"routed_scaling_factor", "gate_scale"} : Same{"aux_loss_alpha", "aux_loss"});
  std::vector<Only> only = llama_limits();
  only.insert(only.end(), {{"n_group", one_of(1), "a token chooses among all experts", false},
                           {"moe_layer_freq", one_of(1), "every layer behind the dense ones has experts", true},
                           {"scoring_func", one_of("softmax"), "its gates are a softmax", false},
                           {"use_qk_norm", is_off, "a Llama here has no norms on q and k", true}});
  return {type, "llama", standard, same, only, {{"gate", sigmoid ? "sigmoid" : "softmax"}}};
}

Architecture first_deepseek(const Json& llama) {
  return deepseek_like("deepseek", false,
                       with(llama, {{"num_hidden_layers", 30},
                                    {"num_attention_heads", 32},
                                    {"intermediate_size", 11008},
                                    {"moe_intermediate_size", 1407},
                                    {"vocab_size", 102400},
                                    {"first_k_dense_replace", 0},
                                    {"norm_topk_prob", false},
                                    {"aux_loss_alpha", 0.001}}));
}

Architecture glm_of_experts(const Json& llama) {
  return deepseek_like("glm4_moe", true,
                       with(llama, {{"num_hidden_layers", 46},
                                    {"num_attention_heads", 96},
                                    {"num_key_value_heads", 8},
                                    {"intermediate_size", 10944},
                                    {"moe_intermediate_size", 1408},
                                    {"vocab_size", 151552},
                                    {"max_position_embeddings", 131072},
                                    {"rms_norm_eps", 1e-5},
                                    {"n_routed_experts", 128},
                                    {"n_shared_experts", 1},
                                    {"num_experts_per_tok", 8},
                                    {"first_k_dense_replace", 1},
                                    {"norm_topk_prob", true},
                                    {"routed_scaling_factor", 1.0},
                                    {"partial_rotary_factor", 0.5}}));
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = [] {
    const Json llama = {{"num_hidden_layers", 32},     {"hidden_size", 4096},   {"num_attention_heads", 32},
                        {"intermediate_size", 11008},  {"vocab_size", 32000},   {"max_position_embeddings", 2048},
                        {"rms_norm_eps", 1e-6},        {"rope_theta", 10000.0}, {"initializer_range", 0.02},
                        {"tie_word_embeddings", false}};
    const Json mistral = with(llama, {{"num_key_value_heads", 8},
                                      {"intermediate_size", 14336},
                                      {"max_position_embeddings", 131072},
                                      {"sliding_window", 4096}});
    const Json mixtral = with(mistral, {{"sliding_window", nullptr},
                                        {"rms_norm_eps", 1e-5},
                                        {"rope_theta", 1e6},
                                        {"num_local_experts", 8},
                                        {"num_experts_per_tok", 2},
                                        {"router_aux_loss_coef", 0.001}});
    std::vector<Same> with_experts = kLlamaKeys;
    with_experts.insert(with_experts.end(),
                        {{"num_local_experts", "experts"}, {"num_experts_per_tok", "experts_per_token"}});
    std::vector<Architecture> made;
    made.push_back({"gpt2",
                    "gpt2",
                    {{"n_layer", 12},
                     {"n_embd", 768},
                     {"n_head", 12},
                     {"n_positions", 1024},
                     {"vocab_size", 50257},
                     {"layer_norm_epsilon", 1e-5},
                     {"initializer_range", 0.02},
                     {"tie_word_embeddings", true},
                     {"embd_pdrop", 0.1},
                     {"attn_pdrop", 0.1},
                     {"resid_pdrop", 0.1}},
                    {{"n_layer", "layers"},
                     {"n_embd", "width"},
                     {"n_head", "heads"},
                     {"n_positions", "context"},
                     {"vocab_size", "vocab"},
                     {"layer_norm_epsilon", "norm_eps"},
                     {"initializer_range", "init_stddev"},
                     {"tie_word_embeddings", "tied"}},
                    {{"activation_function", one_of("gelu_new", "gelu_pytorch_tanh"),
                      "a GPT-2 here has the GELU of OpenAI's GPT-2", false},
                     {"n_inner",
                      [](const Json& value, const Json& config) {
                        return value.is_null() || whole(value) == 4 * whole(config.value("n_embd", Json(768)));
                      },
                      "a GPT-2 here has an mlp of 4 * n_embd", true},
                     {"scale_attn_weights", is_on, "attention is scaled", false},
                     {"scale_attn_by_inverse_layer_idx", is_off, "attention is scaled alike in each layer", false},
                     {"add_cross_attention", is_off, "there is no cross attention", true},
                     {"quantization_config", is_off, "weights are not quantised", true}}});
    made.push_back({"llama", "llama", llama, kLlamaKeys, llama_limits()});
    made.push_back({"mistral", "llama", mistral, kLlamaKeys, llama_limits()});
    made.push_back({"mixtral", "llama", mixtral, with_experts, llama_limits()});
    made.push_back(first_deepseek(llama));
    made.push_back(glm_of_experts(llama));
    return made;
  }();
  return all;
}

// Of an architecture that is not built: what it has that these models lack, where that is known.
std::string what_it_has(const std::string& type) {
  const std::pair<const char*, const char*> known[] = {
      {"qwen2", "it has biases on q, k and v"},
      {"qwen3", "it has norms on q and k"},
      {"gemma", "it has a GELU in its gates and scales its embeddings"},
      {"gemma2", "it has soft caps on its logits and a sliding window in every other layer"},
      {"phi3", "it has a partial rotation of heads and a sliding window"},
      {"deepseek_v2", "it has latent attention"},
      {"deepseek_v3", "it has latent attention"},
      {"gpt_neox", "its attention and mlp run side by side"},
      {"opt", "it learns positions with an offset and has ReLU"},
  };
  for (const auto& [name, what] : known)
    if (type == name) return fmt::format(": {}", what);
  return "";
}

class Former {
 public:
  Former(Document& document, bool sizes_only, const std::vector<std::string>& own_keys)
      : document_(document), sizes_only_(sizes_only), own_keys_(own_keys) {}

  ModelForm run() {
    const Json config = document_.json().at("model");
    const Architecture* const architecture = find(config);
    if (architecture == nullptr) {
      // Said once: what stands in its place has nothing wrong.
      document_.json()["model"] = {{"layers", 1}, {"width", 8}, {"heads", 1}, {"context", 8}, {"vocab", 256}};
      return std::move(form_);
    }
    check(config, *architecture);
    document_.json()["model"] = translated(config, *architecture);
    return std::move(form_);
  }

 private:
  void problem(const std::string& key, std::string what, std::string next) {
    form_.problems.push_back(
        document_.problem(key.empty() ? "/model" : "/model/" + key, std::move(what), std::move(next)));
  }

  const Architecture* find(const Json& config) {
    Json type = config.value("model_type", Json());
    if (!type.is_string()) type = config.contains("n_embd") ? "gpt2" : "llama";
    std::vector<std::string> names;
    for (const Architecture& one : architectures()) {
      if (type == one.type) return &one;
      names.emplace_back(one.type);
    }
    const std::string name = type.get<std::string>();
    problem("model_type", fmt::format("Not supported: {}{}", in_quotes(name), what_it_has(name)),
            fmt::format("Built are {}.", fmt::join(names, ", ")));
    return nullptr;
  }

  void check(const Json& config, const Architecture& architecture) {
    for (const Only& one : architecture.only) {
      const Json& value = default_of(config, architecture.standard, one.key);
      if (one.fits(value, with(architecture.standard, config))) continue;
      const std::string what = fmt::format("{} {}: {}", one.key, short_text(value), one.why);
      if (sizes_only_ && !one.changes_a_size) {
        form_.notes.push_back(fmt::format("{}; sizes, messages and times are the same without it", what));
      } else {
        problem(one.key, "Not supported: " + what,
                one.changes_a_size ? "Use a model without it."
                                   : fmt::format("--set model.{}=null trains without it.", one.key));
      }
    }
  }

  static std::string short_text(const Json& value) {
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
  }

  Json translated(const Json& config, const Architecture& architecture) {
    Json model = with({{"family", architecture.family}}, architecture.own);
    for (const Same& key : architecture.same) {
      const Json& value = default_of(config, architecture.standard, key.theirs);
      if (!value.is_null()) model[key.ours] = value;
    }
    // transformers 5 has the base of the rotary positions here.
    const auto rope = config.find("rope_parameters");
    if (rope != config.end() && rope->is_object() && rope->contains("rope_theta"))
      model["rope_theta"] = rope->at("rope_theta");
    const std::pair<const char*, const char*> rates[] = {
        {"embd_pdrop", "embedding"}, {"attn_pdrop", "attention"}, {"resid_pdrop", "residual"}};
    for (const auto& [theirs, ours] : rates) {
      const Json& rate = default_of(config, architecture.standard, theirs);
      if (rate.is_number() && rate != 0) model["dropout"][ours] = rate;
    }
    if (config.value("output_router_logits", Json(false)) == true)
      model["aux_loss"] = default_of(config, architecture.standard, "router_aux_loss_coef");
    if (model.value("dense_layers", Json(0)) == 0) model.erase("dense_ffn");  // none is as wide
    take_own_keys(config, model);
    return model;
  }

  // Keys of "model" that the user wrote beside the config, or set.
  void take_own_keys(const Json& config, Json& model) {
    const bool given = config.contains("context");
    if (!given && model.contains("context"))
      form_.notes.push_back(
          fmt::format("a sample has {} tokens, all positions that the model has; model.context says otherwise",
                      model["context"].dump()));
    for (const std::string& key : own_keys_) {
      if (config.contains(key)) model[key] = config.at(key);
    }
  }

  Document& document_;
  bool sizes_only_;
  const std::vector<std::string>& own_keys_;
  ModelForm form_;
};

Json gpt2(int layers, int width, int heads) {
  return {{"layers", layers}, {"width", width}, {"heads", heads}, {"vocab", 50257}, {"context", 1024}};
}

Json llama(int layers, int width, int heads, int kv_heads, int ffn, int vocab, int context, double theta) {
  return {{"family", "llama"}, {"layers", layers}, {"width", width},     {"heads", heads},      {"kv_heads", kv_heads},
          {"ffn", ffn},        {"vocab", vocab},   {"context", context}, {"rope_theta", theta}, {"norm_eps", 1e-5}};
}

// In Hugging Face's form, since its rotary positions are scaled.
Json llama_3_1(const char* type, int layers, int width, int heads, int ffn) {
  return {{"model_type", type},
          {"num_hidden_layers", layers},
          {"hidden_size", width},
          {"num_attention_heads", heads},
          {"num_key_value_heads", 8},
          {"intermediate_size", ffn},
          {"vocab_size", 128256},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 5e5},
          {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}};
}

}  // namespace

ModelForm bring_model_to_form(Document& document, bool sizes_only, const std::vector<std::string>& own_keys) {
  const auto model = document.json().find("model");
  if (model == document.json().end() || !model->is_object()) return {};
  const char* const marks[] = {"model_type", "architectures", "hidden_size", "n_embd"};
  if (std::none_of(std::begin(marks), std::end(marks), [&](const char* mark) { return model->contains(mark); }))
    return {};
  return Former(document, sizes_only, own_keys).run();
}

// "meta-llama/Meta-Llama-3.1-8B-Instruct" -> "llama-3.1-8b"
std::string plain_model_name(const std::string& name) {
  std::string plain = name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
  std::transform(plain.begin(), plain.end(), plain.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  std::replace(plain.begin(), plain.end(), '_', '-');
  for (const std::string prefix : {"meta-", "openai-"})
    if (plain.starts_with(prefix)) plain.erase(0, prefix.size());
  for (const std::string suffix : {"-hf", "-instruct", "-chat"})
    if (plain.ends_with(suffix)) plain.resize(plain.size() - suffix.size());
  for (const std::string family : {"llama2", "llama3", "qwen2", "qwen3"})
    if (plain.starts_with(family)) plain.insert(family.size() - 1, "-");
  if (plain == "gpt2") return "gpt2-small";
  return plain;
}

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> all = {
      {"gpt2-small", [] { return gpt2(12, 768, 12); }},
      {"gpt2-medium", [] { return gpt2(24, 1024, 16); }},
      {"gpt2-large", [] { return gpt2(36, 1280, 20); }},
      {"gpt2-xl", [] { return gpt2(48, 1600, 25); }},
      // The ZeRO paper's, as in scenarios/memory/zero_table_7_5b.json.
      {"7.5b",
       [] {
         return with(gpt2(36, 4096, 32), {{"vocab", 60089}});
       }},
      {"llama-2-7b", [] { return llama(32, 4096, 32, 32, 11008, 32000, 4096, 1e4); }},
      {"llama-2-13b", [] { return llama(40, 5120, 40, 40, 13824, 32000, 4096, 1e4); }},
      {"llama-2-70b", [] { return llama(80, 8192, 64, 8, 28672, 32000, 4096, 1e4); }},
      {"llama-3-8b", [] { return llama(32, 4096, 32, 8, 14336, 128256, 8192, 5e5); }},
      {"llama-3-70b", [] { return llama(80, 8192, 64, 8, 28672, 128256, 8192, 5e5); }},
      {"llama-3-405b", [] { return llama(126, 16384, 128, 8, 53248, 128256, 8192, 5e5); }},
      {"llama-3.1-8b", [] { return llama_3_1("llama", 32, 4096, 32, 14336); }},
      {"llama-3.1-70b", [] { return llama_3_1("llama", 80, 8192, 64, 28672); }},
      {"llama-3.1-405b", [] { return llama_3_1("llama", 126, 16384, 128, 53248); }},
      {"qwen-2.5-7b",
       [] {
         return Json{{"model_type", "qwen2"}, {"num_hidden_layers", 28}, {"hidden_size", 3584}};
       }},
      {"mistral-7b", [] { return llama(32, 4096, 32, 8, 14336, 32768, 8192, 1e6); }},
      {"mixtral-8x7b",
       [] {
         return with(llama(32, 4096, 32, 8, 14336, 32000, 8192, 1e6), {{"experts", 8}, {"experts_per_token", 2}});
       }},
      {"deepseek-moe-16b",
       [] {
         return with(llama(28, 2048, 16, 16, 1408, 102400, 4096, 1e4), {{"experts", 64},
                                                                        {"experts_per_token", 6},
                                                                        {"normalize_gates", false},
                                                                        {"shared_experts", 2},
                                                                        {"dense_layers", 1},
                                                                        {"dense_ffn", 10944}});
       }},
  };
  return all;
}

}  // namespace seeksim::harness
