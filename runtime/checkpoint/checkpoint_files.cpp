#include "runtime/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>

#include "runtime/files/bounded_files.h"
#include "runtime/files/safetensors.h"
#include "runtime/layout/model_limits.h"
#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

std::vector<std::int64_t> steps_in(Storage& storage, const std::string& path) {
  std::vector<std::int64_t> steps;
  if (!storage.exists(path)) return steps;
  for (const std::string& name : storage.list(path)) {
    if (const auto step = step_of_folder(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::vector<std::int64_t> checkpoints_in(Storage& storage, const std::string& path) {
  std::vector<std::int64_t> steps = steps_in(storage, path);
  std::erase_if(steps, [&](std::int64_t step) { return !storage.exists(step_folder(path, step) + '/' + kManifest); });
  return steps;
}

void remove_checkpoint(Storage& storage, const std::string& folder) {
  const std::string manifest = folder + '/' + kManifest;
  if (storage.exists(manifest)) {
    storage.remove(manifest);
    storage.sync(folder);
  }
  if (!storage.exists(folder)) return;
  for (const std::string& name : storage.list(folder)) storage.remove(folder + '/' + name);
  if (storage.exists(folder)) storage.remove(folder);  // some storages have no empty folders
}

std::vector<std::string> enclosing_folders(const std::string& folder) {
  std::vector<std::string> folders = {folder};
  for (std::size_t slash = folder.rfind('/'); slash != std::string::npos && slash > 0;
       slash = folder.rfind('/', slash - 1))
    folders.push_back(folder.substr(0, slash));
  return folders;
}

namespace {

using Extent = std::pair<std::int64_t, std::int64_t>;  // first, end

// Finds one kind of values of a parameter in all files.
struct Held {
  std::vector<Extent> extents;
  DType dtype = DType::f32;
};
using HeldByKind = std::map<std::pair<std::string, StateKind>, Held>;

void take_file(Storage& storage, const std::string& folder, const CheckpointFile& file, HeldByKind& held) {
  const auto refuse = [&](const std::string& what) { throw std::runtime_error(file.name + ' ' + what); };
  std::string bytes;
  try {
    bytes = read_of_size(storage, folder + '/' + file.name, file.bytes);
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  if (digest_of_file(bytes) != file.digest) refuse("does not have the digest that the manifest says");
  for (const TensorInfo& tensor : list_safetensors(bytes, bytes.size())) {
    const StoredPiece piece = piece_of(tensor);
    const auto [here, first] = held.try_emplace({piece.name.parameter, piece.name.kind});
    if (first) here->second.dtype = tensor.dtype;
    if (here->second.dtype != tensor.dtype)
      refuse("holds '" + tensor.name.substr(0, 80) + "' in " + name(tensor.dtype) + ", and what came before it is in " +
             name(here->second.dtype));
    here->second.extents.emplace_back(piece.name.first, piece.end);
  }
}

// Pieces that do not make up 0..size exactly once: what is wrong; empty: nothing.
std::string not_whole(std::vector<Extent> extents, std::int64_t size) {
  std::sort(extents.begin(), extents.end());
  std::int64_t end = 0;
  for (const auto& [first, last] : extents) {
    if (first > end) return "lacks elements from " + std::to_string(end) + " to " + std::to_string(first);
    if (first < end) return "has elements from " + std::to_string(first) + " on twice";
    end = last;
  }
  return end == size ? "" : "ends at element " + std::to_string(end) + " of " + std::to_string(size);
}

// Residuals are of a whole number of groups, and what workers hold of a whole number of them: where the last whole one
// ends.
std::int64_t groups_end(const std::vector<Extent>& extents, std::int64_t size) {
  std::int64_t end = 0;
  for (const auto& [first, last] : extents) end = std::max(end, last);
  return end - end % size;
}

// What the manifest says that an optimizer with so many moments has not; empty: it has this kind.
std::string not_kept(StateKind kind, int moments) {
  if (kind == StateKind::exp_avg && moments < 1) return "no moment";
  return kind == StateKind::exp_avg_sq && moments < 2 ? "one moment" : "";
}

std::string not_whole(const Manifest& manifest, HeldByKind& held) {
  const ModelPlan& model = manifest.model;
  if (!is_known(model))
    return "its model is of the family '" + model.family.substr(0, 40) + "', which is not known here";
  for (const ParameterInfo& p : whole_model(model, false)) {
    const auto workers = held.find({p.name, StateKind::worker});
    const bool apart = workers != held.end();
    const std::int64_t of_all = apart ? groups_end(workers->second.extents, p.whole_size) : p.whole_size;
    for (int kind = 0; kind < int(StateKind::count_); ++kind) {
      if (p.frozen && kind > 0) continue;
      const auto found = held.find({p.name, StateKind(kind)});
      const bool of_groups = StateKind(kind) == StateKind::residual || StateKind(kind) == StateKind::late;
      // Nothing was compressed, and there are no workers.
      const bool has_to_be =
          StateKind(kind) < StateKind::residual || (StateKind(kind) == StateKind::mean && manifest.mean);
      if (!has_to_be && found == held.end()) continue;
      const std::string of = std::string(name(StateKind(kind))) + " of " + p.name;
      if (const std::string has = not_kept(StateKind(kind), manifest.moments); !has.empty()) {
        if (found != held.end()) return of + " are there, and the manifest says that the optimizer has " + has;
        continue;
      }
      if (found == held.end()) return of + " are in no file";
      const bool of_workers = StateKind(kind) == StateKind::worker || StateKind(kind) == StateKind::exp_avg ||
                              StateKind(kind) == StateKind::exp_avg_sq;
      const bool of_factors = StateKind(kind) == StateKind::factors;
      const std::int64_t size = of_groups    ? groups_end(found->second.extents, p.whole_size)
                                : of_factors ? groups_end(found->second.extents, p.cols())
                                : of_workers ? of_all
                                             : p.whole_size;
      const std::string what = not_whole(found->second.extents, size);
      if (!what.empty()) return of + ": it " + what;
      held.erase(found);
    }
  }
  return held.empty() ? "" : held.begin()->first.first + " is no parameter of the model";
}

}  // namespace

Verified verify_checkpoint(Storage& storage, const std::string& folder) {
  Verified verified;
  try {
    verified.manifest = read_manifest(read_at_most(storage, folder + '/' + kManifest, kManifestBytesMax));
    const auto step = step_of_folder(folder.substr(folder.rfind('/') + 1));
    if (step && *step != verified.manifest.state.step)
      throw std::runtime_error("the manifest is of step " + std::to_string(verified.manifest.state.step));
    HeldByKind held;
    for (const CheckpointFile& file : verified.manifest.files) take_file(storage, folder, file, held);
    verified.problem = not_whole(verified.manifest, held);
  } catch (const SeamError& error) {
    verified.problem = error.detail();
  } catch (const std::exception& error) {
    verified.problem = error.what();
  }
  return verified;
}

}  // namespace seeksim::runtime
