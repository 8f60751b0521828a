#include "runtime/model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/layout/gpt2_parameters.h"
#include "tests/support/plans.h"

namespace seeksim::test {
namespace {

ModelPlan odd_model(bool tied) {
  ModelPlan m = tiny_plan(true).definition.model;
  m.tied = tied;
  return m;
}

std::vector<float> numbered(Index n) {
  std::vector<float> flat(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = static_cast<float>(i);
  return flat;
}

std::vector<TensorBytes> as_bytes(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorBytes> out;
  for (const NamedTensor& t : tensors) out.push_back(to_bytes(t));
  return out;
}

std::string import_message(const ModelPlan& m, const std::vector<TensorBytes>& tensors) {
  const Parameters parameters(m, false);
  std::vector<float> flat(static_cast<std::size_t>(parameters.size()));
  try {
    from_hugging_face(parameters, m, tensors, flat);
    return "";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

TEST(Parameters, TileTheFlatSpaceInRegistrationOrder) {
  for (const bool tied : {true, false}) {
    const Parameters parameters(odd_model(tied), false);
    Index at = 0;
    for (const ParameterInfo& p : parameters.all()) {
      EXPECT_EQ(p.offset, at) << p.name;
      EXPECT_GE(p.slab * kernels::kSlabs, p.size) << p.name;
      EXPECT_EQ(p.slab % p.cols(), 0) << p.name << ": a slab is whole rows";
      at += p.size;
    }
    EXPECT_EQ(at, parameters.size());
    EXPECT_STREQ(parameters.all()[4].name, "h.0.attn.c_attn.weight");
    EXPECT_STREQ(parameters.all().back().name, tied ? "ln_f.bias" : "lm_head.weight");
  }
}

TEST(Parameters, CountIsGpt2s) {
  ModelPlan gpt2;
  gpt2.layers = 12, gpt2.width = 768, gpt2.heads = 12, gpt2.context = 1024, gpt2.vocab = 50257;
  EXPECT_EQ(Parameters(gpt2, false).size(), 124439808);
}

TEST(Parameters, MatricesDecayAndVectorsDoNot) {
  const Parameters matrices(odd_model(false), false), everything(odd_model(false), true);
  for (const ParameterInfo& p : matrices.all()) EXPECT_EQ(p.decays, p.shape.size() == 2) << p.name;
  for (const ParameterInfo& p : everything.all()) EXPECT_TRUE(p.decays) << p.name;
}

TEST(Weights, RoundTripThroughHuggingFacesLayoutKeepsEveryElement) {
  for (const bool tied : {true, false}) {
    const ModelPlan m = odd_model(tied);
    const Parameters parameters(m, false);
    const std::vector<float> flat = numbered(parameters.size());
    std::vector<float> back(flat.size(), -1);
    from_hugging_face(parameters, m, as_bytes(to_hugging_face(parameters, m, flat)), back);
    EXPECT_EQ(back, flat);
  }
}

TEST(Weights, AttentionColumnsAreAllQThenAllKThenAllV) {
  const ModelPlan m = odd_model(true);  // width 15, 3 heads of 5
  const Parameters parameters(m, false);
  const auto tensors = to_hugging_face(parameters, m, numbered(parameters.size()));
  const ParameterInfo& w = parameters.layer(0, LayerPart::c_attn_weight);
  const NamedTensor& theirs = tensors[4];
  EXPECT_EQ(theirs.shape, (std::vector<Index>{15, 45}));
  // Input 7, head 2, k, element 3: our row is 2*15 + 5 + 3, their column 15 + 2*5 + 3.
  EXPECT_EQ(theirs.values[7 * 45 + 15 + 13], static_cast<float>(w.offset + (2 * 15 + 5 + 3) * 15 + 7));
  const ParameterInfo& fc = parameters.layer(0, LayerPart::c_fc_weight);
  EXPECT_EQ(tensors[10].shape, (std::vector<Index>{15, 60}));
  EXPECT_EQ(tensors[10].values[7 * 60 + 41], static_cast<float>(fc.offset + 41 * 15 + 7));
}

TEST(Weights, ImportNamesEverythingThatIsWrongAtOnce) {
  const ModelPlan m = odd_model(true);
  const Parameters parameters(m, false);
  auto tensors = as_bytes(to_hugging_face(parameters, m, numbered(parameters.size())));
  tensors[1].shape = {tensors[1].shape[1], tensors[1].shape[0]};
  tensors[2].dtype = DType::i32;
  tensors.erase(tensors.begin() + 3);
  tensors.push_back({"h.9.ln_1.bias", DType::f32, {15}, std::string(60, 0)});
  tensors.push_back({"transformer.wte.weight", DType::f32, {37, 15}, std::string(37 * 60, 0)});
  const std::string message = import_message(m, tensors);
  for (const char* part :
       {"shape: wpe.weight is [15, 11], the model needs [11, 15]", "neither F32, F16 nor BF16: h.0.ln_1.weight",
        "missing: h.0.ln_1.bias [15]", "unexpected: h.9.ln_1.bias", "given twice: wte.weight"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
  }
  std::vector<float> flat(std::size_t(parameters.size()), -7);
  EXPECT_THROW(from_hugging_face(parameters, m, tensors, flat), std::runtime_error);
  for (const ParameterInfo& p : parameters.all()) {
    const bool wrong = std::string_view(p.name) == "wpe.weight" || std::string_view(p.name) == "h.0.ln_1.weight";
    EXPECT_EQ(flat[std::size_t(p.offset)] == -7, wrong || std::string_view(p.name) == "h.0.ln_1.bias")
        << p.name << ": what does not fit is not taken";
  }
}

TEST(Weights, ImportTakesFilesOfTransformersAsTheyAre) {
  const ModelPlan m = odd_model(true);
  const Parameters parameters(m, false);
  auto tensors = as_bytes(to_hugging_face(parameters, m, numbered(parameters.size())));
  TensorBytes head = tensors[0];
  for (TensorBytes& t : tensors) t.name = "transformer." + t.name;
  head.name = "lm_head.weight";
  tensors.push_back(head);
  tensors.push_back({"transformer.h.0.attn.bias", DType::i32, {1, 1, 2, 2}, std::string(16, 0)});
  EXPECT_EQ(import_message(m, tensors), "");
  tensors[tensors.size() - 2].bytes[0] = 1;
  EXPECT_NE(import_message(m, tensors).find("lm_head.weight differs"), std::string::npos);
}

// Each value of 16 bits is one of fp32.
TEST(Weights, ImportWidensSixteenBits) {
  const ModelPlan m = odd_model(true);
  const Parameters parameters(m, false);
  const auto floats = as_bytes(to_hugging_face(parameters, m, numbered(parameters.size())));
  std::vector<float> wanted(std::size_t(parameters.size())), got(wanted.size());
  auto rounded = floats, widened = floats;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    std::string bytes;  // the upper halves, which are bf16
    for (std::size_t at = 0; at < floats[i].bytes.size(); at += 4) bytes += floats[i].bytes.substr(at + 2, 2);
    rounded[i].dtype = DType::bf16;
    rounded[i].bytes = bytes;
    for (std::size_t at = 0; at < floats[i].bytes.size(); at += 4) widened[i].bytes[at] = widened[i].bytes[at + 1] = 0;
  }
  from_hugging_face(parameters, m, rounded, got);
  from_hugging_face(parameters, m, widened, wanted);
  EXPECT_EQ(got, wanted);
}

// Two key heads of two query heads of 6; an mlp of 20 in slabs of 3, the last of 2, one empty.
ModelPlan llama_model(bool tied) {
  ModelPlan m;
  m.family = "llama";
  m.layers = 2, m.width = 24, m.heads = 4, m.kv_heads = 2, m.ffn = 20, m.context = 9, m.vocab = 37;
  m.tied = tied;
  return m;
}

TEST(LlamaWeights, RoundTripThroughHuggingFacesLayoutKeepsEveryElement) {
  for (const bool tied : {true, false}) {
    const ModelPlan m = llama_model(tied);
    const Parameters parameters(m, false);
    const std::vector<float> flat = numbered(parameters.size());
    std::vector<float> back(flat.size(), -1);
    from_hugging_face(parameters, m, as_bytes(to_hugging_face(parameters, m, flat)), back);
    EXPECT_EQ(back, flat);
    for (const ParameterInfo& p : parameters.all()) EXPECT_GE(p.slab * kernels::kSlabs, p.size) << p.name;
  }
}

TEST(LlamaWeights, RowsOfAKeyHeadAndOfASlabLieTogether) {
  const ModelPlan m = llama_model(false);
  const Parameters parameters(m, false);
  std::map<std::string, NamedTensor> theirs;
  for (NamedTensor& t : to_hugging_face(parameters, m, numbered(parameters.size()))) theirs[t.name] = t;
  EXPECT_EQ(theirs.size(), 21U);
  const ParameterInfo& qkv = parameters.layer(1, LayerPart::c_attn_weight);
  const std::string attention = "model.layers.1.self_attn.";
  const auto row = [](const ParameterInfo& p, Index r) { return float(p.offset + r * p.cols()); };
  const auto first = [&](const std::string& name, Index r) {
    const NamedTensor& t = theirs.at(name);
    return t.values[std::size_t(r * t.shape[1])];
  };
  // Query head 3 is the second of key head 1, whose rows begin at 24.
  EXPECT_EQ(first(attention + "q_proj.weight", 3 * 6 + 4), row(qkv, 24 + 6 + 4));
  EXPECT_EQ(first(attention + "k_proj.weight", 6 + 5), row(qkv, 24 + 12 + 5));
  EXPECT_EQ(first(attention + "v_proj.weight", 6 + 5), row(qkv, 24 + 18 + 5));
  const ParameterInfo& up = parameters.layer(1, LayerPart::c_fc_weight);
  EXPECT_EQ(first("model.layers.1.mlp.gate_proj.weight", 7), row(up, 2 * 6 + 1));
  EXPECT_EQ(first("model.layers.1.mlp.up_proj.weight", 7), row(up, 2 * 6 + 3 + 1));
  EXPECT_EQ(first("model.layers.1.mlp.gate_proj.weight", 19), row(up, 2 * 18 + 1));
  EXPECT_EQ(first("model.layers.1.mlp.up_proj.weight", 19), row(up, 2 * 18 + 2 + 1));
  // Row-parallel ones are stored the other way round.
  const ParameterInfo& down = parameters.layer(0, LayerPart::mlp_proj_weight);
  EXPECT_EQ(theirs.at("model.layers.0.mlp.down_proj.weight").values[5 * 20 + 13], float(down.offset + 13 * 24 + 5));
}

TEST(LlamaWeights, ImportNamesEverythingThatIsWrongAtOnce) {
  const ModelPlan m = llama_model(true);
  const Parameters parameters(m, false);
  auto tensors = as_bytes(to_hugging_face(parameters, m, numbered(parameters.size())));
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {3}, std::string(12, 0)});
  EXPECT_EQ(import_message(m, tensors), "");
  tensors[3].shape = {24, 12};
  tensors.erase(tensors.begin() + 4);
  const std::string message = import_message(m, tensors);
  for (const char* part : {"shape: model.layers.0.self_attn.k_proj.weight is [24, 12], the model needs [12, 24]",
                           "missing: model.layers.0.self_attn.v_proj.weight [12, 24]"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
  }
}

TEST(MixtralWeights, RoundTripThroughHuggingFacesLayoutKeepsEveryElement) {
  ModelPlan m = llama_model(false);
  m.experts.count = 3;
  const Parameters parameters(m, false);
  const std::vector<float> flat = numbered(parameters.size());
  std::vector<float> back(flat.size(), -1);
  from_hugging_face(parameters, m, as_bytes(to_hugging_face(parameters, m, flat)), back);
  EXPECT_EQ(back, flat);
}

TEST(MixtralWeights, AnExpertsRowsLieTogether) {
  ModelPlan m = llama_model(false);
  m.experts.count = 3;
  const Parameters parameters(m, false);
  std::map<std::string, NamedTensor> theirs;
  for (NamedTensor& t : to_hugging_face(parameters, m, numbered(parameters.size()))) theirs[t.name] = t;
  EXPECT_EQ(theirs.size(), 3U + 2 * (6 + 1 + 3 * 3));
  const std::string moe = "model.layers.1.block_sparse_moe.";
  EXPECT_EQ(theirs.at(moe + "gate.weight").shape, (std::vector<Index>{3, 24}));
  const ParameterInfo& up = parameters.layer(1, LayerPart::c_fc_weight);
  EXPECT_EQ(up.slab, 2 * 20 * 24) << "an expert is a slab";
  // Row 7 is the second of slab 2, whose gates begin at row 12 of the expert's 40.
  EXPECT_EQ(theirs.at(moe + "experts.2.w1.weight").values[7 * 24], float(up.offset + (2 * 40 + 12 + 1) * 24));
  EXPECT_EQ(theirs.at(moe + "experts.2.w3.weight").values[7 * 24], float(up.offset + (2 * 40 + 15 + 1) * 24));
  const ParameterInfo& down = parameters.layer(1, LayerPart::mlp_proj_weight);
  EXPECT_EQ(theirs.at(moe + "experts.1.w2.weight").values[5 * 20 + 13], float(down.offset + (20 + 13) * 24 + 5));
}

ModelPlan deepseek_model() {
  ModelPlan m = llama_model(false);
  m.experts.count = 3;
  m.experts.sigmoid = true, m.experts.shared = 2, m.experts.dense_layers = 1, m.experts.dense_ffn = 13;
  return m;
}

TEST(DeepSeekWeights, RoundTripThroughHuggingFacesLayoutKeepsEveryElement) {
  const ModelPlan m = deepseek_model();
  const Parameters parameters(m, false);
  const std::vector<float> flat = numbered(parameters.size());
  std::vector<float> back(flat.size(), -1);
  from_hugging_face(parameters, m, as_bytes(to_hugging_face(parameters, m, flat)), back);
  EXPECT_EQ(back, flat);
}

// Names and shapes of DeepSeek-MoE's and DeepSeek-V3's files.
TEST(DeepSeekWeights, AreNamedAsInTheirFiles) {
  const ModelPlan m = deepseek_model();
  const Parameters parameters(m, false);
  std::map<std::string, NamedTensor> theirs;
  for (NamedTensor& t : to_hugging_face(parameters, m, numbered(parameters.size()))) theirs[t.name] = t;
  EXPECT_EQ(theirs.size(), 3U + 2 * 6 + 3 + (1 + 3 * 3 + 3));
  using Shape = std::vector<Index>;
  const std::string dense = "model.layers.0.mlp.", moe = "model.layers.1.mlp.";
  EXPECT_EQ(theirs.at(dense + "gate_proj.weight").shape, (Shape{13, 24}));
  EXPECT_EQ(theirs.at(dense + "down_proj.weight").shape, (Shape{24, 13}));
  EXPECT_EQ(theirs.at(moe + "gate.weight").shape, (Shape{3, 24}));
  EXPECT_EQ(theirs.at(moe + "experts.2.gate_proj.weight").shape, (Shape{20, 24}));
  EXPECT_EQ(theirs.at(moe + "experts.2.down_proj.weight").shape, (Shape{24, 20}));
  EXPECT_EQ(theirs.at(moe + "shared_experts.up_proj.weight").shape, (Shape{40, 24}));
  EXPECT_EQ(theirs.at(moe + "shared_experts.down_proj.weight").shape, (Shape{24, 40}));
  // Slabs of 5 rows of 40: row 7 of up is the third of slab 1, behind that slab's five rows of gate.
  const ParameterInfo& up = parameters.layer(1, LayerPart::shared_fc_weight);
  EXPECT_EQ(theirs.at(moe + "shared_experts.up_proj.weight").values[7 * 24], float(up.offset + (10 + 5 + 2) * 24));
}

// 16,375,728,128: what Hugging Face counts for DeepSeek-MoE of "16B".
TEST(DeepSeekParameters, CountIsDeepSeeks) {
  ModelPlan m;
  m.family = "llama", m.tied = false;
  m.layers = 28, m.width = 2048, m.heads = 16, m.ffn = 1408, m.context = 4096, m.vocab = 102400;
  m.experts.count = 64, m.experts.per_token = 6, m.experts.shared = 2;
  m.experts.dense_layers = 1, m.experts.dense_ffn = 10944;
  EXPECT_EQ(Parameters(m, false).size(), 16375728128);
}

// 46,702,792,704: what Hugging Face counts for Mixtral of "8x7B".
TEST(MixtralParameters, CountIsMixtrals) {
  ModelPlan m;
  m.family = "llama", m.tied = false;
  m.layers = 32, m.width = 4096, m.heads = 32, m.kv_heads = 8, m.ffn = 14336, m.context = 4096, m.vocab = 32000;
  m.experts.count = 8;
  EXPECT_EQ(Parameters(m, false).size(), 46702792704);
}

// 6,738,415,616: what Hugging Face counts for Llama 2 of "7B"; 8,030,261,248 for Llama 3 of "8B".
TEST(LlamaParameters, CountIsLlamas) {
  ModelPlan m;
  m.family = "llama", m.tied = false;
  m.layers = 32, m.width = 4096, m.heads = 32, m.ffn = 11008, m.context = 4096, m.vocab = 32000;
  EXPECT_EQ(Parameters(m, false).size(), 6738415616);
  m.kv_heads = 8, m.ffn = 14336, m.vocab = 128256;
  EXPECT_EQ(Parameters(m, false).size(), 8030261248);
}

TEST(InitialWeights, HaveGpt2sScales) {
  Definition d;
  d.model.layers = 2, d.model.width = 96, d.model.heads = 4, d.model.vocab = 300;
  for (const NamedTensor& t : initial_weights(d)) {
    double sum2 = 0;
    for (const float x : t.values) sum2 += double(x) * x;
    const double stddev = std::sqrt(sum2 / double(t.values.size()));
    if (t.name.ends_with("bias")) {
      EXPECT_EQ(stddev, 0) << t.name;
    } else if (t.shape.size() == 1) {
      EXPECT_EQ(stddev, 1) << t.name;
    } else {
      EXPECT_NEAR(stddev, t.name.ends_with("c_proj.weight") ? 0.01 : 0.02, 0.0008) << t.name;
    }
  }
}

TEST(InitialWeights, DependOnTheTrainingSeedAlone) {
  Definition d = tiny_plan().definition;
  const auto a = initial_weights(d);
  d.global_batch = 5;
  EXPECT_EQ(initial_weights(d)[0].values, a[0].values);
  d.training_seed = 2;
  EXPECT_NE(initial_weights(d)[0].values, a[0].values);
}

TEST(Data, ASampleDependsOnSeedAndNumberAlone) {
  Definition d = tiny_plan().definition;
  d.data.synthetic = false;
  d.model.vocab = 256;
  d.data.bytes = read_file("golden/corpus.txt");
  const auto all = step_tokens(d, 3);
  const int batch = d.global_batch;
  d.global_batch = 2 * batch;
  const auto wider = step_tokens(d, 1);  // samples 2*batch .. 4*batch
  EXPECT_TRUE(std::equal(all.begin(), all.end(), wider.begin() + std::ptrdiff_t(all.size())));
  const std::string text(all.begin(), all.begin() + 9);
  EXPECT_NE(d.data.bytes.find(text), std::string::npos);
}

TEST(Data, ATextJustLongEnoughServesAndAShorterOneIsRefused) {
  Definition d = tiny_plan().definition;
  d.data.synthetic = false;
  d.data.bytes = std::string("\x01\x02\x03\x04\x05\x06\x07\x08\x09", 9);
  EXPECT_EQ(step_tokens(d, 0)[8], 9);
  d.data.bytes.pop_back();
  EXPECT_THROW(step_tokens(d, 0), std::runtime_error);
  d.data.bytes = std::string(9, 'a');  // beyond the vocabulary of 32
  EXPECT_ANY_THROW(step_tokens(d, 0));
}

}  // namespace
}  // namespace seeksim::test
