// The storage queue serves one request after the other, so a stage's read comes after its last write by itself; what it
// has to wait for is the copy to the device, which reads the stage too.
#include "runtime/zero/swapped_state.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "runtime/comm/edge.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

namespace {
// The last part of the names of files.
std::vector<const char*> files_of(const OptimizerPlan& plan) {
  std::vector<const char*> files = {"weights"};
  for (int i = 0; i < moments_of(plan); ++i) files.push_back(i == 0 ? "m" : "v");
  if (keeps_mean(plan)) files.push_back("mean");
  return files;
}
}  // namespace

SwappedState::SwappedState(Rank& rank, const TrainPlan& plan, const std::string& name, ElementType weights,
                           Index elements)
    : rank_(rank),
      plan_(plan),
      kept_(state_names(plan.definition.optimizer)),
      io_(rank, plan),
      weights_(weights),
      elements_(elements),
      // An optimizer that takes matrices as wholes gets the shard in one piece: bounds between would be inside of them.
      piece_elements_(std::max<Index>(kind_of(plan.definition.optimizer).takes_matrices
                                          ? elements
                                          : std::min<Index>(plan.layout.zero.sub_group_elements, elements),
                                      1)) {
  const std::string of_rank = plan.bug.is(Bug::swap_files_shared) ? "" : "/rank" + std::to_string(rank.id);
  const std::string folder = plan.layout.offload.optimizer.nvme_path + of_rank + '/';
  const std::vector<const char*> files = files_of(plan.definition.optimizer);
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    for (int generation = 0; generation < 2; ++generation) {
      File& made = file(kind, generation);
      made.path = folder + name + '.' + files[kind] + '.' + std::to_string(generation) + ".swp";
      made.digests.resize(std::size_t(pieces()));
    }
  }
}

ShardInfo SwappedState::range(Index piece) const {
  const Index at = piece * piece_elements_;
  return {at, std::min(piece_elements_, elements_ - at)};
}

void SwappedState::aim(Transfer& transfer, std::size_t kind, int generation, Index piece, AnyVec values, bool write) {
  File& of = file(kind, generation);
  SEEKSIM_CHECK(!transfer.pending, "a transfer of %s is under way", of.path.c_str());
  transfer.path = &of.path;
  transfer.offset = std::uint64_t(range(piece).offset) * size_of(type(kind));
  transfer.values = values;
  transfer.write = write;
  transfer.digest = of.digests[std::size_t(piece)];
  transfer.op.phase = Phase::optimizer;
  transfer.op.tensor = name_of(kind);
  transfer.op.site = SEEKSIM_SITE;
}

// ---- whole ---------------------------------------------------------------------------------------------------------

void SwappedState::store(const std::vector<AnyVec>& values) {
  if (elements_ == 0) return;
  pass_all(values, 1 - generation_, true);
  make_durable();
}

void SwappedState::load(const std::vector<AnyVec>& values) {
  if (elements_ > 0) pass_all(values, generation_, false);
}

// Piece by piece, each waited for.
void SwappedState::pass_all(const std::vector<AnyVec>& values, int generation, bool write) {
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    for (Index piece = 0; piece < pieces(); ++piece) {
      Transfer transfer;
      const ShardInfo part = range(piece);
      aim(transfer, kind, generation, piece, values[kind].part(part.offset, part.size), write);
      io_.start(transfer);
      io_.finish(transfer);
      if (write) file(kind, generation).digests[std::size_t(piece)] = transfer.digest;
    }
  }
}

// From here on the other generation is the newer one.
void SwappedState::make_durable() {
  const int next = 1 - generation_;
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    Transfer sync;
    aim(sync, kind, next, 0, {}, true);
    io_.start(sync);
    io_.finish(sync);
  }
  generation_ = next;
}

std::uint64_t SwappedState::digest(std::size_t kind) const {
  std::uint64_t all = 0;
  const File& newer = files_[kind][std::size_t(generation_)];
  for (const std::uint64_t of_piece : newer.digests) all = kernels::combine(all, of_piece);
  return all;
}

void SwappedState::remove_files() {
  for (auto& generations : files_) {
    for (const File& old : generations) {
      if (old.path.empty()) continue;  // of a kind that there is not
      if (rank_.storage.exists(old.path)) rank_.storage.remove(old.path);
    }
  }
}

// ---- a step --------------------------------------------------------------------------------------------------------

void SwappedState::open_stages() {
  if (!stages_.empty() || elements_ == 0) return;
  const OffloadOptimizerPlan& plan = plan_.layout.offload.optimizer;
  std::vector<Stage> stages(std::size_t(std::min<Index>(plan.buffer_count, pieces())));
  const ElementType compute = plan_.definition.precision.compute;
  const auto make = [&](ElementType of, const char* name) {
    return rank_.device.allocate_in(plan.space(), std::size_t(piece_elements_) * size_of(of), MemoryTag::staging, name);
  };
  for (Stage& stage : stages) {
    for (std::size_t kind = 0; kind < kinds(); ++kind) stage.buffers[kind] = make(type(kind), name_of(kind));
    if (compute != weights_) stage.compute = make(compute, "updated parameters");
  }
  stages_ = std::move(stages);  // all or none
}

