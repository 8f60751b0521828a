// What a checkpoint holds, that every part of it is needed, what is done with a damaged one, and what stays on a disk.
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "runtime/files/safetensors.h"
#include "runtime/rules/bugs.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"

namespace seeksim::test {
namespace {

using json = nlohmann::json;

std::string first_why(const SavingRun& run) {
  for (const auto& outcome : run.outcomes)
    if (outcome) return outcome->why;
  return "nobody came to an end";
}

bool all_finished(const SavingRun& run) {
  return std::all_of(run.outcomes.begin(), run.outcomes.end(),
                     [](const auto& outcome) { return outcome && outcome->ending == Ending::finished; });
}

// ---- every field ---------------------------------------------------------------------------------------------------

// Under way: a run of overflows in fp16, a dropped batch, a loss scaler that counts. The last checkpoint is of the end.
TrainPlan eventful_plan(LossScalerKind kind) {
  TrainPlan plan = saving_plan(1);
  plan.definition.steps = 12;
  plan.definition.precision.compute = ElementType::f16;
  plan.definition.precision.gradients = ElementType::f16;
  plan.definition.drop_batches = {1};
  LossScalerPlan& scaler = plan.definition.scaler;
  scaler.kind = kind;
  scaler.initial_scale_power = 20;
  scaler.loss_scale_window = 3;
  scaler.hysteresis = 3;
  scaler.init_scale = 1048576;
  scaler.growth_interval = 3;
  plan.checkpoint.keep = 100;
  return plan;
}

std::string sealed(json manifest) {
  manifest.erase("digest");
  const std::string text = manifest.dump();
  char digest[17];
  std::snprintf(digest, sizeof digest, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  manifest["digest"] = digest;
  return manifest.dump();
}

void keep_only(Looking& looking, std::int64_t step) {
  for (const std::int64_t other : steps_in(looking.storage, looking.path)) {
    if (other != step) remove_checkpoint(looking.storage, looking.folder(other));
  }
}

void collect_leaves(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& leaves) {
  if (value.is_structured() && !value.empty()) {
    for (const auto& [key, inner] : value.items())
      collect_leaves(inner, value.is_array() ? at / std::stoul(key) : at / key, leaves);
  }
  leaves.push_back(at);
}

struct Saved {
  TrainPlan plan;
  std::shared_ptr<sim::Disks> disks = std::make_shared<sim::Disks>();
  TrainOutcome outcome;
  json last;  // state at the end
};

json state_at(Looking& looking, std::int64_t step) {
  json state = json::parse(looking.storage.read(looking.folder(step) + '/' + kManifest))["state"];
  state.erase("epoch");  // where it was written
  return state;
}

Saved saved_by(const TrainPlan& plan) {
  Saved saved;
  saved.plan = plan;
  const SavingRun run = run_saving(plan, world_of(2), saved.disks);
  EXPECT_TRUE(all_finished(run)) << first_why(run);
  saved.outcome = *run.outcomes[0];
  Looking looking(*saved.disks, plan);
  saved.last = state_at(looking, plan.definition.steps);
  return saved;
}

// Goes on from a manifest. "": as if it had not been touched; else what became other, or why it was refused.
std::string difference_after(const Saved& saved, std::int64_t step, const std::string& manifest) {
  const auto disks = copy_of(*saved.disks);
  Looking looking(*disks, saved.plan);
  keep_only(looking, step);
  looking.storage.write(looking.folder(step) + '/' + kManifest, manifest);
  TrainPlan again = saved.plan;
  again.checkpoint.resume = true;
  const SavingRun run = run_saving(again, world_of(2), disks);
  if (!all_finished(run)) {
    EXPECT_NE(first_why(run).find("no checkpoint can be used"), std::string::npos) << first_why(run);
    return "refused: " + first_why(run);
  }
  if (run.outcomes[0]->state != saved.outcome.state) return "other bits";
  return state_at(looking, saved.plan.definition.steps) == saved.last ? "" : "another state at the end";
}

TEST(CheckpointFields, NoneCanBeLeftOut) {
  const Saved saved = saved_by(eventful_plan(LossScalerKind::dynamic));
  const std::int64_t step = 5;
  Looking looking(*saved.disks, saved.plan);
  const json whole = json::parse(looking.storage.read(looking.folder(step) + '/' + kManifest));
  ASSERT_EQ(difference_after(saved, step, sealed(whole)), "");
  std::vector<json::json_pointer> leaves;
  collect_leaves(whole, json::json_pointer(), leaves);
  int tried = 0;
  for (const json::json_pointer& leaf : leaves) {
    if (leaf.empty() || leaf == json::json_pointer("/digest")) continue;
    if (whole.at(leaf.parent_pointer()).is_array()) continue;  // an element less is another list
    json less = whole;
    json& parent = less.at(leaf.parent_pointer());
    parent.erase(leaf.back());
    EXPECT_EQ(difference_after(saved, step, sealed(less)).substr(0, 8), "refused:") << leaf;
    ++tried;
  }
  EXPECT_GT(tried, 40);
}

// As if it had not been saved: the value that a new run begins with.
TEST(CheckpointFields, EachMatters) {
  std::set<std::string> seen, tried;
  for (const LossScalerKind kind : {LossScalerKind::dynamic, LossScalerKind::torch}) {
    const Saved saved = saved_by(eventful_plan(kind));
    Looking looking(*saved.disks, saved.plan);
    Manifest fresh;
    fresh.state.scaler = initial_state(saved.plan.definition.scaler);
    const json initial = json::parse(to_text(fresh))["state"];
    for (std::int64_t step = 1; step < saved.plan.definition.steps; ++step) {
      const json whole = json::parse(looking.storage.read(looking.folder(step) + '/' + kManifest));
      std::vector<json::json_pointer> leaves;
      collect_leaves(initial, json::json_pointer(), leaves);
      for (const json::json_pointer& leaf : leaves) {
        if (leaf.empty() || initial.at(leaf).is_object()) continue;
        tried.insert(leaf.to_string());
        if (seen.contains(leaf.to_string())) continue;
        json other = whole;
        other["state"][leaf] = initial.at(leaf);
        if (other == whole) continue;  // it stands there now
        if (!difference_after(saved, step, sealed(other)).empty()) seen.insert(leaf.to_string());
      }
    }
  }
  tried.erase("/epoch");           // says where it was written, and decides nothing
  tried.erase("/scaler/stopped");  // a run that has stopped is not gone on with
  EXPECT_EQ(seen, tried);
}

TEST(CheckpointFields, WhereASamplerStandsMatters) {
  TrainPlan plan = eventful_plan(LossScalerKind::dynamic);
  plan.definition.data.sampler = {SampleOrder::shuffled, 3, plan.definition.global_batch + 1, false};
  const Saved saved = saved_by(plan);
  Looking looking(*saved.disks, saved.plan);
  const json whole = json::parse(looking.storage.read(looking.folder(3) + '/' + kManifest));
  ASSERT_EQ(difference_after(saved, 3, sealed(whole)), "");
  json other = whole;
  other["state"].erase("sampler");
  EXPECT_NE(difference_after(saved, 3, sealed(other)).find("its sampler stands at sample 0"), std::string::npos);
  for (const char* field : {"seed", "epoch", "index"}) {
    other = whole;
    other["state"]["sampler"][field] = whole["state"]["sampler"][field].get<int>() + 1;
    EXPECT_NE(difference_after(saved, 3, sealed(other)).find("its sampler stands"), std::string::npos) << field;
    other["state"]["sampler"].erase(field);
    EXPECT_EQ(difference_after(saved, 3, sealed(other)).substr(0, 8), "refused:") << field;
  }
}

// Scales and histories of what is cast to 8 bits, under the names of their tensors.
TEST(CheckpointFields, ScalesOfFp8Matter) {
  TrainPlan plan = saving_plan(2);
  plan.checkpoint.keep = 100;
  plan.definition.fp8 = {.scaling = Fp8Scaling::delayed, .amax_history_len = 2};
  const Saved saved = saved_by(plan);
  Looking looking(*saved.disks, saved.plan);
  const json whole = json::parse(looking.storage.read(looking.folder(2) + '/' + kManifest));
  ASSERT_EQ(difference_after(saved, 2, sealed(whole)), "");
  ASSERT_EQ(whole["fp8"].size(), std::size_t(fp8_tensors(plan.definition.model.layers)));
  json other = whole;
  other.erase("fp8");
  EXPECT_EQ(difference_after(saved, 2, sealed(other)).substr(0, 8), "refused:");
  for (const auto& [name, state] : whole["fp8"].items()) {
    other = whole;
    other["fp8"].erase(name);
    EXPECT_EQ(difference_after(saved, 2, sealed(other)).substr(0, 8), "refused:") << name;
  }
  const char* const kTensor = "h.0.attn.c_attn.weight/input";
  ASSERT_TRUE(whole["fp8"].contains(kTensor));
  other = whole;
  other["fp8"][kTensor]["scale"] = 1;
  EXPECT_NE(difference_after(saved, 2, sealed(other)), "");
  other = whole;
  other["fp8"][kTensor]["amax_history"] = "7149f2ca7149f2ca";  // 1e30
  EXPECT_NE(difference_after(saved, 2, sealed(other)), "");
  for (const char* const bad : {"1", "zzzzzzzz", "123456789"}) {
    other["fp8"][kTensor]["amax_history"] = bad;
    EXPECT_EQ(difference_after(saved, 2, sealed(other)).substr(0, 8), "refused:") << bad;
  }
}

// Tensors, by kind: without one it is refused; with zeros in its place the bits are others.
TEST(CheckpointFields, EachKindOfTensorMatters) {
  TrainPlan plan = saving_plan(2);
  plan.checkpoint.keep = 100;
  const Saved saved = saved_by(plan);
  const std::int64_t step = 2;
  for (const char* kind : {"/weights/", "/exp_avg/", "/exp_avg_sq/"}) {
    for (const bool zeros : {false, true}) {
      const auto disks = copy_of(*saved.disks);
      Looking looking(*disks, saved.plan);
      json manifest = json::parse(looking.storage.read(looking.folder(step) + '/' + kManifest));
      for (json& file : manifest["files"]) {
        const std::string path = looking.folder(step) + '/' + file["name"].get<std::string>();
        std::vector<TensorBytes> tensors = read_safetensors(looking.storage.read(path)), kept;
        bool changed = false;
        for (TensorBytes& tensor : tensors) {
          const bool hit = !changed && tensor.name.find(kind) != std::string::npos;
          changed = changed || hit;
          if (hit && zeros) std::fill(tensor.bytes.begin(), tensor.bytes.end(), '\0');
          if (!hit || zeros) kept.push_back(std::move(tensor));
        }
        const std::string bytes = write_safetensors(kept);
        looking.storage.write(path, bytes);
        char digest[17];
        std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(digest_of_file(bytes)));
        file["bytes"] = bytes.size();
        file["digest"] = digest;
      }
      Saved changed = saved;
      changed.disks = disks;
      const std::string differs = difference_after(changed, step, sealed(manifest));
      if (zeros)
        EXPECT_EQ(differs, "other bits") << kind;
      else
        EXPECT_NE(differs.find("do not hold all of"), std::string::npos) << kind << differs;
    }
  }
}

// Lion has one moment, which the manifest says: no file holds another, and AdamW's that lost theirs are not taken for
// it.
TEST(CheckpointFields, AnOptimizerWithOneMomentSavesOne) {
  for (const bool lion : {true, false}) {
    TrainPlan plan = saving_plan(2);
    plan.checkpoint.keep = 100;
    if (lion) plan.definition.optimizer.type = "Lion";
    const Saved saved = saved_by(plan);
    Looking looking(*saved.disks, saved.plan);
    const std::string folder = looking.folder(2);
    EXPECT_EQ(verify_checkpoint(looking.storage, folder).problem, "");
    json manifest = json::parse(looking.storage.read(folder + '/' + kManifest));
    EXPECT_EQ(manifest.value("moments", 2), lion ? 1 : 2);
    int first = 0, second = 0;
    for (const json& file : manifest["files"]) {
      for (const TensorBytes& tensor :
           read_safetensors(looking.storage.read(folder + '/' + file["name"].get<std::string>()))) {
        first += tensor.name.find("/exp_avg/") != std::string::npos ? 1 : 0;
        second += tensor.name.find("/exp_avg_sq/") != std::string::npos ? 1 : 0;
      }
    }
    EXPECT_GT(first, 0);
    EXPECT_EQ(second, lion ? 0 : first);
    manifest["moments"] = lion ? 2 : 1;
    looking.storage.write(folder + '/' + kManifest, sealed(manifest));
    const std::string problem = verify_checkpoint(looking.storage, folder).problem;
    EXPECT_NE(problem.find(lion ? "are in no file" : "the optimizer has one moment"), std::string::npos) << problem;
    manifest["moments"] = 3;
    looking.storage.write(folder + '/' + kManifest, sealed(manifest));
    EXPECT_NE(verify_checkpoint(looking.storage, folder).problem.find("neither 0, 1 nor 2"), std::string::npos);
  }
}

// ---- damage --------------------------------------------------------------------------------------------------------

struct Damage {
  const char* what;
  std::function<void(Looking&, const std::string& folder)> make;
  const char* says;
};

void flip(Looking& looking, const std::string& path, std::size_t at) {
  std::string bytes = looking.storage.read(path);
  bytes[at % bytes.size()] = char(bytes[at % bytes.size()] ^ 4);
  looking.storage.write(path, bytes);
}

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all = {
      {"a flipped bit in a tensor",
       [](Looking& l, const std::string& f) { flip(l, f + "/rank-00001.safetensors", std::size_t(-1) - 7); },
       "checksum"},
      {"a flipped bit in a header",
       [](Looking& l, const std::string& f) { flip(l, f + "/rank-00000.safetensors", 30); }, "rank-00000"},
      {"a file cut short",
       [](Looking& l, const std::string& f) {
         const std::string path = f + "/rank-00001.safetensors";
         l.storage.write(path, l.storage.read(path).substr(0, 3000));
       },
       "has 3000 bytes, not "},
      {"an empty file", [](Looking& l, const std::string& f) { l.storage.write(f + "/rank-00000.safetensors", ""); },
       "has 0 bytes, not "},
      {"a missing file", [](Looking& l, const std::string& f) { l.storage.remove(f + "/rank-00001.safetensors"); },
       "is missing"},
      {"a torn manifest",
       [](Looking& l, const std::string& f) {
         const std::string path = f + "/manifest.json";
         l.storage.write(path, l.storage.read(path).substr(0, 400));
       },
       "not valid JSON"},
      {"a changed number in the manifest",
       [](Looking& l, const std::string& f) {
         const std::string path = f + "/manifest.json";
         json manifest = json::parse(l.storage.read(path));
         manifest["state"]["optimizer_steps"] = 1;
         l.storage.write(path, manifest.dump());
       },
       "does not have the digest"},
      {"another run's",
       [](Looking& l, const std::string& f) {
         const std::string path = f + "/manifest.json";
         json manifest = json::parse(l.storage.read(path));
         manifest["state"]["definition"] = "00000000deadbeef";
         l.storage.write(path, sealed(manifest));
       },
       "another training run"}};
  return all;
}

TEST(CheckpointDamage, FallsBackOnTheOneBefore) {
  const Saved saved = saved_by([] {
    TrainPlan plan = saving_plan(1);
    plan.checkpoint.keep = 100;
    return plan;
  }());
  TrainPlan again = saved.plan;
  again.definition.steps = 6;
  again.checkpoint.resume = true;
  const TrainOutcome golden = run_alone(again).outcome;
  for (const Damage& damage : damages()) {
    const auto disks = copy_of(*saved.disks);
    Looking looking(*disks, saved.plan);
    damage.make(looking, looking.folder(4));
    const bool is_whole = verify_checkpoint(looking.storage, looking.folder(4)).problem.empty();
    EXPECT_EQ(is_whole, std::string(damage.what) == "another run's") << damage.what;
    const SavingRun run = run_saving(again, world_of(3), disks);
    ASSERT_TRUE(all_finished(run)) << damage.what << ": " << first_why(run);
    EXPECT_EQ(run.observer.rolled_back_to.front(), 3) << damage.what;
    EXPECT_EQ(run.outcomes[0]->state, golden.state) << damage.what;
  }
}

TEST(CheckpointDamage, OfAllIsAStopThatNamesEach) {
  const Saved saved = saved_by(saving_plan(0));  // keeps two
  TrainPlan again = saved.plan;
  again.checkpoint.resume = true;
  for (const Damage& damage : damages()) {
    const auto disks = copy_of(*saved.disks);
    Looking looking(*disks, saved.plan);
    for (const std::int64_t step : {3, 4}) damage.make(looking, looking.folder(step));
    const SavingRun run = run_saving(again, world_of(2), disks);
    bool says = false;
    for (const auto& outcome : run.outcomes) {
      ASSERT_TRUE(outcome);
      EXPECT_EQ(outcome->ending, Ending::stopped);
      EXPECT_NE(outcome->why.find("step 4: "), std::string::npos) << outcome->why;
      EXPECT_NE(outcome->why.find("step 3: "), std::string::npos) << outcome->why;
      says = says || outcome->why.find(damage.says) != std::string::npos;
    }
    EXPECT_TRUE(says) << damage.what << ": " << first_why(run);
  }
}

TEST(CheckpointDamage, UncheckedGivesOtherBits) {
  const Saved saved = saved_by(saving_plan(0));
  const auto disks = copy_of(*saved.disks);
  Looking looking(*disks, saved.plan);
  flip(looking, looking.folder(4) + "/rank-00001.safetensors", std::size_t(-1) - 7);
  TrainPlan again = saved.plan;
  again.checkpoint.resume = true;
  again.definition.steps = 5;
  again.bug.bug = Bug::checkpoint_unchecked;
  const SavingRun run = run_saving(again, world_of(2), disks);
  ASSERT_TRUE(all_finished(run)) << first_why(run);
  EXPECT_EQ(run.observer.rolled_back_to.front(), 4);
  EXPECT_NE(run.outcomes[0]->state, run_alone(again).outcome.state);
}

// ---- what stays on the disk ----------------------------------------------------------------------------------------

TEST(Checkpoints, OnlySoManyAreKeptAndNothingElse) {
  for (const bool async : {false, true}) {
    TrainPlan plan = saving_plan(2, async);
    plan.definition.steps = 7;
    plan.checkpoint.at_end = true;
    const auto disks = std::make_shared<sim::Disks>();
    Looking looking(*disks, plan);
    // What an earlier attempt left, and never was one.
    looking.storage.write(looking.folder(0) + "/rank-00000.safetensors", "torn");
    const SavingRun run = run_saving(plan, world_of(2), disks);
    ASSERT_TRUE(all_finished(run)) << first_why(run);
    const std::vector<std::int64_t> steps = steps_in(looking.storage, looking.path);
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(steps[0], 7);
    for (const std::int64_t step : steps) {
      EXPECT_EQ(verify_checkpoint(looking.storage, looking.folder(step)).problem, "");
      EXPECT_EQ(looking.storage.list(looking.folder(step)),
                (std::vector<std::string>{"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"}));
    }
  }
}

TEST(Checkpoints, OfAnotherRunAreNotMixedWithThisOnes) {
  const Saved saved = saved_by(saving_plan(0));
  const SavingRun run = run_saving(saved.plan, world_of(2), copy_of(*saved.disks));
  for (const auto& outcome : run.outcomes) {
    ASSERT_TRUE(outcome && outcome->ending == Ending::stopped);
    EXPECT_NE(outcome->why.find("checkpoints of an earlier run"), std::string::npos) << outcome->why;
  }
}

// A disk on which nothing can be written.
class FullStorage final : public Storage {
 public:
  explicit FullStorage(Storage& inner) : inner_(inner) {}
  std::string read(std::string_view path) override { return inner_.read(path); }
  void write(std::string_view path, std::string_view) override { fail(path); }
  void sync(std::string_view path) override { inner_.sync(path); }
  void rename(std::string_view from, std::string_view to) override { inner_.rename(from, to); }
  void remove(std::string_view path) override { inner_.remove(path); }
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override {
    return inner_.read_at(path, offset, into);
  }
  std::size_t write_at(std::string_view, std::uint64_t, std::span<const std::byte>) override { return 0; }
  bool exists(std::string_view path) override { return inner_.exists(path); }
  std::vector<std::string> list(std::string_view folder) override { return inner_.list(folder); }
  std::uint64_t free_bytes(std::string_view) override { return 0; }

