// Chains of transfers are enqueued at once, and each does nothing unless the one before came right; so a checkpoint
// costs training the copies and nothing else.
#include "runtime/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/check.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/launch/launcher.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/plan/changes.h"
#include "runtime/plan/optimizer_kinds.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

CheckpointWriter::CheckpointWriter(Rank& rank, const TrainPlan& plan, Observer& observer)
    : rank_(rank), plan_(plan), observer_(observer), io_(rank, plan) {}

namespace {
TensorInfo info_of(const SavedPiece& piece) {
  return {text(piece.name), dtype_of(piece.values.type), {piece.values.n}, 0, 0};
}

Op op_of(const Rank& rank, std::int64_t step, const char* tensor) {
  Op op;
  op.phase = Phase::checkpoint;
  op.rank = rank.id;
  op.step = step;
  op.tensor = tensor;
  op.site = SEEKSIM_SITE;
  return op;
}
}  // namespace

// ---- a rank's file -------------------------------------------------------------------------------------------------

void CheckpointWriter::snapshot(const RunState& state, const std::vector<SavedPiece>& pieces, bool lowest) {
  SEEKSIM_CHECK(!under_way_, "a checkpoint of step %lld is under way", static_cast<long long>(state_.step));
  under_way_ = true;
  lowest_ = lowest;
  failed_ = durable_.file = durable_.all = durable_.manifest = false;
  state_ = state;
  record_ = {};
  record_.step = state.step;
  record_.began_ns = rank_.clock.now();
  path_.folder = step_folder(plan_.checkpoint.path, state.step);
  path_.file = path_.folder + '/' + rank_file(rank_.id);
  path_.manifest = path_.folder + '/' + kManifest;
  // Ranks of a node that each write the node's manifest do not write to one file.
  path_.being = path_.folder + '/' + kManifestBeing + (plan_.checkpoint.node_local ? std::to_string(rank_.id) : "");
  bytes_ = digest_ = 0;
  if (pieces.empty()) return;

  std::vector<TensorInfo> infos;
  for (const SavedPiece& piece : pieces) infos.push_back(info_of(piece));
  const std::string front = safetensors_front(infos, {{"format", "pt"}, {"made_by", "seeksim"}});
  bytes_ = record_.bytes = infos.back().end;
  try {
    file_ = rank_.device.allocate_in(Space::host, bytes_, MemoryTag::staging, "checkpoint");
  } catch (const SeamError& error) {
    return fail(error.detail());
  }
  rank_.device.host_touches(op_of(rank_, state.step, "checkpoint"), {file_.get(), 0, front.size(), true});
  if (has_values()) std::memcpy(file_->data, front.data(), front.size());
  Launcher copies(rank_.device.copy_queue(), rank_.id, 0, OpKind::copy);
  copies.at(state.epoch, state.step - 1);
  copies.phase(Phase::checkpoint);
  for (const SavedPiece& piece : pieces) {
    const std::string name = text(piece.name);
    const auto info = std::find_if(infos.begin(), infos.end(), [&](const TensorInfo& i) { return i.name == name; });
    const Index at = Index(info->begin / size_of(piece.values.type));
    copy_values(copies, "checkpoint", SEEKSIM_SITE, piece.values, {file_.get(), at, piece.values.n, piece.values.type});
  }
}

Transfer& CheckpointWriter::chain(const std::string& path, AnyVec values, const char* tensor) {
  const Transfer* const before = chain_.empty() ? nullptr : &chain_.back();
  Transfer& transfer = chain_.emplace_back();
  transfer.path = &path;
  transfer.values = values;
  transfer.write = true;
  transfer.after = before;
  transfer.op = op_of(rank_, state_.step - 1, tensor);
  return transfer;
}

void CheckpointWriter::write() {
  record_.snapshot_ns = rank_.clock.now();
  if (bytes_ == 0 || failed_ || plan_.bug.is(Bug::named_file_missing, rank_.id)) {
    durable_.file = true;
    return;
  }
  const AnyVec all(file_.get(), 0, Index(bytes_), ElementType::bytes);
  if (plan_.bug.is(Bug::early_manifest)) {
    rank_.device.host_touches(op_of(rank_, state_.step, "checkpoint"), all.range(false));
    if (has_values()) digest_ = digest_of_file({reinterpret_cast<const char*>(file_->data), bytes_});
    durable_.file = true;  // it says; end() writes it
    return;
  }
  write_file();
}

