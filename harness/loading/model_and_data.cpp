#include "harness/loading/model_and_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "harness/input/files.h"
#include "harness/loading/extensions.h"
#include "harness/loading/features/context.h"
#include "harness/loading/features/experts.h"
#include "harness/loading/features/samples.h"
#include "harness/loading/features/weights_file.h"
#include "harness/scenario/variants.h"
#include "harness/scenario/written.h"
#include "runtime/files/safetensors.h"
#include "runtime/layout/parameter_list.h"
#include "runtime/layout/parameters.h"
#include "runtime/model/weights.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::DropoutPlan;
using runtime::ExpertsPlan;
using runtime::ModelPlan;

const Words<bool> kAttentions = {{false, "standard"}, {true, "fused"}};
const Words<bool> kGates = {{false, "softmax"}, {true, "sigmoid"}};
const Words<bool> kGradientSums = {{false, "tokens"}, {true, "segments"}};
const Words<bool> kExpertSums = {{false, "experts"}, {true, "slabs"}};

// The path from a scenario to its model.
template <class... Path>
Binding<Scenario> of_model(Path... path) {
  return at(&Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::model, path...);
}

template <class... Path>
Binding<Scenario> of_experts(Path... path) {
  return of_model(&ModelPlan::experts, path...);
}

const ModelPlan& model_of(const Scenario& scenario) { return scenario.train.definition.model; }
bool is_llama(const Scenario& scenario) { return model_of(scenario).llama(); }
bool has_experts(const Scenario& scenario) { return model_of(scenario).experts.on(); }
// Written as such; a quirk says it by its name.
bool has_routing_groups(const Scenario& scenario) {
  return model_of(scenario).experts.samples > 1 &&
         !scenario.train.definition.quirks.has(runtime::Quirk::experts_by_micro_batch);
}
bool has_dropout(const Scenario& scenario) { return model_of(scenario).dropout.any(); }
Json key_heads_of(const Scenario& scenario) { return model_of(scenario).key_heads(); }
Json ffn_of(const Scenario& scenario) { return model_of(scenario).hidden(); }
Json dense_ffn_of(const Scenario& scenario) { return model_of(scenario).dense_hidden(); }
bool has_dense_layers(const Scenario& scenario) {
  return has_experts(scenario) && model_of(scenario).experts.dense_layers > 0;
}
Json dropout_of(const Scenario& scenario) { return dropout_json(model_of(scenario).dropout); }

const Keys<DropoutPlan>& dropout_keys() {
  static const Keys<DropoutPlan> keys = {
      {"embedding", at(&DropoutPlan::embedding), number().least(0).below(1), kBits,
       "Of what goes into the first block (GPT-2's embd_pdrop)."},
      {"attention", at(&DropoutPlan::attention), number().least(0).below(1), kBits,
       "Of attention's probabilities (attn_pdrop)."},
      {"residual", at(&DropoutPlan::residual), number().least(0).below(1), kBits,
       "Of what each branch adds to the residual stream (resid_pdrop)."},
  };
  return keys;
}

constexpr std::uint64_t kTextBytesMax = std::uint64_t(512) << 20;

template <class... Path>
Binding<Scenario> of_data(Path... path) {
  return at(&Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::data, path...);
}

// Every entry must name something: a misspelt one would train what shall not be.
void read_frozen(const Reader& model, runtime::ModelPlan& plan) {
  plan.frozen = {};
  const Json* list = model.find("frozen");
  if (list == nullptr || !list->is_array() || list->empty()) return;
  const std::vector<std::string> names = runtime::parameter_names(plan);
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_string()) continue;
    const std::string pattern = (*list)[i].get<std::string>();
    const bool known = std::any_of(names.begin(), names.end(),
                                   [&](const std::string& name) { return runtime::matches(pattern, name); });
    if (!known) {
      model.findings().add(fmt::format("{}/{}", model.at("frozen"), i),
                           fmt::format("no parameter of this model is called {}", in_quotes(pattern)),
                           did_you_mean(pattern, names));
    }
    plan.frozen.push_back(pattern);
  }
  if (runtime::frozen_names(plan).size() == names.size()) {
    model.problem("frozen", fmt::format("all {} parameters are frozen", names.size()), "Leave one to be trained.");
  }
}

// One rate for all places, or one for each.
DropoutPlan read_dropout(const Reader& model) {
  const double everywhere = model.number("dropout", 0);
  DropoutPlan plan{everywhere, everywhere, everywhere};
  dropout_keys().read(model.child("dropout"), plan);
  return plan;
}