 private:
  [[noreturn]] static void fail(std::string_view path) { throw SeamError(ErrorKind::io, Op{}, std::string(path)); }
  Storage& inner_;
};

TEST(Checkpoints, ThatCannotBeWrittenAreGivenUpAndSaid) {
  for (const bool async : {false, true}) {
    for (const int bad_rank : {0, 1}) {
      const TrainPlan plan = saving_plan(1, async);
      const auto disks = std::make_shared<sim::Disks>();
      std::vector<std::unique_ptr<FullStorage>> full;
      const SavingRun run = run_saving(plan, world_of(2), disks, [&](sim::World& w) {
        w.decorate([&](int rank, Seams inner) {
          if (rank != bad_rank) return inner;
          full.push_back(std::make_unique<FullStorage>(inner.storage));
          return Seams{inner.clock, inner.device, inner.transport, *full.back(), inner.control};
        });
      });
      ASSERT_TRUE(all_finished(run)) << first_why(run);
      EXPECT_EQ(run.outcomes[0]->state, run_alone(plan).outcome.state);
      int said = 0;
      for (const CheckpointRecord& record : run.observer.checkpoints) {
        EXPECT_FALSE(record.complete);
        said += record.why.find("rank-0000" + std::to_string(bad_rank)) != std::string::npos;
      }
      EXPECT_GT(said, 0);
      Looking looking(*disks, plan);
      EXPECT_TRUE(steps_in(looking.storage, looking.path).empty()) << "leftovers take room";
    }
  }
}

// The same fault at the same place, each time: not for ever.
TEST(Checkpoints, GoingBackToTheSameOneEndsAtSomeTime) {
  TrainPlan plan = saving_plan(0);
  plan.checkpoint.every_steps = 2;
  plan.recovery.policy = RecoveryPolicy::restart_from_checkpoint;
  plan.recovery.attempts_max = 3;
  const auto disks = std::make_shared<sim::Disks>();
  // Rank 1 never gets through step 3.
  class BadSample final : public ControlPlane {
   public:
    explicit BadSample(ControlPlane& inner) : inner_(inner) {}
    std::uint32_t epoch() const override { return inner_.epoch(); }
    std::vector<int> members() const override { return inner_.members(); }
    void revoke(std::uint32_t epoch, const Op& op, ErrorKind why) override { inner_.revoke(epoch, op, why); }
    bool revoked(std::uint32_t epoch) const override { return inner_.revoked(epoch); }
    Agreement agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs deadline) override {
      if (op.kind == OpKind::vote && op.step == 3 && op.rank == 1)
        throw SeamError(ErrorKind::data_error, op, "the sample cannot be read");
      return inner_.agree(op, epoch, ballot, deadline);
    }
    void enter_epoch(std::uint32_t epoch, std::span<const int> members) override { inner_.enter_epoch(epoch, members); }

   private:
    ControlPlane& inner_;
  };
  std::vector<std::unique_ptr<BadSample>> planes;
  const SavingRun run = run_saving(plan, world_of(2), disks, [&](sim::World& w) {
    w.decorate([&](int, Seams inner) {
      planes.push_back(std::make_unique<BadSample>(inner.control));
      return Seams{inner.clock, inner.device, inner.transport, inner.storage, *planes.back()};
    });
  });
  for (const auto& outcome : run.outcomes) {
    ASSERT_TRUE(outcome && outcome->ending == Ending::stopped);
    EXPECT_NE(outcome->why.find("3 times without getting past step 3"), std::string::npos) << outcome->why;
  }
  EXPECT_EQ(run.observer.rolled_back_to, std::vector<std::int64_t>(6, 2));
}

