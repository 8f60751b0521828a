// The form of a checkpoint in files: a folder a step, in it one safetensors file a writing rank, and a manifest that is
// written last. A checkpoint is there if and only if its manifest is, and every file has the size and the digest that
// the manifest says. Tensors are pieces of whole parameters, named by their place in them and never by a rank, so that
// any layout reads what any other wrote. Pure functions of bytes; files are the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/decide/run_state.h"
#include "runtime/files/safetensors.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

inline constexpr int kCheckpointVersion = 1;
inline constexpr std::uint64_t kManifestBytesMax = std::uint64_t(16) << 20;  // some 65,536 files
inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kManifestBeing = "manifest.json.tmp";  // until it is whole

// What of a parameter is in a tensor. weights: what defines it, the fp32 master where there is one.
// residual: what compression has left out of a group's gradients; of all groups one after another, as if the parameter
// were so many times as large. worker: weights of the workers that train apart (local_sgd), one after another like
// residuals, and so are exp_avg and exp_avg_sq then; what defines the parameter are the last outer step's weights.
// late: gradients of workers that no step has applied yet (staleness), of all places of all workers likewise.
// mean: of the weights (ema_decay).
// server_residual: what the second compression, of the sum of all groups, has left out. factors: those of a matrix with
// which the next step begins, a number of columns of it.
enum class StateKind : std::uint8_t {
  weights,
  exp_avg,
  exp_avg_sq,
  residual,
  worker,
  outer_momentum,
  late,
  mean,
  server_residual,
  factors,
  count_
};
std::string_view name(StateKind kind);

// "<parameter>/<kind>/<first element>", of the whole parameter's elements as they are stored here.
struct PieceName {
  std::string parameter;
  StateKind kind = StateKind::weights;
  std::int64_t first = 0;
};
std::string text(const PieceName& name);
std::optional<PieceName> parse_piece_name(std::string_view text);

// What a tensor of a checkpoint's file is: elements [name.first, end) of a parameter.
struct StoredPiece {
  PieceName name;
  std::int64_t end = 0;
};
// Throws std::runtime_error where it is no piece, holds no floating-point numbers, does not begin at a multiple of its
// elements' size in the file (its values would be read shifted), or ends beyond what a parameter can have.
StoredPiece piece_of(const TensorInfo& tensor);

std::string step_folder(std::string_view path, std::int64_t step);  // "path/step-0000000007"
std::optional<std::int64_t> step_of_folder(std::string_view name);  // the inverse, of the last part
std::string rank_file(int rank);                                    // "rank-00003.safetensors"

struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // of its bytes
};

struct Manifest {
  RunState state;
  ModelPlan model;         // what the names and the places of parameters follow from
  std::vector<int> ranks;  // launch ranks that were there; this and the four below say where it comes from
  int zero_stage = 0;
  int pipeline = 1;
  int tensor = 1;
  int expert = 1;       // ranks that divided the experts; told where there were several
  int shard_group = 0;  // ranks among whom ZeRO cut, as the plan had it; told where there were several groups
  int moments = 2;      // of the optimizer: one has no exp_avg_sq, and none no exp_avg
  bool mean = false;    // it keeps a mean of weights
  std::vector<CheckpointFile> files;
};

std::string to_text(const Manifest& manifest);
// Throws std::runtime_error saying what is wrong with it: its form, its seal, or a model that there cannot be.
Manifest read_manifest(std::string_view text);

// The digest of a file's bytes.
std::uint64_t digest_of_file(std::string_view bytes);

}  // namespace seeksim::runtime