void CheckpointWriter::write_file() {
  remove_quietly(path_.file);  // a longer one would keep its end
  io_.start(chain(path_.file, {file_.get(), 0, Index(bytes_), ElementType::bytes}, "checkpoint"));
  io_.start(chain(path_.file, {}, "checkpoint"));
}

// What is under way now: true, it is over, well or not.
bool CheckpointWriter::advance(bool wait) {
  if (chain_.empty()) return true;
  if (!wait && !io_.done(chain_.back())) return false;
  std::string why;  // a fiber must not wait inside a catch block
  try {
    for (Transfer& transfer : chain_) io_.finish(transfer);
    if (!durable_.file) {
      digest_ = chain_.front().digest;
      durable_.file = true;
    } else {
      publish_shapes();
      durable_.manifest = true;
      remove_old();
    }
  } catch (const SeamError& error) {
    why = error.detail();
  }
  if (why.empty())
    chain_.clear();
  else
    fail(why);
  return true;
}

// Nothing of it is under way when this returns, or its memory is kept for as long as this rank lives.
void CheckpointWriter::drop_chain() {
  try {
    for (Transfer& transfer : chain_) io_.give_up(transfer);
    chain_.clear();
  } catch (const SeamError&) {
    stuck_.push_back(std::move(chain_));
    stuck_memory_.push_back(std::move(file_));
    stuck_memory_.push_back(std::move(text_));
    chain_ = {};
  }
}

void CheckpointWriter::wait() { advance(true); }

// ---- votes ---------------------------------------------------------------------------------------------------------

CheckpointBallot CheckpointWriter::ballot() {
  CheckpointBallot ballot;
  if (found_ >= 0) {
    ballot.step = found_;
    ballot.complete = true;
    return ballot;
  }
  if (!under_way_) return ballot;
  advance(false);
  ballot.failed = failed_;
  ballot.complete = durable_.manifest;
  ballot.bytes = bytes_;
  ballot.digest = digest_;
  if (failed_ || durable_.file) ballot.step = state_.step;
  return ballot;
}

void CheckpointWriter::heard(const Agreement& agreement) {
  found_ = -1;
  bool failed = false, all = true, everywhere = true;
  std::int64_t complete = -1;
  for (const Ballot& other : agreement.ballots) {
    const CheckpointBallot& told = other.checkpoint;
    if (told.complete) complete = std::max(complete, told.step);
    everywhere = everywhere && told.complete;
    failed = failed || (under_way_ && told.step == state_.step && told.failed);
    all = all && told.step == state_.step;
  }
  if (everywhere || !plan_.checkpoint.node_local) complete_ = std::max(complete_, complete);
  if (!under_way_) return;
  if (failed || complete_ >= state_.step) return end(!failed);
  if (all && !durable_.all) {
    durable_.all = true;
    if (writes_manifest(lowest_)) write_manifest(agreement);
  }
}

void CheckpointWriter::fail(const std::string& why) {
  drop_chain();
  failed_ = true;
  record_.why = why;
}

void CheckpointWriter::end(bool complete) {
  drop_chain();
  if (complete && bytes_ > 0 && plan_.bug.is(Bug::early_manifest)) {
    write_file();
    drop_chain();
  }
  if (!complete) discard();
  file_.reset();
  text_.reset();
  under_way_ = false;
  record_.complete = complete;
  record_.ended_ns = rank_.clock.now();
  if (!plan_.checkpoint.async) record_.snapshot_ns = record_.ended_ns;  // so long it was waited for
  observer_.checkpoint(rank_.id, record_);
}

// What is left takes room that the next one needs. A manifest goes first.
void CheckpointWriter::discard() {
  try {
    if (writes_manifest(lowest_) && rank_.storage.exists(path_.manifest)) {
      rank_.storage.remove(path_.manifest);
      rank_.storage.sync(path_.folder);
    }
    remove_quietly(path_.file);
  } catch (const SeamError&) {  // it is whole, or has no manifest, or its files do not have the digests that that says
  }
}

void CheckpointWriter::give_up() {
  if (!under_way_) return;
  given_up_ = state_.step;
  chain_.clear();
  file_.reset();
  text_.reset();
  under_way_ = false;
  record_.why = "given up in a recovery";
  record_.ended_ns = rank_.clock.now();
  observer_.checkpoint(rank_.id, record_);
}