void refuse_llama_keys(const Reader& model) {
  for (const char* key : {"kv_heads", "ffn", "rope_theta", "experts"}) {
    if (model.find(key) != nullptr)
      model.problem(key, "a GPT-2 has none", "Remove it, or set \"family\" to \"llama\".");
  }
}

void check_llama(const Reader& model, const runtime::ModelPlan& plan) {
  if (plan.heads <= 0 || plan.width <= 0) return;  // said already
  if (plan.heads % plan.key_heads() != 0) {
    model.problem("kv_heads",
                  fmt::format("{} heads are no whole number of groups for {} of keys", plan.heads, plan.kv_heads),
                  "Use a divisor of \"heads\".");
  }
  if (plan.width / plan.heads % 2 != 0) {
    model.problem("width", fmt::format("heads of {} have no two halves for rotary positions", plan.width / plan.heads),
                  fmt::format("For example {}.", plan.width + plan.heads));
  }
}

void read_family(const Reader& model, runtime::ModelPlan& plan) {
  plan.family = model.text("family", "gpt2");
  if (plan.family == "gpt2" || plan.family == "llama") return;
  plan.own = own_family(plan.family);
  if (plan.own != nullptr) return;
  std::vector<std::string> known = own_family_names();
  known.insert(known.begin(), {"gpt2", "llama"});
  model.problem("family", fmt::format("{} is not one of: {}", in_quotes(plan.family), fmt::join(known, ", ")),
                did_you_mean(plan.family, known));
  plan.family = "gpt2";
}

void read_text(const Reader& data, Scenario& scenario) {
  runtime::Definition& definition = scenario.train.definition;
  const std::string place = data.findings().place(data.at("text"));
  try {
    const std::string path = resolve(definition.data.text, scenario.file, place);
    definition.data.bytes = read_file(path, kTextBytesMax, place);
  } catch (const BadInput& bad) {
    for (Problem problem : bad.problems()) {
      problem.path = "data.text";
      data.findings().add(problem);
    }
    return;
  }
  const std::size_t size = definition.data.bytes.size(), least = std::size_t(definition.model.context) + 1;
  if (size == 0) {
    data.problem("text", fmt::format("{} is empty", in_quotes(definition.data.text)),
                 "Name a file with some prose in it.");
  } else if (size < least) {
    data.problem("text",
                 fmt::format("{} holds {} bytes; one sample takes context + 1 = {}", in_quotes(definition.data.text),
                             size, least),
                 "Use a longer text or a smaller model.context.");
  }
}

// Given samples, as --save-batches writes them. Checked against the model now, since the kernels trust their tokens.
std::vector<std::int32_t> given_tokens(const std::string& bytes, const runtime::ModelPlan& model,
                                       runtime::Index& batch) {
  for (const runtime::TensorBytes& tensor : runtime::read_safetensors(bytes)) {
    if (tensor.name != "tokens") continue;
    if (tensor.dtype != runtime::DType::i32 || tensor.shape.size() != 3 || tensor.shape[2] != model.context + 1) {
      throw std::runtime_error(fmt::format("\"tokens\" has shape ({}); int32 (steps, batch, {}) is wanted",
                                           fmt::join(tensor.shape, ", "), model.context + 1));
    }
    std::vector<std::int32_t> tokens(tensor.bytes.size() / sizeof(std::int32_t));
    std::memcpy(tokens.data(), tensor.bytes.data(), tensor.bytes.size());
    batch = tensor.shape[1];
    if (tokens.empty()) throw std::runtime_error("\"tokens\" is empty");
    for (const std::int32_t token : tokens) {
      if (token < 0 || token >= model.vocab)
        throw std::runtime_error(fmt::format("token {} is not below the vocabulary of {}", token, model.vocab));
    }
    return tokens;
  }
  throw std::runtime_error("there is no tensor \"tokens\"");
}

void read_batches(const Reader& data, Scenario& scenario) {
  scenario.given.batches = data.text("batches");
  const std::string place = data.findings().place(data.at("batches"));
  try {
    const std::string path = resolve(scenario.given.batches, scenario.file, place);
    scenario.train.definition.data.tokens = given_tokens(read_file(path, kWeightBytesMax, place),
                                                         scenario.train.definition.model, scenario.given.batch_rows);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) data.findings().add(problem);
  } catch (const std::exception& error) {
    data.problem("batches", fmt::format("{} cannot be trained on: {}", in_quotes(scenario.given.batches), error.what()),
                 "");
  }
}

}  // namespace