int SwappedState::generation_to_read(std::int64_t step) const {
  const bool old = plan_.bug.is(Bug::offload_reads_old_generation, rank_.id) && step > plan_.bug.step;
  return old ? 1 - generation_ : generation_;
}

void SwappedState::begin_read(Index piece, std::int64_t step) {
  Stage& stage = stages_[std::size_t(piece) % stages_.size()];
  if (stage.reading && stage.piece == piece) return;  // ahead of its turn
  finish_write(stage);
  if (!plan_.bug.is(Bug::staging_reused_early, rank_.id))
    after(rank_.device.storage_queue(), stage.sent, Edge::staging_free, plan_.bug);
  stage.piece = piece;
  stage.reading = true;
  const ShardInfo part = range(piece);
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    const AnyVec values(stage.buffers[kind].get(), 0, part.size, type(kind));
    aim(stage.reads[kind], kind, generation_to_read(step), piece, values, false);
    stage.reads[kind].op.step = step;
    io_.start(stage.reads[kind]);
  }
}

void SwappedState::finish_read(Stage& stage) {
  stage.reading = false;
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    if (!plan_.bug.skips(Edge::piece_read)) io_.finish(stage.reads[kind]);
    stage.reads[kind].pending = false;
  }
}

void SwappedState::update(Launcher& host, Optimizer& optimizer, const kernels::OptimizerStep& constants, Stage& stage,
                          AnyVec gradients, const SendOn& send_on) {
  const ShardInfo part = range(stage.piece);
  const auto values = [&](std::size_t kind) { return AnyVec(stage.buffers[kind].get(), 0, part.size, type(kind)); };
  OptimizerSpaces spaces;
  if (weights_ == ElementType::f32) spaces.masters = values(0).as<float>();
  spaces.compute = values(0);
  if (stage.compute) spaces.compute = {stage.compute.get(), 0, part.size, plan_.definition.precision.compute};
  spaces.gradients = gradients.part(part.offset, part.size);
  std::vector<AnyVec> kept;
  for (std::size_t kind = 1; kind < kinds(); ++kind) kept.push_back(values(kind));
  optimizer.place(kept, spaces);
  optimizer.update(host, constants, plan_.bug.is(Bug::swap_forgets_place) ? 0 : part.offset, spaces);
  stage.sent = send_on ? send_on(spaces.compute, part.offset) : Event{};
}

void SwappedState::begin_write(Launcher& host, Stage& stage) {
  after(rank_.device.storage_queue(), host.queue().record(), Edge::piece_updated, plan_.bug);
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    aim(stage.writes[kind], kind, 1 - generation_, stage.piece, stage.reads[kind].values, true);
    stage.writes[kind].op.step = host.last().step;
    io_.start(stage.writes[kind]);
  }
  stage.writing = true;
}

void SwappedState::finish_write(Stage& stage) {
  if (!stage.writing) return;
  stage.writing = false;
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    io_.finish(stage.writes[kind]);
    file(kind, 1 - generation_).digests[std::size_t(stage.piece)] = stage.writes[kind].digest;
  }
}

void SwappedState::step(Launcher& host, Optimizer& optimizer, AnyVec gradients, float grad_factor, double lr,
                        const SendOn& send_on) {
  const kernels::OptimizerStep constants = optimizer.begin_step(host, weights_ == ElementType::f32, grad_factor, lr);
  if (elements_ == 0) return;
  SEEKSIM_CHECK(!stages_.empty(), "a step before open_stages, of %lld elements", static_cast<long long>(elements_));
  const OffloadOptimizerPlan& plan = plan_.layout.offload.optimizer;
  const std::int64_t step = host.last().step;
  for (Stage& stage : stages_) {  // what an interrupted step left is over
    stage.reading = stage.writing = false;
    for (Transfer& transfer : stage.reads) transfer.pending = false;
    for (Transfer& transfer : stage.writes) transfer.pending = false;
  }
  for (Index piece = 0; piece < pieces(); ++piece) {
    begin_read(piece, step);
    if (plan.pipeline_read && stages_.size() > 1 && piece + 1 < pieces()) begin_read(piece + 1, step);
    Stage& stage = stages_[std::size_t(piece) % stages_.size()];
    finish_read(stage);
    update(host, optimizer, constants, stage, gradients, send_on);
    begin_write(host, stage);
    if (!plan.pipeline_write) finish_write(stage);
  }
  for (Stage& stage : stages_) finish_write(stage);
  make_durable();
}

}  // namespace seeksim::runtime
