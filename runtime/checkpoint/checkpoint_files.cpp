#include "runtime/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>

#include "runtime/files/safetensors.h"
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
using Extents = std::map<std::pair<std::string, StateKind>, std::vector<Extent>>;

void take_file(Storage& storage, const std::string& folder, const CheckpointFile& file, Extents& extents) {
  const std::string path = folder + '/' + file.name;
  const std::string bytes = storage.read(path);
  const auto refuse = [&](const std::string& what) { throw std::runtime_error(file.name + ' ' + what); };
  if (bytes.size() != file.bytes)
    refuse("has " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(file.bytes));
  if (digest_of_file(bytes) != file.digest) refuse("does not have the digest that the manifest says");
  for (const TensorInfo& tensor : list_safetensors(bytes, bytes.size())) {
    const auto piece = parse_piece_name(tensor.name);
    if (!piece || tensor.shape.size() != 1) refuse("holds '" + tensor.name.substr(0, 80) + "', which is no piece");
    extents[{piece->parameter, piece->kind}].emplace_back(piece->first, piece->first + tensor.shape[0]);
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

std::string not_whole(const ModelPlan& model, Extents& extents) {
  for (const ParameterInfo& p : whole_model(model, false)) {
    for (int kind = 0; kind < int(StateKind::count_); ++kind) {
      if (p.frozen && kind > 0) continue;
      const auto found = extents.find({p.name, StateKind(kind)});
      const std::string of = std::string(name(StateKind(kind))) + " of " + p.name;
      if (found == extents.end()) return of + " are in no file";
      if (const std::string what = not_whole(found->second, p.whole_size); !what.empty()) return of + ": it " + what;
      extents.erase(found);
    }
  }
  return extents.empty() ? "" : extents.begin()->first.first + " is no parameter of the model";
}

}  // namespace

Verified verify_checkpoint(Storage& storage, const std::string& folder) {
  Verified verified;
  try {
    verified.manifest = read_manifest(storage.read(folder + '/' + kManifest));
    const auto step = step_of_folder(folder.substr(folder.rfind('/') + 1));
    if (step && *step != verified.manifest.state.step)
      throw std::runtime_error("the manifest is of step " + std::to_string(verified.manifest.state.step));
    Extents extents;
    for (const CheckpointFile& file : verified.manifest.files) take_file(storage, folder, file, extents);
    verified.problem = not_whole(verified.manifest.model, extents);
  } catch (const SeamError& error) {
    verified.problem = error.detail();
  } catch (const std::exception& error) {
    verified.problem = error.what();
  }
  return verified;
}

}  // namespace seeksim::runtime
