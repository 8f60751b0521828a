#include "harness/commands/checkpoint_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>

#include "harness/export/saved_files.h"
#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "harness/record/golden.h"
#include "harness/report/terminal.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/files/bounded_files.h"
#include "runtime/files/safetensors.h"
#include "runtime/layout/parameters.h"
#include "runtime/model/weights.h"

namespace seeksim::harness {
namespace {

using runtime::Manifest;

// A folder of checkpoints, or one of them.
struct CheckpointFolder {
  runtime::PosixStorage storage;
  std::vector<std::int64_t> steps;  // newest first
  std::string folder(std::int64_t step) const { return runtime::step_folder(".", step); }
  bool complete(std::int64_t step) { return storage.exists(folder(step) + '/' + runtime::kManifest); }
};

CheckpointFolder open_place(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    throw BadInput(folder, "is no folder", "Name a folder of checkpoints, or one of them (step-0000000010).");
  const std::size_t slash = folder.rfind('/');
  const std::string last = folder.substr(slash == std::string::npos ? 0 : slash + 1);
  if (const auto step = runtime::step_of_folder(last))
    return {runtime::PosixStorage(slash == std::string::npos ? "." : folder.substr(0, slash + 1)), {*step}};
  CheckpointFolder place{runtime::PosixStorage(folder), {}};
  place.steps = runtime::steps_in(place.storage, ".");
  if (place.steps.empty())
    throw BadInput(folder, "holds no checkpoint",
                   "A run writes them below --out into the \"path\" of \"checkpoint\", with --storage real.");
  return place;
}

std::string size_text(std::uint64_t bytes) { return fmt::format("{:.1f} KB", double(bytes) / 1000); }

std::string described(const Manifest& m) {
  const runtime::RunState& s = m.state;
  const runtime::ModelPlan& p = m.model;
  std::uint64_t bytes = 0;
  for (const runtime::CheckpointFile& file : m.files) bytes += file.bytes;
  std::string text = fmt::format(
      "  model     {}, {} layers, width {}, {} heads, context {}, vocabulary {}{}{}\n  written   by {} ranks in epoch "
      "{}: ZeRO {}, {} stages, {} tensor-parallel ranks{}{}\n  position  {} samples, {} steps of the optimizer, loss "
      "scale "
      "{}, {} steps skipped\n  run       definition {}, training seed {}, numerics {}\n  files     {}, {} together\n",
      p.family, p.layers, p.width, p.heads, p.context, p.vocab, p.tied ? ", tied" : "",
      p.frozen.empty() ? "" : ", frozen: " + fmt::format("{}", fmt::join(p.frozen, ", ")), m.ranks.size(), s.epoch,
      m.zero_stage, m.pipeline, m.tensor, m.expert > 1 ? fmt::format(", experts over {} ranks", m.expert) : "",
      m.shard_group > 0 ? fmt::format(", shards in groups of {}", m.shard_group) : "", s.data_position,
      s.optimizer_steps, s.scaler.scale, s.skips.skipped, hex(s.definition), s.training_seed, s.contract_version,
      m.files.size(), size_text(bytes));
  if (!s.dropped_batches.empty()) text += fmt::format("  dropped   batches {}\n", fmt::join(s.dropped_batches, ", "));
  for (const runtime::CheckpointFile& file : m.files)
    text += fmt::format("            {}  {:>12} bytes  {}\n", file.name, file.bytes, hex(file.digest));
  return text;
}

// Kinds of tensors and their elements, over all files.
std::string tensors_of(CheckpointFolder& place, std::int64_t step, const Manifest& manifest) {
  std::map<std::string, std::pair<int, std::int64_t>> kinds;
  for (const runtime::CheckpointFile& file : manifest.files) {
    const std::string path = place.folder(step) + '/' + file.name;
    if (const std::string wrong = runtime::not_of_size(place.storage, path, file.bytes); !wrong.empty())
      throw std::runtime_error(file.name + ' ' + wrong);
    const std::uint64_t front =
        runtime::safetensors_front_bytes(runtime::read_front(place.storage, path, 8), file.bytes);
    for (const runtime::TensorInfo& tensor :
         runtime::list_safetensors(runtime::read_front(place.storage, path, front), file.bytes)) {
      const runtime::StoredPiece piece = runtime::piece_of(tensor);
      auto& [count, elements] =
          kinds[fmt::format("{} in {}", runtime::name(piece.name.kind), runtime::name(tensor.dtype))];
      ++count;
      elements += piece.end - piece.name.first;
    }
  }
  std::string text;
  for (const auto& [kind, counts] : kinds)
    text += fmt::format("  tensors   {}: {} pieces, {} elements\n", kind, counts.first, counts.second);
  return text;
}

}  // namespace

ExitStatus inspect_checkpoints(const std::string& folder, const Style& style) {
  CheckpointFolder place = open_place(folder);
  ExitStatus status = ExitStatus::as_expected;
  for (const std::int64_t step : place.steps) {
    put(style.bold(fmt::format("step {}", step)));
    if (!place.complete(step)) {
      put("  no manifest: it was never completed\n");
      continue;
    }
    try {
      const Manifest manifest = runtime::read_manifest(runtime::read_at_most(
          place.storage, place.folder(step) + '/' + runtime::kManifest, runtime::kManifestBytesMax));
      put('\n' + described(manifest) + tensors_of(place, step, manifest));
    } catch (const std::exception& error) {
      put("  " + style.bad(error.what()) + '\n');
      status = ExitStatus::check_failed;
    }
  }
  return status;
}

ExitStatus verify_checkpoints(const std::string& folder, const Style& style) {
  CheckpointFolder place = open_place(folder);
  int whole = 0, broken = 0;
  for (const std::int64_t step : place.steps) {
    if (!place.complete(step)) {
      put(fmt::format("step {}: no manifest: it was never completed\n", step));
      continue;
    }
    const runtime::Verified verified = runtime::verify_checkpoint(place.storage, place.folder(step));
    (verified.problem.empty() ? whole : broken) += 1;
    put(fmt::format(
        "step {}: {}\n", step,
        verified.problem.empty()
            ? style.good(fmt::format("complete; {} files have the right size and digest and hold every parameter once",
                                     verified.manifest.files.size()))
            : style.bad(verified.problem)));
  }
  return whole > 0 && broken == 0 ? ExitStatus::as_expected : ExitStatus::check_failed;
}

ExitStatus convert_checkpoint(const std::string& folder, const std::string& out) {
  CheckpointFolder place = open_place(folder);
  probe_writable(out, "convert");
  std::string tried;
  for (const std::int64_t step : place.steps) {
    const runtime::Verified verified = runtime::verify_checkpoint(place.storage, place.folder(step));
    if (!verified.problem.empty()) {
      tried += fmt::format(" step {}: {}.", step, verified.problem);
      continue;
    }
    const runtime::ModelPlan& model = verified.manifest.model;
    const runtime::Parameters parameters(model, false);
    std::map<std::string, const runtime::ParameterInfo*> by_name;
    for (const runtime::ParameterInfo& p : parameters.all()) by_name[p.name] = &p;
    std::vector<float> flat(std::size_t(parameters.size()));
    for (const runtime::CheckpointFile& file : verified.manifest.files) {
      for (const runtime::TensorBytes& tensor :
           runtime::read_safetensors(place.storage.read(place.folder(step) + '/' + file.name))) {
        const auto piece = runtime::parse_piece_name(tensor.name);
        if (piece->kind != runtime::StateKind::weights) continue;
        const std::vector<float> values = runtime::to_floats(tensor).values;
        std::copy(values.begin(), values.end(), flat.begin() + by_name.at(piece->parameter)->offset + piece->first);
      }
    }
    save_tensors(out, runtime::to_hugging_face(parameters, model, flat), fmt::format("weights after step {}", step),
                 "convert");
    put(fmt::format("{}: weights after step {}\n", out, step));
    return ExitStatus::as_expected;
  }
  throw BadInput(folder, "no checkpoint here is complete:" + tried, "seeksim checkpoint inspect says what there is.");
}

}  // namespace seeksim::harness
