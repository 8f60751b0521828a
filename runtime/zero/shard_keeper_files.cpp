// Shards whose parameters or optimizer state are in files of nvme: into memory when all of them are wanted, back when
// they are settled, and what is left in folders by whom.
#include <algorithm>

#include "runtime/launch/typed_ops.h"
#include "runtime/zero/shard_keeper.h"

namespace seeksim::runtime {

// Until settle() all of them are in memory.
void ShardKeeper::place_swapped(ShardState& state, const std::vector<ParameterPiece>& pieces) {
  const ElementType type = plan_.definition.precision.compute;
  state.swapped = std::make_unique<SwappedParameters>(rank_, plan_, std::to_string(layouts_), pieces, type);
  const Index kept = state.swapped->resident();
  state.resident = state.all_of_them ? own_space(state, kept, type, "parameters that stay in memory",
                                                 MemoryTag::parameters, plan_.layout.offload.parameters.space())
                                     : state.on_device.part(0, kept);
  state.parameters_settled = false;
}

// From memory to the file, but for those that stay.
void ShardKeeper::settle_parameters() {
  if (!own_ || !own_->swapped || own_->parameters_settled) return;
  own_->swapped->store(own_->on_device);
  if (own_->all_of_them) {
    Launcher host(rank_.device.host_queue(), rank_.id, 0, OpKind::host_compute);
    copy_values(host, "parameters", SEEKSIM_SITE, own_->on_device.part(0, own_->resident.n), own_->resident);
    rank_.device.drain();
    if (own_->parameters.buffer == own_->all_of_them.get()) own_->parameters.buffer = nullptr;
    own_->all_of_them.reset();
  }
  own_->on_device = own_->resident;
  own_->parameters_settled = true;
}

// Memory for what is in files otherwise, without values.
void ShardKeeper::make_loaded(ShardState& state) {
  const PrecisionPlan& precision = plan_.definition.precision;
  const Index n = state.shard.size;
  const auto make = [&](ElementType type, const char* name) -> AnyVec {
    const std::size_t bytes = std::size_t(std::max<Index>(n, 1)) * size_of(type);
    state.loaded.push_back(rank_.device.allocate_in(home_, bytes, MemoryTag::staging, name));
    return {state.loaded.back().get(), 0, n, type};
  };
  state.parameters = make(precision.compute, "parameter shard");
  state.masters = {};
  if (precision.compute == ElementType::f32)
    state.masters = state.parameters.as<float>();
  else if (precision.master_weights)
    state.masters = make(ElementType::f32, "fp32 masters").as<float>();
}

namespace {
std::vector<AnyVec> kinds_of(const ShardState& state) {
  std::vector<AnyVec> kinds = {state.weights()};
  for (const AnyVec& kept : state.optimizer->states()) kinds.push_back(kept);
  return kinds;
}

void unload(ShardState& state) {
  state.parameters.buffer = nullptr;
  state.masters = {};
  state.loaded.clear();
  state.optimizer->drop_moments();
}
}  // namespace

void ShardKeeper::load() {
  for (ShardState* state : all()) {
    if (state->is_loaded()) continue;
    make_loaded(*state);
    state->optimizer->make_moments();
    try {
      state->files->load(kinds_of(*state));
    } catch (...) {
      unload(*state);
      throw;
    }
  }
}

void ShardKeeper::settle() {
  settle_parameters();
  for (ShardState* state : all()) {
    if (state->files == nullptr || !state->is_loaded()) continue;
    if (state->newer_in_memory) state->files->store(kinds_of(*state));
    state->newer_in_memory = false;
    unload(*state);
  }
  for (const std::unique_ptr<SwappedState>& files : retired_) files->remove_files();
  for (const std::unique_ptr<SwappedParameters>& file : retired_parameters_) file->remove_file();
  retired_.clear();
  retired_parameters_.clear();
}

// Folders in which this run has files, each with the rank's marker in it.
std::vector<std::string> ShardKeeper::folders() const {
  const OffloadPlan& plan = plan_.layout.offload;
  std::vector<std::string> folders;
  if (swaps()) folders.push_back(plan.optimizer.nvme_path);
  if (swaps_parameters() && !(swaps() && plan.parameters.nvme_path == plan.optimizer.nvme_path))
    folders.push_back(plan.parameters.nvme_path);
  return folders;
}

namespace {
std::string marker(const std::string& folder, const Rank& rank) {
  return folder + "/rank" + std::to_string(rank.id) + "/in_use";
}
}  // namespace

// Files of a run that did not end in order are no state of this one: nothing says of which step, model or world they
// are.
void ShardKeeper::refuse_stale_files() {
  for (const std::string& folder : folders()) {
    const std::string path = marker(folder, rank_);
    if (joined_) remove_leftovers(folder);                         // of an earlier incarnation of this rank
    if (rank_.storage.exists(path) && !plan_.checkpoint.resume) {  // whose state comes from elsewhere
      throw StaleFiles(path +
                       ": these swap files are those of an earlier run that did not end in order; remove the folder " +
                       folder);
    }
    rank_.storage.write(path, "");
  }
}

void ShardKeeper::remove_files() {
  for (ShardState* state : all()) {
    if (state->files) state->files->remove_files();
    if (state->swapped) state->swapped->remove_file();
  }
  for (const std::unique_ptr<SwappedState>& files : retired_) files->remove_files();
  for (const std::unique_ptr<SwappedParameters>& file : retired_parameters_) file->remove_file();
  for (const std::string& folder : folders()) {
    if (layouts_ > 0) rank_.storage.remove(marker(folder, rank_));
  }
}

void ShardKeeper::retire_files() {
  for (ShardState* old : all()) {
    if (old->files) retired_.push_back(std::move(old->files));
    if (old->swapped) retired_parameters_.push_back(std::move(old->swapped));
  }
}

void ShardKeeper::remove_leftovers(const std::string& folder) {
  const std::string own = folder + "/rank" + std::to_string(rank_.id);
  for (const std::string& name : rank_.storage.list(own)) rank_.storage.remove(own + "/" + name);
}

}  // namespace seeksim::runtime
