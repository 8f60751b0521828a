#include "harness/testing/scenario_gen.h"

#include <fmt/format.h>

#include <ostream>

#include "harness/search/shrink.h"
#include "harness/testing/feature_draws.h"
#include "runtime/rules/bug.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::property {
namespace {

void draw_experts(Json& model) {
  const int experts = between(1, 5), per_token = between(1, std::min(experts, 3));
  model["experts"] = experts;
  model["experts_per_token"] = per_token;
  if (one_in(2)) model["capacity_factor"] = any_of<Json>({0.5, 1, 1.25});
  if (one_in(2)) model["aux_loss"] = 0.01;
  if (one_in(3)) model["z_loss"] = 0.001;
  if (one_in(3)) model["normalize_gates"] = per_token > 1 && one_in(2);
  draw_deepseek(model);
}

Json draw_model(bool text, bool fp32) {
  const int heads = between(1, 3), layers = between(1, 3);
  Json model = {{"layers", layers},
                {"width", heads * between(1, 7)},
                {"heads", heads},
                {"context", between(1, 9)},
                {"vocab", text ? between(256, 263) : between(2, 211)}};
  const bool llama = one_in(4);
  if (llama) {
    const int keys = between(1, 3), group = between(1, 3);
    model["family"] = "llama";
    model["heads"] = keys * group;
    model["width"] = 2 * keys * group * between(1, 4);  // heads have two halves
    if (one_in(2)) model["ffn"] = between(1, 30);
    if (group > 1 || one_in(2)) model["kv_heads"] = keys;
    if (one_in(3)) model["rope_theta"] = 500000;
    if (one_in(3)) draw_experts(model);
  }
  if (one_in(3)) model["tied"] = llama;
  if (one_in(4)) {
    model["attention"] = "fused";
    if (one_in(3)) model["context"] = between(31, 70);  // some blocks
  }
  if (one_in(3))
    model["dropout"] = any_of<Json>({0.1, 0.5, {{"attention", 0.3}}, {{"embedding", 0.2}, {"residual", 0.7}}});
  if (fp32 && one_in(3)) model["logit_scale"] = true;
  if (one_in(3)) {
    const std::string last = fmt::format("*.{}.*", layers - 1);
    if (llama) {
      model["frozen"] =
          any_of<Json>({{"*embed_tokens.weight"}, {"*.0.*"}, {"*norm.weight"}, {last, "model.norm.weight"}});
    } else {
      model["frozen"] = any_of<Json>({{"wpe.weight"}, {"wte.weight"}, {"h.0.*"}, {"*.bias"}, {last, "ln_f.weight"}});
    }
  }
  return model;
}

Json draw_world() {
  const auto [nodes, ranks] = any_of<std::pair<int, int>>({{1, 1},
                                                           {1, 2},
                                                           {2, 1},
                                                           {1, 3},
                                                           {3, 1},
                                                           {2, 2},
                                                           {1, 4},
                                                           {1, 5},
                                                           {5, 1},
                                                           {2, 3},
                                                           {3, 2},
                                                           {1, 7},
                                                           {1, 8},
                                                           {2, 4},
                                                           {4, 2}});
  return {{"nodes", nodes},
          {"ranks_per_node", ranks},
          {"network", any_of<std::string>({"nvlink", "pcie", "ib", "tcp"})},
          {"noise", any_of<double>({0, 0.02, 0.5})},
          {"all_gather", any_of<std::string>({"direct", "direct", "ring", "doubling"})}};
}

// From one element to more than any model has.
int bucket() { return any_of<int>({1, between(1, 64), between(64, 3000), 500'000'000}); }

Json draw_zero(int stage) {
  Json zero = {{"stage", stage}};
  if (stage >= 1) zero["overlap_comm"] = one_in(2);
  if (stage >= 1) zero["reduce_bucket_size"] = bucket();
  if (stage == 1 || stage == 2) zero["allgather_bucket_size"] = bucket();
  if (stage < 3) return zero;
  zero["stage3_prefetch_bucket_size"] = one_in(3) ? 0 : bucket();
  zero["stage3_param_persistence_threshold"] = any_of<int>({0, 0, between(1, 40), 100'000});
  zero["stage3_max_reuse_distance"] = any_of<int>({0, 0, between(1, 5000), 1'000'000'000});
  return zero;
}

void draw_precision(const std::string& precision, Json& deepspeed) {
  if (precision == "bf16") deepspeed["bf16"] = {{"enabled", true}, {"bf16_master_weights_and_grads", one_in(4)}};
  if (precision == "fp16") {
    // From scales that overflow for some steps to ones that never do.
    deepspeed["fp16"] = {{"enabled", true},
                         {"loss_scale", one_in(4) ? 128 : 0},
                         {"initial_scale_power", between(4, 20)},
                         {"loss_scale_window", between(1, 3)},
                         {"hysteresis", between(1, 2)}};
  }
  if (precision != "fp32" && one_in(2))
    deepspeed["data_types"] = {{"grad_accum_dtype", any_of<std::string>({"fp32", precision})}};
}

Json draw_deepspeed(int stage, const std::string& precision) {
  const bool decays = one_in(2);
  const std::string type = any_of<std::string>({"AdamW", "AdamW", "AdamW", "Lion", "Muon", "SGD"});
  Json deepspeed = {{"train_batch_size", between(1, 13)},
                    {"train_micro_batch_size_per_gpu", between(1, 5)},
                    {"gradient_clipping", any_of<double>({0, 0.1, 1})},
                    {"optimizer", {{"type", type}, {"params", {{"lr", 1e-2}, {"weight_decay", decays ? 0.1 : 0.0}}}}},
                    {"zero_optimization", draw_zero(stage)}};
  if (type == "SGD") deepspeed["optimizer"]["params"]["momentum"] = any_of<double>({0, 0.9});
  draw_precision(precision, deepspeed);
  return deepspeed;
}

Json draw_schedule(int ranks) {
  Json schedule = {{"strategy", any_of<std::string>({"seeded", "first", "random", "pct", "swarm"})}};
  if (schedule["strategy"] == "pct") schedule.update({{"changes", between(0, 6)}, {"horizon", between(50, 5000)}});
  for (int n = between(0, 3); n > 0; --n)
    schedule["slow"].push_back({{"rank", between(0, ranks - 1)},
                                {"queue", any_of<std::string>({"compute", "communication", "copy", "host", "storage"})},
                                {"doublings", between(1, 8)}});
  return schedule;
}

void draw_offload(Json& deepspeed) {
  Json& zero = deepspeed["zero_optimization"];
  zero["offload_optimizer"] = {{"device", any_of<std::string>({"cpu", "nvme"})},
                               {"nvme_path", "nvme"},
                               {"pin_memory", one_in(2)},
                               {"pipeline_read", one_in(2)},
                               {"pipeline_write", one_in(2)},
                               {"buffer_count", between(2, 4)}};
  if (zero["stage"] == 3 && one_in(2)) zero["offload_optimizer"].update({{"device", "cpu"}, {"super_offload", true}});
  zero["sub_group_size"] = any_of<int>({between(1, 300), 1'000'000'000});
  deepspeed.erase("data_types");
  if (deepspeed.contains("bf16")) deepspeed["bf16"].erase("bf16_master_weights_and_grads");
}

// Groups of as many micro-batches as there are stages, so that none waits for itself.
void draw_interleaved(Json& s) {
  Json& world = s["world"];
  const int stages = world["pipeline"];
  world["schedule"] = "interleaved";
  s["model"]["layers"] = 2 * stages;
  s["deepspeed"]["train_micro_batch_size_per_gpu"] = 1;
  s["deepspeed"]["train_batch_size"] = world["replicas"].get<int>() * stages * between(1, 2);
}

// Stages and ways cut layers, heads and width: all of them are multiples here.
void draw_parallel(Json& s) {
  const int stages = any_of<int>({1, 2, 4}), ways = stages == 1 ? 2 : any_of<int>({1, 2});
  s["model"] = {{"layers", stages * between(1, 2)}, {"width", ways * 2 * between(1, 4)},
                {"heads", ways * between(1, 2)},    {"context", between(2, 8)},
                {"vocab", between(8, 64)},          {"tied", one_in(2)}};
  s["model"]["width"] = s["model"]["heads"].get<int>() * 2 * between(1, 3);
  if (one_in(3)) s["model"]["dropout"] = 0.2;
  s["data"] = {{"synthetic", true}};
  s["world"] = {{"nodes", 1}, {"replicas", between(1, 3)}, {"pipeline", stages}, {"tensor", ways}, {"network", "ib"}};
  // Muon takes matrices as wholes, which ways cut.
  if (Json& type = s["deepspeed"]["optimizer"]["type"]; ways > 1 && type == "Muon") type = "AdamW";
  if (stages > 1) s["world"]["schedule"] = any_of<std::string>({"gpipe", "1f1b", "zero_bubble"});
  if (stages > 1 && one_in(4)) draw_interleaved(s);
  s["deepspeed"]["zero_optimization"] = draw_zero(between(0, 3));
  if (one_in(4)) {
    if (s["deepspeed"]["zero_optimization"]["stage"] == 0) s["deepspeed"]["zero_optimization"] = draw_zero(1);
    s["deepspeed"]["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
  }
  s["deepspeed"].erase("data_types");
  if (s["deepspeed"].contains("bf16")) s["deepspeed"]["bf16"].erase("bf16_master_weights_and_grads");
  remove_experts(s["model"]);
}

// Experts over some of the ranks that share the batch, a power of two of them each.
void draw_divided_experts(Json& s) {
  const int group = any_of<int>({2, 2, 3, 4}), own = any_of<int>({1, 1, 2, 4}), experts = group * own;
  s["model"] = {{"family", "llama"},
                {"layers", between(1, 2)},
                {"width", 4 * between(1, 4)},
                {"heads", 2},
                {"context", between(2, 8)},
                {"vocab", between(8, 64)},
                {"ffn", between(3, 12)},
                {"tied", one_in(2)},
                {"experts", experts},
                {"experts_per_token", between(2, std::min(3, experts))},
                {"aux_loss", one_in(2) ? 0.01 : 0.0},
                {"capacity_factor", any_of<double>({0, 0.5, 1, 1.25})}};
  draw_deepseek(s["model"]);
  if (one_in(3)) s["model"]["dropout"] = 0.2;
  if (one_in(4)) s["model"]["frozen"] = any_of<Json>({{"*.experts.*"}, {"*.0.*"}, {"*.gate.weight"}});
  s["data"] = {{"synthetic", true}};
  s["world"] = {{"nodes", 1}, {"replicas", group * between(1, 2)}, {"expert", group}, {"network", "ib"}};
  s["deepspeed"]["zero_optimization"] = draw_zero(between(0, 3));
}

// The same on stages, with a group on each; or whole layers of experts on each rank of a stage.
void draw_expert_pipeline(Json& s) {
  const int stages = between(2, 3), replicas = s["world"]["replicas"];
  Json& model = s["model"];
  model["layers"] = stages * between(1, 2);
  if (one_in(2)) model["z_loss"] = 0.001;
  s["world"]["pipeline"] = stages;
  s["world"]["schedule"] = any_of<std::string>({"1f1b", "gpipe", "zero_bubble"});
  if (s["world"]["schedule"] == "zero_bubble")
    for (const char* key : {"shared_experts", "dense_layers", "dense_ffn"}) model.erase(key);
  if (one_in(4)) s["world"].erase("expert");
  s["world"]["nodes"] = one_in(2) ? stages : 1;
  if (!one_in(4)) return;
  s["recovery"] = {{"watchdog_s", 60}, {"policy", "stop"}, {"restarts", 2}, {"restart_s", 10}};
  s["checkpoint"] = {{"path", "checkpoints"}, {"every_steps", 1}};
  s["faults"] = Json::array();
  s["faults"].push_back({{"kind", "rank_crash"},
                         {"rank", between(0, stages * replicas - 1)},
                         {"step", between(0, s["steps"].get<int>() - 1)},
                         {"op", "vote"},
                         {"mode", any_of<std::string>({"before", "after"})}});
  s["checks"] = {"golden:bitwise", "golden:gradients"};
}

// And slabs of each expert's width on tensor ways. The ranks of the world.
int draw_slabs_of_experts(Json& s) {
  draw_divided_experts(s);
  Json &model = s["model"], &world = s["world"];
  const int ways = any_of<int>({2, 2, 4, 8}), group = world["expert"];
  if (ways > 2 || one_in(2)) world.erase("expert");
  const int data = world.contains("expert") ? group * between(1, 2) : between(1, 2);
  world["tensor"] = ways, world["replicas"] = data;
  model.update({{"expert_sums", "slabs"}, {"ffn", 8 * between(1, 3)}, {"heads", 8}, {"kv_heads", 8}});
  model["width"] = 16 * between(1, 2);
  model.erase("dense_ffn");
  if (one_in(2)) {
    world["sequence_parallel"] = true;
    model["context"] = any_of<int>({8, 15, 16});
  }
  if (Json& type = s["deepspeed"]["optimizer"]["type"]; type == "Muon") type = "AdamW";
  return data * ways;
}

// Keys and values go around instead: chunks of one or two blocks of keys, and key heads that the ranks need not divide.
void draw_ring(Json& s) {
  const int group = s["world"]["context"], chunks = s["world"].contains("context_cut") ? 2 * group : group;
  s["world"]["context_attention"] = "ring";
  s["model"]["attention"] = "fused";
  s["model"]["context"] = 32 * chunks * (chunks <= 4 && one_in(3) ? 2 : 1);
  const int keys = between(1, 2), queries = s["model"].contains("family") ? between(1, 3) : 1;
  s["model"]["heads"] = keys * queries, s["model"]["width"] = keys * queries * 2 * between(1, 4);
  if (s["model"].contains("family")) s["model"]["kv_heads"] = keys;
}

// Groups that share the tokens of each sample, in either cut, and (each fourth time) a rank of one that dies.
void draw_context(Json& s, const std::string& precision) {
  const int group = any_of<int>({2, 2, 4, 8}), replicas = between(1, group == 8 ? 2 : 3), keys = group * between(1, 2);
  s["model"] = {{"layers", between(1, 2)},      {"heads", keys},           {"width", keys * 2 * between(1, 3)},
                {"context", 8 * between(1, 5)}, {"vocab", between(8, 64)}, {"tied", one_in(2)},
                {"gradient_sums", "segments"}};
  if (one_in(2)) {
    const int queries = between(1, 3);
    s["model"].update({{"family", "llama"}, {"kv_heads", keys}, {"heads", keys * queries}, {"ffn", between(1, 30)}});
    s["model"]["width"] = keys * queries * 2 * between(1, 2);
  }
  if (one_in(3)) s["model"]["attention"] = "fused";
  if (one_in(3)) s["model"]["dropout"] = any_of<Json>({0.2, {{"attention", 0.3}}, {{"embedding", 0.2}}});
  if (one_in(4)) s["model"]["frozen"] = any_of<Json>({{"*.0.*"}, {"*norm.weight", "*ln_1.weight"}, {"*.bias"}});
  if (s["model"].contains("frozen") && s["model"].contains("family")) s["model"]["frozen"] = {"*.0.*"};
  if (precision == "fp32" && one_in(3)) s["model"]["logit_scale"] = true;
  s["data"] = {{"synthetic", true}};
  s["world"] = {{"nodes", 1}, {"replicas", replicas}, {"context", group}, {"network", "ib"}};
  if (group < 8 && one_in(2)) s["world"]["context_cut"] = "zigzag";
  if (one_in(3)) draw_ring(s);
  if (!one_in(4)) return;
  s["recovery"] = {{"watchdog_s", 60}};
  s["checkpoint"] = {{"path", "checkpoints"}, {"every_steps", 1}};
  s["recovery"].update({{"policy", "stop"}, {"restarts", 2}, {"restart_s", 10}});
  s["faults"] = Json::array();
  s["faults"].push_back({{"kind", "rank_crash"},
                         {"rank", between(0, group * replicas - 1)},
                         {"step", between(0, s["steps"].get<int>() - 1)},
                         {"op", "vote"},
                         {"mode", any_of<std::string>({"before", "after"})}});
  s["checks"] = {"golden:bitwise", "golden:gradients"};
}

// Groups of any size, in any number, and (each fourth time) a rank that dies.
void draw_shard_groups(Json& s) {
  const int group = between(1, 4), groups = between(2, group < 3 ? 5 : 3);
  s["world"] = {{"nodes", 1}, {"replicas", group * groups}, {"shard_group", group}, {"network", "ib"}};
  if (one_in(3)) s["world"]["nodes"] = groups;
  s["recovery"] = {{"watchdog_s", 60}, {"peer_copies", between(0, 3)}};
  Json& zero = s["deepspeed"]["zero_optimization"];
  if (zero["stage"] == 3 && group > 1 && one_in(2)) {  // only a second copy of the parameters is in groups
    s["world"].erase("shard_group");
    zero["zero_hpz_partition_size"] = group;
  }
  if (!one_in(4)) return;
  const int steps = s["steps"];
  s["recovery"]["peer_copies"] = between(1, 3);  // one group may be left, in which none has the shard of the dead
  s["faults"] = Json::array();
  s["faults"].push_back({{"kind", "rank_crash"},
                         {"rank", between(0, group * groups - 1)},
                         {"step", between(0, steps - 1)},
                         {"op", "vote"},
                         {"mode", any_of<std::string>({"before", "after"})}});
  s["checks"] = {"golden:bitwise", "golden:gradients"};
}

// A bucket an element is a message an element: of a model of 200,000 parameters a case would take minutes.
void keep_buckets_countable(const Json& model, Json& zero) {
  constexpr double kBucketsMax = 1000;
  const double width = model["width"], layers = model["layers"], vocab = model["vocab"];
  const int least = int((12 * layers * width * width + 2 * vocab * width) / kBucketsMax);
  for (const char* key : {"reduce_bucket_size", "allgather_bucket_size"}) {
    if (zero.contains(key) && zero[key].get<int>() < least) zero[key] = least;
  }
}

std::string draw_bug(const std::string& wanted) {
  if (wanted != "skip_wait:*") return wanted;
  const int edge = between(1, int(runtime::Edge::count_) - 1);
  return runtime::text({runtime::Bug::skip_wait, runtime::Edge(edge)});
}

Json draw_corruption(int ranks, int steps) {
  Json fault = {{"kind", "message_corrupt"},
                {"rank", between(0, ranks - 1)},
                {"step", between(0, steps - 1)},
                {"bit", between(0, 4000)},
                {"checksum", false}};
  fault["op"] = any_of<std::string>({"all_reduce", "reduce_scatter", "publish", "param_gather"});
  return fault;
}

// Algorithms that trade exactness, and numbers of few bits.
void draw_inexact(Json& s, const Wanted& wanted, int ranks) {
  if (wanted.compression) draw_compression(s);
  if (wanted.momentum || wanted.factors) (wanted.momentum ? draw_momentum : draw_factors)(s);
  if (wanted.local_sgd) draw_local_sgd(s, ranks);
  if (wanted.staleness) draw_staleness(s);
  if (wanted.fp8) draw_fp8(s);
  if (wanted.quantised) draw_quantised(s);
  if (wanted.quantised_gradients) draw_quantised_gradients(s);
  if (wanted.bug.empty() && one_in(2)) draw_buckets(s);
}

Drawn draw(const Wanted& wanted) {
  Drawn drawn;
  const int stage = wanted.local_sgd || wanted.momentum || wanted.factors ? 0
                    : wanted.stage >= 0                                   ? wanted.stage
                                        : between(0, wanted.compression || wanted.staleness ? 1 : 3),
            steps = between(1, 3);
  drawn.precision = wanted.precision.empty() ? any_of<std::string>({"fp32", "bf16", "fp16"}) : wanted.precision;
  const bool text = one_in(2);
  Json world = draw_world();
  const int ranks = world["nodes"].get<int>() * world["ranks_per_node"].get<int>();
  drawn.ranks = ranks;
  Json& s = drawn.document;
  s["name"] = "drawn";
  s["seed"] = between(1, 1'000'000);
  s["training_seed"] = between(1, 1000);
  s["model"] = draw_model(text, drawn.precision == "fp32");
  s["data"] = text ? Json{{"text", "golden/corpus.txt"}} : Json{{"synthetic", true}};
  s["world"] = world;
  s["deepspeed"] = draw_deepspeed(stage, drawn.precision);
  s["batch_arithmetic"] = "by_samples";
  if (one_in(3)) s["decay"] = "all";
  if (!wanted.local_sgd && one_in(4)) s["ema"] = {{"decay", any_of<double>({0.5, 0.99})}};
  if (one_in(3)) s["checkpointing"] = one_in(2) ? Json{{"every", between(1, 3)}} : Json{{"layers", {0}}};
  if (one_in(4)) s["deepspeed"]["activation_checkpointing"] = {{"cpu_checkpointing", true}};
  s["steps"] = steps;
  if (const std::string bug = draw_bug(wanted.bug); !bug.empty()) s["bug"] = bug;
  if (wanted.corrupt) s["faults"] = {draw_corruption(ranks, steps)};
  s["checks"] = {"golden:bitwise", "golden:gradients"};
  // A rank that dies in the last vote is not started again, and may leave one rank without another to agree with.
  if (ranks > 1 && !wanted.restarts) s["checks"].push_back("ranks_agree");
  if (drawn.precision == "fp32" && wanted.formulas) {
    s["checks"].push_back("conservation");
    s["checks"].push_back("traffic_formula");
    // Not at stage 3: what is gathered ahead outgrows the formula where stage3_prefetch_bucket_size is small.
    s["checks"].push_back("memory_formula");
  }
  if (wanted.schedules) s["schedule"] = draw_schedule(ranks);
  if (wanted.offload) {
    if (s["deepspeed"]["zero_optimization"]["stage"] == 0) s["deepspeed"]["zero_optimization"] = draw_zero(1);
    draw_offload(s["deepspeed"]);
  }
  if (wanted.parallel && !wanted.experts) {
    draw_parallel(s);
    drawn.ranks =
        s["world"]["replicas"].get<int>() * s["world"]["pipeline"].get<int>() * s["world"]["tensor"].get<int>();
  }
  if (wanted.experts) {
    draw_divided_experts(s);
    if (wanted.parallel) draw_expert_pipeline(s);
    drawn.ranks = s["world"]["replicas"].get<int>() * s["world"].value("pipeline", 1);
  }
  if (wanted.slabs) drawn.ranks = draw_slabs_of_experts(s);
  if (wanted.context) {
    draw_context(s, drawn.precision);
    drawn.ranks = s["world"]["replicas"].get<int>() * s["world"]["context"].get<int>();
  }
  if (wanted.groups) {
    s["deepspeed"]["zero_optimization"] = draw_zero(between(1, 3));
    draw_shard_groups(s);
    drawn.ranks = s["world"]["replicas"];
  }
  draw_inexact(s, wanted, ranks);
  if (wanted.restarts) draw_restarts(s, ranks, s["steps"]);
  draw_held_out(s, !wanted.corrupt && !wanted.local_sgd);
  if (!wanted.corrupt && !wanted.local_sgd && !wanted.staleness)
    draw_samples(s, wanted.check == "conservation" || !wanted.bug.empty());
  keep_buckets_countable(s["model"], s["deepspeed"]["zero_optimization"]);
  if (!wanted.check.empty() && s["checks"][0] != wanted.check) s["checks"].push_back(wanted.check);
  return drawn;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Drawn& drawn) {
  return out << '\n' << harness::scenario_text(drawn.document);
}

rc::Gen<Drawn> scenarios(const Wanted& wanted) {
  // At rapidcheck's full size from the first case on: its first sizes would draw the same few worlds again and again.
  return rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::exec([wanted] { return draw(wanted); })));
}

}  // namespace seeksim::property