const Keys<Scenario>& model_keys() {
  static const Keys<Scenario> keys = {
      {"family", of_model(&ModelPlan::family).read_by_hand(), text(), kBits,
       "Architecture: gpt2, llama (RMS norm, rotary positions, SwiGLU, grouped-query attention, no biases), or one "
       "that a program of one's own has added."},
      {"layers", of_model(&ModelPlan::layers), integer(1, runtime::LayerNames::kLayersMax).required(), kBits,
       "Transformer blocks."},
      {"width", of_model(&ModelPlan::width), integer(1, 1'000'000).required(), kBits,
       "Width of the residual stream; a multiple of heads."},
      {"heads", of_model(&ModelPlan::heads), integer(1, 100'000).required(), kBits, "Attention heads."},
      {"context", of_model(&ModelPlan::context), integer(1, 10'000'000).required(), kBits, "Tokens a sample."},
      {"vocab", of_model(&ModelPlan::vocab), integer(1, 10'000'000).required(), kBits,
       "Token ids; at least 256 for a text, whose bytes are the tokens."},
      {"tied", of_model(&ModelPlan::tied).read_by_hand(), flag().unset(), kBits,
       "The output head shares the token embedding. Unset: true, of a Llama false."},
      {"kv_heads", of_model(&ModelPlan::kv_heads).as(key_heads_of).when(is_llama), integer(1, 100'000).unset(), kBits,
       "Llama: heads of keys and values, each shared by heads / kv_heads query heads. Unset: as many as heads."},
      {"ffn", of_model(&ModelPlan::ffn).as(ffn_of).when(is_llama), integer(1, 10'000'000).unset(), kBits,
       "Llama: width inside the mlp. Unset: 8/3 of width, rounded up to a multiple of 8. (GPT-2 has 4 * width.)"},
      {"rope_theta", of_model(&ModelPlan::rope_theta).when(is_llama), number().least(1), kBits,
       "Llama: base of the rotary positions' frequencies."},
      {"experts", of_experts(&ExpertsPlan::count).unless_standard(), integer(0, ExpertsPlan::kMost), kBits,
       "Llama: in place of each layer's mlp so many experts, each as wide as ffn, and a router that chooses among them "
       "token by token: a Mixtral. 0: one mlp."},
      {"experts_per_token", of_experts(&ExpertsPlan::per_token).when(has_experts),
       integer(1, ExpertsPlan::kMostPerToken), kBits,
       "Experts that a token goes to: those with the largest logits; of equal ones the first."},
      {"capacity_factor", of_experts(&ExpertsPlan::capacity_factor).when(has_experts),
       number().least(0).most(ExpertsPlan::kMostCapacity), kBits,
       "An expert takes at most this times context * experts_per_token / experts choices of a sample, rounded up: all "
       "first choices in the order of tokens, then all second ones. 0: all."},
      {"routing_samples", of_experts(&ExpertsPlan::samples).when(has_routing_groups),
       integer(1, ExpertsPlan::kMostSamples), kBits,
       "Samples over which an expert's capacity and the shares of the balancing loss are counted together. Such groups "
       "are aligned, and no rank and no micro-batch has a part of one: batch and micro-batch are multiples of it."},
      {"normalize_gates", of_experts(&ExpertsPlan::normalized).read_by_hand().when(has_experts), flag().unset(), kBits,
       "A token's gates are divided by their sum, as Mixtral has it; false: they are the router's probabilities. "
       "Unset: "
       "true with several experts a token."},
      {"aux_loss", of_experts(&ExpertsPlan::balance).when(has_experts), number().least(0), kBits,
       "Coefficient of the loss that balances experts: experts * the sum of each one's share of a sample's choices "
       "times "
       "its mean probability, averaged over samples and added up over layers."},
      {"z_loss", of_experts(&ExpertsPlan::z).when(has_experts), number().least(0), kBits,
       "Coefficient of the router's z loss: the mean over tokens of the squared log of the sum of exp(logit)."},
      {"gate",
       in_words(kGates, &Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::model,
                &ModelPlan::experts, &ExpertsPlan::sigmoid)
           .unless_standard(),
       choice(words_of(kGates)), kBits,
       "A token's scores: the softmax of its logits, as Mixtral and DeepSeek-V2 have it, or the sigmoid of each, as "
       "DeepSeek-V3. The balancing loss takes sigmoids divided by their sum."},
      {"gate_scale", of_experts(&ExpertsPlan::scale).unless_standard(), number().above(0), kBits,
       "A token's gates, divided by their sum or not, are multiplied by this: DeepSeek's routed_scaling_factor. The "
       "shared expert is not."},
      {"shared_experts", of_experts(&ExpertsPlan::shared).unless_standard(), integer(0, ExpertsPlan::kMostShared),
       kBits,
       "Experts that every token goes to, without a gate: one mlp, so many times as wide as ffn, whose output is added "
       "to that of the chosen ones (DeepSeek's n_shared_experts)."},
      {"dense_layers", of_experts(&ExpertsPlan::dense_layers).unless_standard(),
       integer(0, runtime::LayerNames::kLayersMax), kBits,
       "The first so many layers have one mlp in place of experts (DeepSeek's first_k_dense_replace)."},
      {"dense_ffn", of_experts(&ExpertsPlan::dense_ffn).as(dense_ffn_of).when(has_dense_layers),
       integer(1, 10'000'000).unset(), kBits,
       "Width inside the mlp of dense_layers. Unset: that of a token's experts together, ffn * (experts_per_token + "
       "shared_experts)."},
      {"expert_sums",
       in_words(kExpertSums, &Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::model,
                &ModelPlan::experts, &ExpertsPlan::slabs)
           .unless_standard(),
       choice(words_of(kExpertSums)), kBits,
       "How gates' gradients and the gradient norm are summed over an expert's width. experts: over all of it. slabs: "
       "over each eighth of it, then the tree over the eight; world.tensor needs it, since ranks then have slabs of "
       "each expert. Its sums have another order, and so its own bits."},
      {"init", at(&Scenario::given, &GivenFiles::init).read_by_hand().unless_standard(), text().unset(), kBits,
       "Start from these weights under Hugging Face's names, in fp32, bf16 or fp16: a safetensors file, an index of "
       "several, or a folder with the one or the other. As --init."},
      {"logit_scale", of_model(&ModelPlan::logit_scale).unless_standard(), flag(), kBits,
       "A scalar parameter, 1 at first, that multiplies the logits. GPT-2 has none; it is saved as logit_scale."},
      {"frozen", of_model(&ModelPlan::frozen).read_by_hand().unless_standard(), list(text().length(1)), kBits,
       "Parameters that are not trained, by name as --save-initial writes it (a Llama's q, k and v are one, qkv_proj; "
       "gate and up are gate_up_proj); '*' stands for any characters (h.0.*). They cost no gradient and no optimizer "
       "state."},
      {"init_stddev", of_model(&ModelPlan::init_stddev), number().above(0), kBits,
       "Standard deviation of the initial weights; GPT-2's residual projections get it divided by sqrt(2 * layers)."},
      {"norm_eps", of_model(&ModelPlan::norm_eps), number().above(0), kBits, "Epsilon of the norms."},
      {"attention",
       in_words(kAttentions, &Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::model,
                &ModelPlan::fused_attention)
           .unless_standard(),
       choice(words_of(kAttentions)), kBits,
       "standard keeps the probabilities of each layer, context * context a head, for backward. fused keeps two "
       "numbers "
       "a row, works by blocks of 32 keys and computes the probabilities again: long contexts fit. Its sums have "
       "another order, and so its own bits."},
      {"gradient_sums",
       in_words(kGradientSums, &Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::model,
                &ModelPlan::segmented_gradients)
           .unless_standard(),
       choice(words_of(kGradientSums)), kBits,
       "How a sample's gradient of a weight is summed. tokens: one chain over all its tokens. segments: a chain over "
       "each eighth of them, then the tree over the eight; world.context needs it, since ranks then have tokens of "
       "their own. Its sums have another order, and so its own bits."},
      {"dropout", written_as<Scenario>(dropout_of).when(has_dropout),
       either(number().least(0).below(1), dropout_keys().shape()).standard(0), kBits,
       "Share of values set to zero while training, by training_seed, step and sample, never by rank: one number, or "
       "one a place."},
  };
  return keys;
}

std::vector<std::string> model_key_names() {
  std::vector<std::string> names;
  for (const auto& row : model_keys().rows()) names.emplace_back(row.name);
  return names;
}

const Keys<Scenario>& data_keys() {
  static const Keys<Scenario> keys = {
      {"text", of_data(&runtime::DataPlan::text), text().length(1).unset(), kBits,
       "A text file, read as bytes: any language, any encoding."},
      {"synthetic", of_data(&runtime::DataPlan::synthetic), flag(), kBits,
       "Tokens drawn from training_seed instead of a text."},
      {"held_out_bytes", of_data(&runtime::DataPlan::held_out_bytes).unless_standard(), integer(0, 1'000'000'000),
       kBits, "So many bytes at the end of the text are read by no step, but by evaluations."},
      {"sampler",
       inside(sampler_keys(), &Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::data,
              &runtime::DataPlan::sampler)
           .read_by_hand()
           .when(has_sampler),
       sampler_keys().shape(), kBits,
       "The data are a set of samples, each of which is used once an epoch. Unset: stretches of a text are drawn with "
       "replacement, given batches are used in order and over again."},
      {"packing",
       inside(packing_keys(), &Scenario::train, &runtime::TrainPlan::definition, &runtime::Definition::data,
              &runtime::DataPlan::packing)
           .read_by_hand()
           .when(has_packing),
       packing_keys().shape(), kBits, "A sample holds several documents, which do not see each other."},
      {"batches", by_hand, text().length(1), kBits,
       "Train on exactly these samples, in order: a safetensors file with \"tokens\", int32, (steps, batch, context + "
       "1), as --save-batches writes it."},
  };
  return keys;
}

void read_model(const Reader& model, Scenario& scenario) {
  runtime::ModelPlan& plan = scenario.train.definition.model;
  read_family(model, plan);
  if (!plan.llama()) refuse_llama_keys(model);
  model_keys().read(model, scenario);
  plan.layers = std::min(plan.layers, runtime::LayerNames::kLayersMax);  // the schema said so
  plan.tied = model.flag("tied", !plan.llama());
  read_frozen(model, plan);
  plan.dropout = read_dropout(model);
  settle_experts(model, plan);
  check_gradient_sums(model, plan);
  check_expert_sums(model, plan);
  if (plan.heads > 0 && plan.width > 0 && plan.width % plan.heads != 0) {
    const int fits = plan.width / plan.heads * plan.heads;
    model.problem("width", fmt::format("{} is not a multiple of {} heads", plan.width, plan.heads),
                  fmt::format("For example {}.", fits > 0 ? fits : plan.heads));
  } else if (plan.llama()) {
    check_llama(model, plan);
  }
}

void read_data(const Reader& data, Scenario& scenario) {
  runtime::Definition& definition = scenario.train.definition;
  data_keys().read(data, scenario);
  const bool text = data.has("text"), batches = data.has("batches");
  if (text + batches + definition.data.synthetic > 1) {
    data.problem("", "more than one data source is given", "Keep one of text, synthetic and batches.");
  } else if (!text && !batches && !definition.data.synthetic) {
    if (data.value() != nullptr)
      data.problem("", "no training data is given", "Add \"text\": FILE or \"synthetic\": true.");
  } else if (batches) {
    read_batches(data, scenario);
  } else if (text && !definition.data.text.empty()) {
    if (definition.model.vocab < 256) {
      data.findings().add("/model/vocab",
                          fmt::format("{} is too small for a text, whose bytes are the tokens", definition.model.vocab),
                          "Use 256 or more.");
    }
    read_text(data, scenario);
  }
}

void check_given_batch(const Reader& data, const Scenario& scenario) {
  const int wanted = scenario.train.definition.global_batch;
  if (scenario.given.batch_rows == 0 || scenario.given.batch_rows == wanted) return;
  data.problem(
      "batches",
      fmt::format("the file has {} samples a step, and train_batch_size is {}", scenario.given.batch_rows, wanted),
      "Make them equal.");
}

// Weights to start from: read and checked against the model now, so that a wrong file is a message, not a stack trace.
void read_init(const Reader& top, const std::string& given, Scenario& scenario) {
  const std::string from_model = top.child("model").text("init");
  scenario.given.init = given.empty() ? from_model : given;
  if (!given.empty() && is_of_shapes(scenario))
    top.findings().add({"--init", given, "a shapes-only run has no values", "Leave it out."});
  if (scenario.given.init.empty()) return;
  const std::string place = given.empty() ? top.findings().place("/model/init") : "--init " + given;
  const runtime::Definition& definition = scenario.train.definition;
  try {
    const std::string path = given.empty() ? resolve(scenario.given.init, scenario.file, place) : given;
    std::string bytes = read_weights_file(path, place);
    const runtime::Parameters parameters(definition.model, definition.optimizer.decay_all);
    std::vector<float> flat(std::size_t(parameters.size()));
    runtime::from_hugging_face(parameters, definition.model, runtime::read_safetensors(bytes), flat);
    scenario.train.definition.initial_weights = std::move(bytes);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) top.findings().add(problem);
  } catch (const std::exception& error) {
    top.findings().add({place, "", fmt::format("not the weights of this model: {}", error.what()),
                        "Names and shapes are those of Hugging Face's GPT-2; --save-initial writes such a file."});
  }
}

}  // namespace seeksim::harness