// ---- each node its own ---------------------------------------------------------------------------------------------

sim::WorldPlan two_nodes(int ranks_per_node) {
  sim::WorldPlan world = world_of(ranks_per_node);
  world.nodes = 2;
  return world;
}

TEST(NodeLocalCheckpoints, AreBroughtToWhoeverNeedsThem) {
  for (const bool async : {false, true}) {
    for (const int stage : {0, 1, 3}) {
      TrainPlan plan = saving_plan(stage, async);
      plan.checkpoint.node_local = true;
      plan.checkpoint.at_end = true;
      const auto disks = std::make_shared<sim::Disks>();
      const SavingRun first = run_saving(plan, two_nodes(2), disks);
      ASSERT_TRUE(all_finished(first)) << first_why(first);
      EXPECT_TRUE(disks->shared.names.empty());
      const std::string folder = step_folder(plan.checkpoint.path, plan.definition.steps);
      EXPECT_TRUE(disks->by_node[0].names.contains(folder + "/rank-00001.safetensors"));
      EXPECT_FALSE(disks->by_node[1].names.contains(folder + "/rank-00001.safetensors"));
      for (const int node : {0, 1}) EXPECT_TRUE(disks->by_node[node].durable.contains(folder + "/manifest.json"));
      TrainPlan again = plan;
      again.definition.steps += 2;
      again.checkpoint.resume = true;
      const TrainOutcome golden = run_alone(again).outcome;
      for (const int other : {0, 2, 3}) {
        again.layout.zero = zero_plan(other);
        const SavingRun second = run_saving(again, two_nodes(other == 2 ? 1 : 2), copy_of(*disks));
        ASSERT_TRUE(all_finished(second)) << stage << " -> " << other << ": " << first_why(second);
        EXPECT_EQ(second.observer.rolled_back_to.front(), plan.definition.steps);
        EXPECT_EQ(second.outcomes[0]->state, golden.state) << stage << " -> " << other;
      }
    }
  }
}

