#include "runtime/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <limits>

#include "kernels/digest.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/comm/edge.h"
#include "runtime/files/bounded_files.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/samples/data.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

// A place, and what of it has come.
struct CheckpointReader::Progress {
  const PlaceToFill* place = nullptr;
  Index came = 0;
  std::vector<std::pair<Index, Index>> extents;  // first, end

  ShardInfo wants() const { return {place->name.first, place->values.n}; }
};

std::int64_t CheckpointReader::newest(std::int64_t steps_most) {
  try {
    for (const std::int64_t step : checkpoints_in(rank_.storage, plan_.checkpoint.path)) {
      if (step <= steps_most) return step;
    }
  } catch (const SeamError&) {  // a disk that does not even list: others may see more
  }
  return -1;
}

void CheckpointReader::discard_newer(std::int64_t step) {
  try {
    for (const std::int64_t other : steps_in(rank_.storage, plan_.checkpoint.path)) {
      if (other > step) remove_checkpoint(rank_.storage, step_folder(plan_.checkpoint.path, other));
    }
  } catch (const SeamError&) {  // they are found bad when the run comes there again and writes over them
  }
}

// Asked for again where the disk fails. What a file itself has wrong is no matter of asking again.
template <class Read>
auto CheckpointReader::with_retries(const std::string& path, Read read) {
  TimeNs backoff = plan_.recovery.storage_backoff_ns;
  for (int attempt = 1;; ++attempt, backoff *= 2) {
    try {
      return read();
    } catch (const SeamError& error) {
      if (attempt >= plan_.recovery.storage_attempts_max) throw BadCheckpoint(error.detail());
    } catch (const BadCheckpoint&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw BadCheckpoint(path + ' ' + error.what());
    }
    rank_.clock.sleep_until(later(rank_.clock.now(), backoff));
  }
}

