// What is drawn of pipelines, what of it does not go together, and what a case is held to.
#include <algorithm>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

const Names kPipe = {"pipe"};
const Names kSeveral = {"2", "4"};

// Features of others that mean something with a pipeline. A key of zero_optimization needs its stage 1.
const Names kShared = {"np",         "precision", "optimizer",  "steps",       "accumulation",   "clip",
                       "schedule",   "depth",     "width",      "inputs",      "tied",           "reused",
                       "frozen",     "unused",    "norm",       "dropout",     "resume",         "keeps",
                       "into",       "recompute", "look",       "gather",      "evaluate",       "own_seeds",
                       "bucket",     "overlap",   "contiguous", "round_robin", "reduce_scatter", "partitions",
                       "multi_rank", "aligned",   "offload",    "from_fp32",   "gather_bucket",  "prescale",
                       "predivide",  "sent_as",   "added_as",   "immediate",   "made_by"};

Feature of_pipe(std::string name, Names values, std::string description, bool of_plain = false) {
  return {std::move(name), std::move(values), kPipe, of_plain, "", std::move(description)};
}

Rule cannot_pipe(std::map<std::string, Names> when, std::string why) {
  when["wrapper"] = kPipe;
  return {std::move(when), Grade::bits, std::move(why)};
}
Rule held_to(Grade grade, std::map<std::string, Names> when, std::string why) {
  return {std::move(when), grade, std::move(why)};
}

}  // namespace

bool is_pipe(const Case& drawn) { return drawn.at("wrapper") == "pipe"; }

void add_pipe_features(std::vector<Feature>& to) {
  add_wrapper(to, "pipe", kShared);
  const Names off_on = {"off", "on"};
  const std::vector<Feature> own = {
      of_pipe("ways", {"all", "half"}, "stages of the pipeline: one for each rank, or half as many, and two replicas",
              true),
      of_pipe("stage", {"0", "1"}, "of ZeRO, within each stage of the pipeline"),
      of_pipe("layers", {"given", "specs"}, "modules that each rank has made, or LayerSpecs with seed_layers", true),
      of_pipe("partition", {"parameters", "uniform", "type"}, "PipelineModule's partition_method"),
      of_pipe("functions", off_on, "functions stand between layers", true),
      of_pipe("passed", {"tensor", "pair", "tokens"},
              "what layers pass on: a tensor; two of them, the second as it is; one, and tokens", true),
      of_pipe("sizes", {"same", "micro"}, "micro-batches have other numbers of samples (dynamic_shape)", true),
      of_pipe("grows", off_on, "in the middle set_train_batch_size() doubles the micro-batches", true),
      of_pipe("told", off_on, "the losses that train_batch() and eval_batch() return are compared, too", true),
      of_pipe("interval", {"1", "2"}, "PipelineModule's activation_checkpoint_interval"),
      of_pipe("checkpointed", {"all", "blocks"}, "PipelineModule's checkpointable_layers"),
  };
  to.insert(to.end(), own.begin(), own.end());
}

std::vector<Rule> impossible_of_pipe() {
  return {
      cannot_pipe({{"precision", {"autocast", "fp16", "half"}}}, "It is drawn in fp32 and bf16."),
      cannot_pipe({{"optimizer", {"muon"}}}, "It knows matrices by their names."),
      cannot_pipe({{"recompute", {"deepspeed", "deepspeed_new"}}}, "A pipeline has it by options of its own."),
      cannot_pipe({{"norm", {"batch"}}}, "Its numbers depend on how ranks share the samples."),
      cannot_pipe({{"look", {"whole"}}}, "A stage has no whole model to save."),
      cannot_pipe({{"gather", {"16bit"}}}, "A stage has no whole model to save."),
      cannot_pipe({{"np", {"1"}}, {"ways", {"half"}}}, "There is no half of a rank."),
      cannot_pipe({{"own_seeds", {"on"}}, {"ways", {"all"}}}, "There is one replica."),
      cannot_pipe({{"np", {"4"}}, {"ways", {"all"}}, {"depth", {"1"}}}, "Each stage needs a layer."),
      cannot_pipe({{"np", {"4"}}, {"ways", {"all"}}, {"depth", {"2"}}, {"inputs", {"numbers"}}},
                  "Each stage needs a layer."),
      cannot_pipe({{"frozen", {"body"}}, {"ways", {"all"}}, {"np", {"2", "4"}}},
                  "A stage would have nothing to train."),
      cannot_pipe({{"frozen", {"body"}}, {"tied", {"on"}}}, "The head has the embedding's weight, which is frozen."),
      cannot_pipe({{"frozen", {"body"}}, {"np", {"4"}}}, "A stage would have nothing to train."),
      cannot_pipe({{"frozen", {"block"}}, {"np", {"4"}}}, "A stage would have nothing to train."),
      cannot_pipe({{"frozen", {"block"}}, {"inputs", {"numbers"}}, {"ways", {"all"}}, {"np", {"2"}}},
                  "A stage would have nothing to train."),
      cannot_pipe({{"frozen", {"bias"}}, {"optimizer", {"groups"}}}, "A stage may have nothing in its second group."),
      cannot_pipe({{"added_as", {"fp32"}}, {"stage", {"0"}}}, "DeepSpeed has no such mix at stage 0."),
      cannot_pipe({{"functions", {"on"}}, {"np", {"4"}}, {"ways", {"all"}}}, "A stage may have functions only."),
      cannot_pipe({{"passed", {"tokens"}}, {"inputs", {"numbers"}}}, "There are none."),
      cannot_pipe({{"dropout", {"on"}}, {"evaluate", {"on"}}}, "Each forward pass moves the seed of the layers."),
      cannot_pipe({{"dropout", {"on"}}, {"resume", {"on"}}}, "The seed of the layers begins anew."),
  };
}

const std::vector<Rule>& expected_of_pipe() {
  static const std::vector<Rule> rules = {
      held_to(Grade::rounding, {{"precision", {"bf16"}}},
              "DeepSpeed sums bf16 gradients, and rounds them at places of its own."),
      held_to(Grade::reassociated, {{"clip", {"on"}}}, "The norm of the gradient is summed over other pieces."),
      held_to(Grade::reassociated, {{"tied", {"on"}}, {"accumulation", kSeveral}},
              "Each use of a tied weight adds its micro-batches before the uses are added."),
      held_to(Grade::reassociated, {{"reused", {"on"}}, {"accumulation", kSeveral}},
              "Each use of a tied layer adds its micro-batches before the uses are added."),
      held_to(Grade::reassociated, {{"tied", {"on"}}, {"grows", {"on"}}},
              "Each use of a tied weight adds its micro-batches before the uses are added."),
      held_to(Grade::reassociated, {{"reused", {"on"}}, {"grows", {"on"}}},
              "Each use of a tied layer adds its micro-batches before the uses are added."),
      held_to(Grade::reassociated, {{"recompute", {"reentrant"}}, {"reused", {"on"}}},
              "The recomputed use has a backward pass of its own, whose gradients are added apart."),
      held_to(Grade::reassociated, {{"passed", {"pair"}}},
              "The two tensors that a stage passed on have a backward pass each, whose gradients are added apart."),
      held_to(Grade::reassociated, {{"optimizer", {"fused"}}, {"stage", {"1"}}},
              "The fused kernel rounds in vectors otherwise than at a shard's end."),
  };
  return rules;
}

}  // namespace seeksim::harness::torch
