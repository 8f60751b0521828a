#include "harness/loading/model_and_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "harness/input/files.h"
#include "harness/loading/own.h"
#include "harness/scenario/variants.h"
#include "runtime/files/safetensors.h"
#include "runtime/layout/parameters.h"
#include "runtime/model/weights.h"

namespace seeksim::harness {
namespace {

constexpr std::uint64_t kTextBytesMax = std::uint64_t(512) << 20;
constexpr std::uint64_t kWeightBytesMax = std::uint64_t(8) << 30;

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
runtime::DropoutPlan read_dropout(const Reader& model) {
  const double everywhere = model.number("dropout", 0);
  const Reader rates = model.child("dropout");
  return {rates.number("embedding", everywhere), rates.number("attention", everywhere),
          rates.number("residual", everywhere)};
}

void read_llama(const Reader& model, runtime::ModelPlan& plan) {
  for (const char* key : {"kv_heads", "ffn", "rope_theta"}) {
    if (!plan.llama() && model.find(key) != nullptr)
      model.problem(key, "a GPT-2 has none", "Remove it, or set \"family\" to \"llama\".");
  }
  plan.kv_heads = int(model.integer("kv_heads", 0));
  plan.ffn = int(model.integer("ffn", 0));
  plan.rope_theta = model.number("rope_theta", plan.rope_theta);
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

// Given samples, as --save-batches writes them: held against the model now, since the kernels trust their tokens.
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
  scenario.batches_file = data.text("batches");
  const std::string place = data.findings().place(data.at("batches"));
  try {
    const std::string path = resolve(scenario.batches_file, scenario.file, place);
    scenario.train.definition.data.tokens =
        given_tokens(read_file(path, kWeightBytesMax, place), scenario.train.definition.model, scenario.given_batch);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) data.findings().add(problem);
  } catch (const std::exception& error) {
    data.problem("batches", fmt::format("{} cannot be trained on: {}", in_quotes(scenario.batches_file), error.what()),
                 "");
  }
}

}  // namespace

void read_model(const Reader& model, Scenario& scenario) {
  runtime::ModelPlan& plan = scenario.train.definition.model;
  read_family(model, plan);
  read_llama(model, plan);
  plan.layers = int(model.integer("layers", plan.layers));
  plan.width = int(model.integer("width", plan.width));
  plan.heads = int(model.integer("heads", plan.heads));
  plan.context = int(model.integer("context", plan.context));
  plan.vocab = int(model.integer("vocab", plan.vocab));
  plan.tied = model.flag("tied", !plan.llama());
  plan.logit_scale = model.flag("logit_scale", false);
  read_frozen(model, plan);
  plan.init_stddev = model.number("init_stddev", plan.init_stddev);
  plan.norm_eps = model.number("norm_eps", plan.norm_eps);
  plan.dropout = read_dropout(model);
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
  definition.data.text = data.text("text");
  definition.data.synthetic = data.flag("synthetic", false);
  const bool text = data.has("text"), batches = data.has("batches");
  if (text + batches + definition.data.synthetic > 1) {
    data.problem("", "more than one source is named", "Keep one of text, synthetic and batches.");
  } else if (!text && !batches && !definition.data.synthetic) {
    if (data.value() != nullptr)
      data.problem("", "there is nothing to train on", "Add \"text\": FILE or \"synthetic\": true.");
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
  if (scenario.given_batch == 0 || scenario.given_batch == wanted) return;
  data.problem("batches",
               fmt::format("the file has {} samples a step, and train_batch_size is {}", scenario.given_batch, wanted),
               "Make them equal.");
}

// Weights to start from: read and held against the model now, so that a wrong file is a message and not a stack trace.
void read_init(const Reader& top, const std::string& given, Scenario& scenario) {
  const std::string from_model = top.child("model").text("init");
  scenario.init_file = given.empty() ? from_model : given;
  if (!given.empty() && is_of_shapes(scenario))
    top.findings().add({"--init", given, "there are no values in a run of shapes", "Leave it out."});
  if (scenario.init_file.empty()) return;
  const std::string place = given.empty() ? top.findings().place("/model/init") : "--init " + given;
  const runtime::Definition& definition = scenario.train.definition;
  try {
    const std::string path = given.empty() ? resolve(scenario.init_file, scenario.file, place) : given;
    std::string bytes = read_file(path, kWeightBytesMax, place);
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