// Checks that the manifest is of this run, and of the step in the folder's name.
Manifest CheckpointReader::manifest_of(const std::string& folder, std::int64_t step) {
  const auto refuse = [](const std::string& why) { throw BadCheckpoint(why); };
  Manifest manifest;
  try {
    const std::string path = folder + '/' + kManifest;
    const std::string text =
        nodes_ != nullptr ? nodes_->manifest(folder)
                          : with_retries(path, [&] { return read_at_most(rank_.storage, path, kManifestBytesMax); });
    if (nodes_ != nullptr && text.empty()) throw BadCheckpoint("no node has a manifest that can be read");
    manifest = read_manifest(text);
  } catch (const BadCheckpoint&) {
    throw;
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  const RunState& s = manifest.state;
  const Definition& d = plan_.definition;
  if (s.step != step) refuse("the manifest is of step " + std::to_string(s.step));
  if (s.contract_version != kernels::kContractVersion)
    refuse("it was made under version " + std::to_string(s.contract_version) + " of the numerics");
  if (s.definition != definition_digest(d, step) || s.training_seed != d.training_seed)
    refuse("it is of another training run: model, data, optimizer or seed are others");
  const std::int64_t samples = step == 0 ? 0 : (batch_of_step(s.dropped_batches, step - 1) + 1) * d.global_batch;
  if (s.data_position != samples)
    refuse("its data position is " + std::to_string(s.data_position) + ", and its steps use " +
           std::to_string(samples) + " samples");
  const Sampler sampler(d);
  if (s.sampler != (sampler.on() ? sampler.at(samples) : SamplerState{}))
    refuse("its sampler stands at sample " + std::to_string(s.sampler.index) + " of epoch " +
           std::to_string(s.sampler.epoch) + ", which is not where its data position is");
  const bool scaled = d.fp8.keeps_state() && plan_.numerics != Numerics::shapes;
  const std::size_t tensors = scaled ? std::size_t(fp8_tensors(d.model.layers)) : 0;
  if (s.fp8.size() != tensors)
    refuse("it has the scales of " + std::to_string(s.fp8.size()) + " tensors in fp8, and " + std::to_string(tensors) +
           " have one");
  if (s.optimizer_steps < 0 || s.optimizer_steps > step + optimizer_start(d.quirks).steps || s.skips.steps > step)
    refuse("its numbers of steps do not go together");
  return manifest;
}

RunState CheckpointReader::read(std::int64_t step, std::span<const PlaceToFill> places) {
  const std::string folder = step_folder(plan_.checkpoint.path, step);
  const Manifest manifest = manifest_of(folder, step);
  if (plan_.numerics == Numerics::shapes) {
    read_shapes(folder, places);
    return manifest.state;
  }
  std::vector<Progress> progress;
  for (const PlaceToFill& place : places) {
    if (place.values.n > 0) progress.push_back({&place, 0, {}});
  }
  std::string wrong;  // the other files are brought to the others all the same
  for (const CheckpointFile& file : manifest.files) {
    try {
      read_file(folder, file, progress);
    } catch (const BadCheckpoint& bad) {
      if (nodes_ == nullptr) throw;
      if (wrong.empty()) wrong = bad.what();
    }
  }
  if (!wrong.empty()) throw BadCheckpoint(wrong);
  for (Progress& one : progress) {
    std::sort(one.extents.begin(), one.extents.end());
    Index end = one.wants().offset;
    for (const auto& [first, last] : one.extents) {
      if (first != end) break;
      end = last;
    }
    const bool whole = end == one.wants().offset + one.wants().size && one.came == one.wants().size;
    if (!whole) throw BadCheckpoint("its files do not hold all of " + text(one.place->name) + ", or hold some twice");
  }
  return manifest.state;
}

Transfer CheckpointReader::transfer(const std::string& path, AnyVec values) const {
  Transfer transfer;
  transfer.path = &path;
  transfer.values = values;
  transfer.op.phase = Phase::checkpoint;
  transfer.op.tensor = "checkpoint";
  transfer.op.site = SEEKSIM_SITE;
  return transfer;
}

// Whether a file holds anything that a place wants: by its front, which is believed only so far.
bool CheckpointReader::concerns(const std::string& path, const CheckpointFile& file,
                                const std::vector<Progress>& progress) {
  const auto front_of = [&](std::uint64_t bytes) {
    return with_retries(path, [&] { return read_front(rank_.storage, path, bytes); });
  };
  const std::uint64_t front = safetensors_front_bytes(front_of(8), file.bytes);
  for (const TensorInfo& tensor : list_safetensors(front_of(front), file.bytes)) {
    const StoredPiece piece = piece_of(tensor);
    for (const Progress& one : progress) {
      const PieceName& wanted = one.place->name;
      if (wanted.parameter == piece.name.parameter && wanted.kind == piece.name.kind &&
          common(one.wants(), {Index(piece.name.first), tensor.shape[0]}).size > 0)
        return true;
    }
  }
  return false;
}

// A file that is as the manifest says, in memory of the host; null: no rank here needs it.
BufferPtr CheckpointReader::content_of(const std::string& path, const CheckpointFile& file,
                                       const std::vector<Progress>& progress) {
  if (nodes_ != nullptr) {
    BufferPtr memory = nodes_->file(path, file);
    if (memory == nullptr) throw BadCheckpoint(path + " is whole on no node");
    return memory;
  }
  if (!rank_.storage.exists(path)) throw BadCheckpoint(path + " is missing");
  const std::string wrong = with_retries(path, [&] { return not_of_size(rank_.storage, path, file.bytes); });
  if (!wrong.empty()) throw BadCheckpoint(path + ' ' + wrong);
  if (!concerns(path, file, progress)) return nullptr;
  BufferPtr memory = rank_.device.allocate_in(Space::host, file.bytes, MemoryTag::staging, "checkpoint");
  Transfer read = transfer(path, {memory.get(), 0, Index(file.bytes), ElementType::bytes});
  read.digest = file.digest;
  read.unchecked = plan_.bug.is(Bug::checkpoint_unchecked);
  io_.start(read);
  io_.finish(read);
  return memory;
}

// Everything that is wrong with a file is found before the first value of it goes anywhere.
void CheckpointReader::read_file(const std::string& folder, const CheckpointFile& file,
                                 std::vector<Progress>& progress) {
  const std::string path = folder + '/' + file.name;
  BufferPtr memory;
  std::vector<std::pair<AnyVec, AnyVec>> copies;
  try {
    memory = content_of(path, file, progress);
    if (memory == nullptr) return;
    copies = find_values(*memory, file.bytes, progress);
  } catch (const SeamError& error) {
    // A file that does not fit into memory is one that cannot be used here; another checkpoint's may be smaller.
    if (error.kind() != ErrorKind::io && error.kind() != ErrorKind::out_of_memory) throw;
    throw BadCheckpoint(error.detail());
  } catch (const BadCheckpoint&) {
    throw;
  } catch (const std::runtime_error& error) {  // of safetensors
    throw BadCheckpoint(path + ": " + error.what());
  }
  Launcher launch(rank_.device.copy_queue(), rank_.id, 0, OpKind::copy);
  launch.phase(Phase::checkpoint);
  for (const auto& [from, to] : copies) copy_values(launch, "checkpoint", SEEKSIM_SITE, from, to);
  host_after_all(rank_, launch.last(), plan_.recovery.watchdog_ns, Edge::checkpoint_read, plan_.bug);
}

// From where to where.
std::vector<std::pair<AnyVec, AnyVec>> CheckpointReader::find_values(Buffer& file, std::uint64_t size,
                                                                     std::vector<Progress>& progress) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data), std::size_t(size));
  std::vector<std::pair<AnyVec, AnyVec>> copies;
  for (const TensorInfo& tensor : list_safetensors(bytes, bytes.size())) {
    const PieceName piece = piece_of(tensor).name;
    for (Progress& one : progress) {
      const AnyVec& values = one.place->values;
      if (one.place->name.parameter != piece.parameter || one.place->name.kind != piece.kind) continue;
      const ShardInfo both = common(one.wants(), {Index(piece.first), tensor.shape[0]});
      if (both.size == 0) continue;
      if (tensor.dtype != dtype_of(values.type))
        throw BadCheckpoint(tensor.name + " is " + name(tensor.dtype) + ", not " + name(dtype_of(values.type)));
      const Index at = Index(tensor.begin / size_of(tensor.dtype)) + both.offset - Index(piece.first);
      copies.emplace_back(AnyVec(&file, at, both.size, values.type),
                          values.part(both.offset - one.wants().offset, both.size));
      one.came += both.size;
      one.extents.emplace_back(both.offset, both.offset + both.size);
    }
  }
  return copies;
}

// The time that it takes, and nothing else.
void CheckpointReader::read_shapes(const std::string& folder, std::span<const PlaceToFill> places) {
  std::uint64_t bytes = 0;
  for (const PlaceToFill& place : places) bytes += place.values.bytes();
  if (bytes == 0) return;
  const std::string path = folder + '/' + rank_file(rank_.id);
  const BufferPtr memory = rank_.device.allocate_in(Space::host, bytes, MemoryTag::staging, "checkpoint");
  Transfer read = transfer(path, {memory.get(), 0, Index(bytes), ElementType::bytes});
  io_.start(read);
  io_.finish(read);
  Launcher copies(rank_.device.copy_queue(), rank_.id, 0, OpKind::copy);
  copies.phase(Phase::checkpoint);
  for (const PlaceToFill& place : places)
    copy_values(copies, "checkpoint", SEEKSIM_SITE, {memory.get(), 0, place.values.n, place.values.type}, place.values);
  host_after_all(rank_, copies.last(), plan_.recovery.watchdog_ns, Edge::checkpoint_read, plan_.bug);
}

}  // namespace seeksim::runtime