void CheckpointWriter::look_again(bool lowest) {
  const std::int64_t step = std::exchange(given_up_, -1);
  if (!writes_manifest(lowest) || step <= complete_) return;
  try {
    if (!rank_.storage.exists(path_.manifest)) return;
    for (const std::string& folder : enclosing_folders(path_.folder)) rank_.storage.sync(folder);
    found_ = step;
  } catch (const SeamError&) {  // it is not sure to last
  }
}

// ---- the manifest --------------------------------------------------------------------------------------------------

void CheckpointWriter::write_manifest(const Agreement& agreement) {
  Manifest manifest;
  manifest.state = state_;
  if (plan_.bug.is(Bug::optimizer_step_not_saved)) manifest.state.optimizer_steps = 0;
  if (plan_.bug.is(Bug::scaler_not_saved)) manifest.state.scaler = initial_state(plan_.definition.scaler);
  manifest.model = plan_.definition.model;
  manifest.ranks = agreement.members;
  manifest.zero_stage = plan_.layout.zero.stage;
  manifest.pipeline = plan_.layout.parallel.pipeline;
  manifest.tensor = plan_.layout.parallel.tensor;
  manifest.expert = plan_.layout.parallel.expert;
  manifest.shard_group = plan_.layout.parallel.shard_group;
  manifest.moments = moments_of(plan_.definition.optimizer);
  manifest.mean = keeps_mean(plan_.definition.optimizer) && !plan_.bug.is(Bug::ema_not_saved);
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    const CheckpointBallot& told = agreement.ballots[i].checkpoint;
    if (told.bytes > 0) manifest.files.push_back({rank_file(agreement.members[i]), told.bytes, told.digest});
  }
  manifest_ = to_text(manifest);
  try {
    text_ = rank_.device.allocate_in(Space::host, manifest_.size(), MemoryTag::staging, "manifest");
  } catch (const SeamError& error) {
    return fail(error.detail());
  }
  const AnyVec all(text_.get(), 0, Index(manifest_.size()), ElementType::bytes);
  rank_.device.host_touches(op_of(rank_, state_.step, "manifest"), all.range(true));
  if (has_values()) std::memcpy(text_->data, manifest_.data(), manifest_.size());
  remove_quietly(path_.being);
  folders_ = enclosing_folders(path_.folder);
  io_.start(chain(path_.being, all, "manifest"));
  if (!plan_.bug.is(Bug::manifest_not_synced)) io_.start(chain(path_.being, {}, "manifest"));
  io_.start(chain(folders_.front(), {}, "manifest"));  // the names of all files
  Transfer& rename = chain(path_.being, {}, "manifest");
  rename.renamed_to = &path_.manifest;
  io_.start(rename);
  for (const std::string& folder : folders_) io_.start(chain(folder, {}, "manifest"));
}

// Kernels of a run of shapes do nothing, and yet what comes later looks for checkpoints.
void CheckpointWriter::publish_shapes() {
  if (has_values()) return;
  rank_.storage.write(path_.manifest, manifest_);
  rank_.storage.sync(path_.manifest);
  for (const std::string& folder : folders_) rank_.storage.sync(folder);
}

// Where each node has files of its own, each needs one.
bool CheckpointWriter::writes_manifest(bool lowest) const { return lowest || plan_.checkpoint.node_local; }

// Complete ones beyond those that are kept, and what earlier ones left that never were complete. The one before a
// change stays while the change may yet be rolled back.
void CheckpointWriter::remove_old() {
  try {
    int kept = 0;
    std::int64_t newer = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t step : steps_in(rank_.storage, plan_.checkpoint.path)) {
      const std::string folder = step_folder(plan_.checkpoint.path, step);
      const bool complete = rank_.storage.exists(folder + '/' + kManifest);
      const bool before_change = may_undo_within(plan_, state_.undone_changes, state_.step, step, newer);
      if (complete) newer = step;
      if (complete && (++kept <= std::max(plan_.checkpoint.keep, 1) || before_change)) continue;
      if (step < state_.step) remove_checkpoint(rank_.storage, folder);
    }
  } catch (const SeamError&) {  // the next one tries again
  }
}

void CheckpointWriter::remove_quietly(const std::string& path) {
  try {
    if (rank_.storage.exists(path)) rank_.storage.remove(path);
  } catch (const SeamError&) {  // what comes later shows whether it matters
  }
}

}  // namespace seeksim::runtime