TEST(NodeLocalCheckpoints, AreLostWithTheirNode) {
  TrainPlan plan = saving_plan(2);
  plan.checkpoint.node_local = true;
  const auto disks = std::make_shared<sim::Disks>();
  ASSERT_TRUE(all_finished(run_saving(plan, two_nodes(2), disks)));
  TrainPlan again = plan;
  again.definition.steps += 1;
  again.checkpoint.resume = true;
  // One file of the newest, then a whole node's.
  const std::string newest = step_folder(plan.checkpoint.path, plan.definition.steps);
  auto damaged = copy_of(*disks);
  sim::Disk& second = damaged->by_node[1];
  second.names.at(newest + "/rank-00003.safetensors")->content[3000] ^= 1;
  const SavingRun older = run_saving(again, two_nodes(2), damaged);
  ASSERT_TRUE(all_finished(older)) << first_why(older);
  EXPECT_EQ(older.observer.rolled_back_to.front(), plan.definition.steps - 1);
  EXPECT_EQ(older.outcomes[0]->state, run_alone(again).outcome.state);
  auto gone = copy_of(*disks);
  gone->by_node.erase(1);
  const SavingRun none = run_saving(again, two_nodes(2), gone);
  for (const auto& outcome : none.outcomes) {
    ASSERT_TRUE(outcome && outcome->ending == Ending::stopped);
    EXPECT_NE(outcome->why.find("is whole on no node"), std::string::npos) << outcome->why;
  }
}

}  // namespace
}  // namespace seeksim::test
