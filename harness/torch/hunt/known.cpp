#include "harness/torch/hunt/known.h"

#include "harness/torch/hunt/shrink.h"

namespace seeksim::harness::torch {

namespace {

using When = std::map<std::string, std::vector<std::string>>;

// Each of these, with each kind of tensor parallel layer.
void add_with_layers(const std::string& name, const std::vector<When>& each, std::vector<KnownFinding>& to) {
  const std::vector<When> layers = {{{"split", {"sequence", "row", "column", "dtensor", "pair"}}},
                                    {{"words", {"columns", "rows"}}},
                                    {{"logits", {"row", "parallel", "column"}}}};
  for (const When& one : each) {
    for (const When& layer : layers) {
      When both = one;
      both["wrapper"] = {"tp"};
      both.insert(layer.begin(), layer.end());
      to.push_back({name, both});
    }
  }
}

void add_of_tensors(std::vector<KnownFinding>& to) {
  for (const When& layer : {When{{"words", {"columns", "rows"}}}, When{{"logits", {"row", "parallel", "column"}}}}) {
    When tied = {{"wrapper", {"tp"}}, {"tied", {"on"}}, {"retied", {"off"}}};
    tied.insert(layer.begin(), layer.end());
    to.push_back({"tp-tied", tied});
  }
  to.push_back(
      {"tp-frozen-norm",
       {{"wrapper", {"tp"}}, {"split", {"sequence"}}, {"norm", {"on"}}, {"frozen", {"bias", "body", "block"}}}});
  to.push_back(
      {"tp-frozen-norm", {{"wrapper", {"tp"}}, {"split", {"sequence"}}, {"norm", {"on"}}, {"turned", {"thaw"}}}});
  to.push_back({"tp-grad-scaler",
                {{"wrapper", {"tp"}},
                 {"over", {"hsdp", "replicate", "fsdp2"}},
                 {"precision", {"fp16"}},
                 {"scale", {"part"}},
                 {"logits", {"row", "parallel", "column"}}}});
  to.push_back({"tp-compiled-checkpoint",
                {{"wrapper", {"tp"}},
                 {"split", {"sequence", "row", "column", "dtensor", "pair"}},
                 {"compile", {"whole"}},
                 {"recompute", {"on"}}}});
  to.push_back({"fsdp-weight-hook", {{"wrapper", {"tp"}}, {"hook", {"weight"}}, {"logits", {"parallel", "column"}}}});
  to.push_back(
      {"fsdp-weight-hook", {{"wrapper", {"tp"}}, {"hook", {"weight"}}, {"over", {"replicate", "hsdp", "fsdp2"}}}});
  to.push_back({"fsdp2-autocast-cache",
                {{"wrapper", {"tp"}},
                 {"over", {"replicate", "hsdp", "fsdp2"}},
                 {"precision", {"autocast", "fp16"}},
                 {"forwards", {"apart", "spare"}}}});
  to.push_back({"ddp-two-backwards", {{"wrapper", {"tp"}}, {"over", {"ddp"}}, {"forwards", {"apart"}}}});
  for (const When& twice : {When{{"reused", {"on"}}}, When{{"forwards", {"2"}}}}) {
    When found = {{"wrapper", {"tp"}}, {"over", {"replicate", "hsdp", "fsdp2"}}, {"recompute", {"reentrant"}}};
    found.insert(twice.begin(), twice.end());
    to.push_back({"fsdp2-reentrant", found});
  }
  add_with_layers("tp-ddp",
                  {{{"over", {"ddp"}}, {"clip", {"on"}}},
                   {{"over", {"ddp"}}, {"frozen", {"bias", "body", "block"}}},
                   {{"over", {"ddp"}}, {"resume", {"on"}}},
                   {{"over", {"ddp"}}, {"evaluate", {"on"}}},
                   {{"over", {"ddp"}}, {"edit", {"gradient", "on"}}},
                   {{"over", {"ddp"}}, {"average", {"each", "foreach"}}}},
                  to);
}

void add_refused_of_tensors(std::vector<Refusal>& to) {
  const auto add = [&](Case part, const std::string& words) {
    part["wrapper"] = "tp";
    to.push_back({part, words, 1});
  };
  for (const char* split : {"pair", "sequence"})
    add({{"split", split}, {"hidden", "13"}}, "a and b must have same reduction dim");
  add({{"branch", "step"}, {"resume", "on"}}, "Missing optimizer state for parameter 'other.weight' in checkpoint");
  add({{"branch", "step"}, {"resume", "on"}, {"state", "flat"}},
      "float() argument must be a string or a real number, not 'dict'");
  for (const char* layers : {"column", "row", "parallel"})
    add({{"over", "ddp"}, {"edit", "moment"}, {"logits", layers}}, "KeyError: 'momentum_buffer'");
  for (const char* split : {"pair", "dtensor", "column", "row", "sequence"}) {
    add({{"over", "ddp"}, {"resume", "on"}, {"split", split}}, "KeyError");
    add({{"over", "ddp"}, {"look", "state"}, {"split", split}}, "KeyError");
  }
}

void add_refused_of_stages(std::vector<Refusal>& to) {
  const auto add = [&](Case part, const std::string& words) {
    part["wrapper"] = "stages";
    to.push_back({part, words, 1});
  };
  for (const char* plan : {"zero", "zbv", "dualpipe"}) {
    add({{"plan", plan}, {"twice", "on"}}, "Trying to backward through the graph a second time");
    add({{"plan", plan}, {"shared", "factor"}}, "Trying to backward through the graph a second time");
  }
  add({{"inputs", "tokens"}, {"recompute", "reentrant"}, {"shapes", "found"}},
      "torch.utils.checkpoint is incompatible with .grad()");
}

// By DeepSpeed's own functions.
void add_refused_of_recomputation(std::vector<Refusal>& to) {
  const Case reused = {{"inputs", "tokens"}, {"reused", "on"}, {"recompute", "deepspeed"}};
  const std::vector<std::pair<std::string, std::string>> words = {{"zero2", "has already been reduced"},
                                                                  {"zero3", "AssertionError"}};
  for (const auto& [wrapper, said] : words) {
    to.push_back({reused, said, 1});
    to.back().part["wrapper"] = wrapper;
  }
  to.push_back({{{"wrapper", "zero3"}, {"recompute", "deepspeed_new"}}, "The size of tensor a (0) must match", 1});
  to.push_back({{{"wrapper", "zero1"}, {"precision", "autocast"}, {"recompute", "deepspeed_new"}},
                "to have the same dtype, but got: c10::BFloat16 != float",
                1});
}

}  // namespace

const std::vector<KnownFinding>& known_findings() {
  static const std::vector<KnownFinding> fixed = {
      {"zero3-unused-layer", {{"wrapper", {"zero3"}}, {"branch", {"step", "late"}}}},
      {"zero-offload-unused-layer", {{"wrapper", {"zero1", "zero2"}}, {"branch", {"step"}}, {"offload", {"on"}}}},
      {"zero-offload-unused-layer", {{"wrapper", {"zero2", "zero3"}}, {"branch", {"early"}}, {"offload", {"on"}}}},
      {"zero-offload-unused-layer", {{"wrapper", {"zero2"}}, {"branch", {"late"}}, {"offload", {"on"}}}},
      {"zero-offload-unused-layer",
       {{"wrapper", {"zero1", "zero2", "zero3"}}, {"turned", {"freeze"}}, {"offload", {"on"}}}},
      {"zero-round-robin-full",
       {{"wrapper", {"zero1", "zero2"}}, {"round_robin", {"true"}}, {"edit", {"on", "gradient", "moment"}}}},
      {"zero1-overlap-unused-layer", {{"wrapper", {"zero1"}}, {"branch", {"early"}}, {"overlap", {"true"}}}},
      {"zero0-adam-step",
       {{"wrapper", {"zero0"}},
        {"precision", {"bf16"}},
        {"optimizer", {"adamw", "groups", "foreach", "fused", "amsgrad"}}}},
      {"zero0-fp16-scale", {{"wrapper", {"zero0"}}, {"precision", {"half"}}}},
      {"zero0-adam-step",
       {{"wrapper", {"moe"}},
        {"zero", {"0"}},
        {"precision", {"bf16"}},
        {"optimizer", {"adamw", "groups", "foreach", "fused", "amsgrad"}}}},
      {"zero0-fp16-scale", {{"wrapper", {"moe"}}, {"zero", {"0"}}, {"precision", {"half"}}}},
      {"zero0-weights-alone",
       {{"wrapper", {"zero0"}}, {"precision", {"bf16"}}, {"resume", {"on"}}, {"keeps", {"weights"}}}},
      {"zero0-weights-alone",
       {{"wrapper", {"moe"}}, {"zero", {"0"}}, {"precision", {"bf16"}}, {"resume", {"on"}}, {"keeps", {"weights"}}}},
      {"moe-frozen-experts",
       {{"wrapper", {"moe"}},
        {"zero", {"2"}},
        {"ep", {"4", "2"}},
        {"frozen", {"expert", "block", "bias"}},
        {"resume", {"on"}}}},
      {"moe-clip", {{"wrapper", {"moe"}}, {"zero", {"0"}}, {"ep", {"4", "2"}}, {"clip", {"on"}}}},
      {"fp16-scale-grows", {{"wrapper", {"zero1", "zero2", "zero3"}}, {"precision", {"half"}}, {"scale", {"grows"}}}},
      {"zero-autocast-clip", {{"wrapper", {"zero1", "zero2", "zero3"}}, {"precision", {"fp16"}}, {"clip", {"on"}}}},
      {"zero-autocast-stuck",
       {{"wrapper", {"zero1", "zero2", "zero3"}}, {"precision", {"fp16"}}, {"scale", {"spike", "part"}}}},
      {"zero-offload-overflow",
       {{"wrapper", {"zero1", "zero2"}},
        {"precision", {"half"}},
        {"scale", {"spike", "part"}},
        {"offload", {"on"}},
        {"added_as", {"fp32"}}}},
      {"zero0-autocast-schedule",
       {{"wrapper", {"zero0"}}, {"precision", {"fp16"}}, {"scale", {"spike", "part"}}, {"schedule", {"on"}}}},
      {"zero-thawed", {{"wrapper", {"zero1", "zero2", "zero3"}}, {"turned", {"thaw"}}}},
      {"zero-buffers", {{"wrapper", {"zero0", "zero1", "zero2", "zero3"}}, {"buffer", {"on"}}, {"own_seeds", {"on"}}}},
      {"universal-groups", {{"wrapper", {"zero3"}}, {"optimizer", {"groups"}}, {"world", {"fewer", "more"}}}},
      {"universal-round-robin",
       {{"wrapper", {"zero1", "zero2"}}, {"round_robin", {"true"}}, {"world", {"fewer", "more"}}}},
      {"universal-serial", {{"wrapper", {"zero3"}}, {"load_piecewise", {"true"}}, {"world", {"fewer", "more"}}}},
      {"zero3-hpz-load",
       {{"wrapper", {"zero3"}}, {"secondary", {"2"}}, {"frozen", {"block", "bias", "body"}}, {"resume", {"on"}}}},
      {"zero1-bf16-load",
       {{"wrapper", {"zero1"}},
        {"precision", {"bf16"}},
        {"resume", {"on"}},
        {"from_fp32", {"false"}},
        {"added_as", {"fp32"}}}},
      {"zero1-bf16-load",
       {{"wrapper", {"pipe"}},
        {"stage", {"1"}},
        {"precision", {"bf16"}},
        {"resume", {"on"}},
        {"from_fp32", {"false"}},
        {"added_as", {"fp32"}}}},
      {"zero1-bf16-load",
       {{"wrapper", {"moe"}},
        {"zero", {"1"}},
        {"precision", {"bf16"}},
        {"resume", {"on"}},
        {"from_fp32", {"false"}},
        {"added_as", {"fp32"}}}},
      {"universal-steps", {{"wrapper", {"zero3"}}, {"sub_group", {"100"}}, {"world", {"fewer", "more"}}}},
      {"universal-frozen",
       {{"wrapper", {"zero1", "zero2", "zero3"}}, {"frozen", {"block", "bias", "body"}}, {"world", {"fewer", "more"}}}},
      {"universal-frozen",
       {{"wrapper", {"zero1", "zero2", "zero3"}}, {"buffer", {"on"}}, {"world", {"fewer", "more"}}}},
      {"zero-adagrad-schedule",
       {{"wrapper", {"zero1", "zero2", "zero3"}}, {"optimizer", {"adagrad"}}, {"schedule", {"on"}}}},
      {"zero-adagrad-schedule",
       {{"wrapper", {"pipe"}}, {"stage", {"1"}}, {"optimizer", {"adagrad"}}, {"schedule", {"on"}}}},
      {"fsdp1-hybrid-one", {{"wrapper", {"fsdp1"}}, {"strategy", {"hybrid"}}, {"replicas", {"2"}}}},
      {"zero3-reused-block", {{"wrapper", {"zero3"}}, {"forwards", {"2"}}, {"recompute", {"reentrant"}}}},
      {"zero3-reused-block", {{"wrapper", {"zero3"}}, {"reused", {"on"}}, {"recompute", {"reentrant"}}}},
      {"fsdp1-channels-last", {{"wrapper", {"fsdp1"}}, {"strided", {"on"}}, {"strategy", {"none"}}}},
      {"fsdp1-channels-last", {{"wrapper", {"fsdp1"}}, {"strided", {"on"}}, {"np", {"1"}}}},
      {"fsdp1-spare-forward", {{"wrapper", {"fsdp1"}}, {"precision", {"bf16"}}, {"forwards", {"spare"}}}},
      {"ddp-two-backwards", {{"wrapper", {"ddp"}}, {"forwards", {"apart"}}}},
      {"fsdp-weight-hook", {{"wrapper", {"fsdp1", "fsdp2", "hsdp"}}, {"hook", {"weight"}}}},
      {"fsdp1-reentrant-bf16",
       {{"wrapper", {"fsdp1"}}, {"precision", {"bf16"}}, {"reused", {"on"}}, {"recompute", {"reentrant"}}}},
      {"fsdp1-cpu-state", {{"wrapper", {"fsdp1"}}, {"state", {"rank0", "rank0_both"}}}},
      {"set-state-dict-sent", {{"wrapper", {"ddp", "fsdp1", "fsdp2", "hsdp", "tp"}}, {"state", {"rank0_both"}}}},
      {"zero3-muon-memory", {{"wrapper", {"zero3"}}, {"muon_in_memory", {"true"}}, {"resume", {"on"}}}},
      {"zero3-module-only", {{"wrapper", {"zero3"}}, {"keeps", {"module"}}}},
      {"fsdp2-autocast-cache",
       {{"wrapper", {"fsdp2", "hsdp"}}, {"precision", {"autocast", "fp16"}}, {"forwards", {"apart", "spare"}}}},
      {"fsdp2-reentrant", {{"wrapper", {"fsdp2", "hsdp"}}, {"reused", {"on"}}, {"recompute", {"reentrant"}}}},
      {"fsdp2-reentrant", {{"wrapper", {"fsdp2", "hsdp"}}, {"forwards", {"2"}}, {"recompute", {"reentrant"}}}},
      {"pipeline-tied-offload",
       {{"wrapper", {"pipe"}},
        {"precision", {"bf16"}},
        {"stage", {"1"}},
        {"offload", {"on"}},
        {"added_as", {"fp32"}},
        {"tied", {"on"}}}},
      {"pipeline-tied-offload",
       {{"wrapper", {"pipe"}},
        {"precision", {"bf16"}},
        {"stage", {"1"}},
        {"offload", {"on"}},
        {"added_as", {"fp32"}},
        {"reused", {"on"}}}},
      {"pipeline-seeds-recomputed", {{"wrapper", {"pipe"}}, {"dropout", {"on"}}, {"recompute", {"on", "reentrant"}}}},
      {"partition-activations", {{"wrapper", {"zero0", "zero1", "zero2", "zero3"}}, {"activations", {"parts"}}}},
      {"zero-edit-clip",
       {{"wrapper", {"zero1", "zero2", "zero3"}}, {"edit", {"gradient"}}, {"offload", {"on"}}, {"clip", {"on"}}}},
      {"compiled-buffer",
       {{"wrapper", {"ddp", "fsdp1", "fsdp2", "hsdp", "zero0", "zero1", "zero2", "zero3", "tp"}},
        {"buffer", {"on"}},
        {"compile", {"whole"}}}},
      {"lightning-resumed-epoch",
       {{"wrapper", {"ddp"}}, {"loop", {"lightning"}}, {"loader", {"even", "short", "uneven"}}, {"resume", {"on"}}}},
      {"pipeline-clip", {{"wrapper", {"pipe"}}, {"stage", {"0"}}, {"clip", {"on"}}, {"precision", {"fp32"}}}},
      {"stages-zero-bubble",
       {{"wrapper", {"stages"}}, {"plan", {"zero", "zbv", "dualpipe"}}, {"frozen", {"block", "body"}}}},
      {"stages-zero-bubble", {{"wrapper", {"stages"}}, {"plan", {"zero", "zbv", "dualpipe"}}, {"passed", {"own"}}}},
      {"stages-zero-bubble-ddp", {{"wrapper", {"stages"}}, {"plan", {"zero", "zbv", "dualpipe"}}, {"data", {"ddp"}}}},
      {"stages-zero-bubble-ddp", {{"wrapper", {"stages"}}, {"plan", {"zero", "zbv", "dualpipe"}}, {"hook", {"after"}}}},
      {"stages-zero-bubble-fsdp",
       {{"wrapper", {"stages"}},
        {"plan", {"zero", "zbv", "dualpipe"}},
        {"data", {"fsdp2"}},
        {"reshard", {"default", "on"}}}},
      {"stages-scaled-twice", {{"wrapper", {"stages"}}, {"calls", {"2"}}}},
      {"fsdp-late-validation",
       {{"wrapper", {"fsdp1", "fsdp2", "hsdp"}}, {"evaluate", {"on"}}, {"evaluated", {"late"}}}},
      {"fsdp2-divided-twice", {{"wrapper", {"hsdp"}}, {"replicas", {"2"}}, {"divide", {"both"}}}},
      {"fsdp2-divided-twice", {{"wrapper", {"tp"}}, {"over", {"hsdp"}}, {"divide", {"both"}}}},
      {"redundancy-strided", {{"wrapper", {"ddp"}}, {"redundancy", {"view"}}, {"strided", {"on"}}}},
      {"redundancy-strided", {{"wrapper", {"ddp"}}, {"local_sgd", {"on"}}, {"strided", {"on"}}}},
      {"local-sgd-schedule",
       {{"wrapper", {"ddp"}}, {"local_sgd", {"on"}}, {"schedule", {"on"}}, {"resume", {"on"}}, {"state", {"own"}}}},
      {"local-sgd-unused",
       {{"wrapper", {"ddp"}}, {"local_sgd", {"on"}}, {"branch", {"rank", "step"}}, {"find_unused", {"on"}}}},
      {"local-sgd-unused",
       {{"wrapper", {"ddp"}}, {"local_sgd", {"on"}}, {"turned", {"freeze"}}, {"find_unused", {"on"}}}},
      {"stages-scaled-twice", {{"wrapper", {"stages"}}, {"plan", {"zbv", "dualpipe"}}, {"tied", {"on"}}}},
  };
  static const std::vector<KnownFinding> all = [] {
    std::vector<KnownFinding> rows = fixed;
    add_of_tensors(rows);
    return rows;
  }();
  return all;
}

const std::vector<Refusal>& known_refusals() {
  static const std::vector<Refusal> all = [] {
    std::vector<Refusal> rows;
    const auto add = [&](const std::vector<std::string>& wrappers, const Case& part, const std::string& words) {
      for (const std::string& wrapper : wrappers) {
        rows.push_back({part, words, 1});
        rows.back().part["wrapper"] = wrapper;
      }
    };
    const std::vector<std::string> zero = {"zero0", "zero1", "zero2", "zero3"};
    const Case reused = {{"inputs", "tokens"}, {"reused", "on"}, {"recompute", "reentrant"}};
    const Case again = {{"inputs", "tokens"}, {"forwards", "2"}, {"recompute", "reentrant"}};
    add(zero, {{"scalar", "on"}}, "self.dim() cannot be 0 to view Float as Byte");
    add(zero, {{"strided", "on"}}, "self.stride(-1) must be 1 to view Float as Byte");
    add({"zero3"}, {{"granularity", "1000"}}, "Cannot reduce scatter gradients whose size is not same as the params");
    for (const Case& twice : {reused, again}) {
      Case large_bucket = twice;
      large_bucket["bucket"] = feature("bucket").values.front();
      add({"zero3"}, large_bucket, "AssertionError");
      add({"zero2"}, twice, "has already been reduced. Gradient computed twice");
      add({"ddp"}, twice, "Expected to mark a variable ready only once");
    }
    add({"zero3"}, {{"resume", "on"}, {"secondary", "2"}, {"zero_init", "on"}},
        "ZeRO parameter intra parallel group is already initialized");
    add({"fsdp2", "hsdp"}, {{"branch", "step"}, {"resume", "on"}},
        "Missing optimizer state for parameter 'other.weight'");
    add({"zero3"}, {{"normed", "on"}, {"zero_init", "on"}}, "cannot reshape tensor of 0 elements into shape [0, -1]");
    add({"zero3"}, {{"models", "2"}, {"secondary", "2"}, {"zero_init", "on"}},
        "ZeRO parameter intra parallel group is already initialized");
    add({"zero3"}, {{"optimizer", "adagrad"}, {"resume", "on"}}, "a parameter group that doesn't match the size");
    for (const char* frozen : {"block", "bias", "body"})
      add({"zero1"}, {{"frozen", frozen}, {"gather", "whole"}}, "Error(s) in loading state_dict for Model");
    add({"zero1", "zero2", "zero3"}, {{"forwards", "2"}, {"backward", "tensor"}}, "KeyError: 0");
    for (const char* world : {"fewer", "more"})
      add({"ddp"}, {{"branch", "step"}, {"resume", "on"}, {"world", world}},
          "Missing key in checkpoint state_dict: optimizer.other");
    add({"zero1", "zero2"}, {{"edit", "moment"}, {"resume", "on"}}, "argument of type 'NoneType' is not iterable");
    add({"zero1", "zero2"}, {{"edit", "moment"}, {"optimizer", "groups"}},
        "exp_avg not found in optimizer state fragment");
    add({"ddp"}, {{"inputs", "tokens"}, {"recompute", "reentrant"}, {"find_unused", "on"}},
        "Expected to mark a variable ready only once");
    add({"fsdp1"}, {{"precision", "bf16"}, {"inputs", "tokens"}, {"recompute", "reentrant"}, {"wrap", "root"}},
        "mat1 and mat2 must have the same dtype, but got BFloat16 and Float");
    add({"fsdp1"}, {{"inputs", "tokens"}, {"reused", "on"}, {"forwards", "2"}, {"recompute", "reentrant"}},
        "setStorage: sizes ... are out of bounds for storage of size 0");
    add({"ddp", "fsdp2", "hsdp", "tp"}, {{"unused", "on"}, {"resume", "on"}, {"loop", "own"}},
        "Missing optimizer state for parameter 'unused' in checkpoint");
    add({"fsdp1"}, {{"branch", "step"}, {"resume", "on"}},
        "Missing optimizer state for parameter 'other.weight' in checkpoint");
    for (const char* compiled : {"whole", "blocks"})
      add({"ddp"}, {{"compile", compiled}, {"ddp_bucket", "small"}}, "First bucket should be");
    add({"fsdp1"}, {{"forwards", "apart"}}, "setStorage: sizes ... are out of bounds for storage of size 0");
    add({"fsdp1"}, {{"branch", "early"}}, "should use _saved_grad_shard");
    add({"fsdp1"}, {{"strided", "on"}, {"look", "state"}}, "Only torch.contiguous_format memory_format is supported");
    add({"fsdp1"}, {{"strided", "on"}, {"resume", "on"}}, "Only torch.contiguous_format memory_format is supported");
    add({"pipe"}, {{"stage", "0"}, {"precision", "bf16"}, {"resume", "on"}}, "KeyError: 0");
    add({"pipe"}, {{"stage", "0"}, {"precision", "bf16"}, {"layers", "specs"}, {"reused", "on"}, {"unused", "on"}},
        "'Parameter' object has no attribute '_hp_grad'");
    add({"pipe"}, {{"inputs", "tokens"}, {"recompute", "reentrant"}, {"checkpointed", "all"}},
        "element 0 of tensors does not require grad");
    add_refused_of_tensors(rows);
    add_refused_of_stages(rows);
    add_refused_of_recomputation(rows);
    return rows;
  }();
  return all;
}

KnownFinding known_by(const Case& found) {
  KnownFinding known;
  known.name = case_text(found);
  for (const auto& [name, value] : needed(found)) known.when[name] = {value};
  return known;
}

KnownFinding known_by(const std::string& text) { return known_by(case_of(text)); }

bool covers(const KnownFinding& known, const Case& drawn) { return Rule{known.when, Grade::bits, ""}.covers(drawn); }

bool explains(const KnownFinding& known, const Case& drawn, const std::function<bool(const Case&)>& red) {
  if (!covers(known, drawn)) return false;
  Case without = drawn;
  for (const auto& [name, values] : known.when) {
    if (name != "wrapper") without[name] = feature(name).values.front();
  }
  without = normal(without);
  return without == drawn || !cannot_be(without).empty() || !red(without);
}

}  // namespace seeksim::harness::torch
