// Files that a run or a checkpoint reads: safetensors, manifests, goldens, DeepSpeed's hostfile and configuration.
#include <nlohmann/json.hpp>

#include "harness/doctor/hostfile.h"
#include "harness/doctor/lint.h"
#include "harness/input/ds_config_text.h"
#include "harness/record/golden.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/files/bounded_json.h"
#include "runtime/files/safetensors.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace seeksim::fuzz {

using namespace harness;
using namespace runtime;

bool take_safetensors(std::string_view bytes) try {
  const std::vector<TensorInfo> listed = list_safetensors(bytes, bytes.size());
  for (const TensorInfo& tensor : listed) {
    require(tensor.begin <= tensor.end && tensor.end <= bytes.size(), "a tensor beyond its file");
    try {
      const StoredPiece piece = piece_of(tensor);
      require(piece.end >= piece.name.first && piece.name.first >= 0, "a piece that ends before it begins");
    } catch (const std::runtime_error&) {  // a tensor of a model, and no piece of a checkpoint
    }
  }
  const std::vector<TensorBytes> read = read_safetensors(bytes);
  require(read.size() == listed.size(), "the list and the reader disagree");
  for (const TensorBytes& tensor : read) {
    if (tensor.dtype == DType::i32 || tensor.dtype == DType::i64) continue;
    require(to_floats(tensor).values.size() * size_of(tensor.dtype) == tensor.bytes.size(), "values lost");
  }
  return true;
} catch (const std::runtime_error&) {
  return false;
}

bool take_manifest(std::string_view bytes) try {
  // With the seal made right, or nothing behind it would ever be reached.
  std::string text(bytes);
  try {
    auto manifest = parse_bounded<nlohmann::json>(bytes, {"the manifest", kManifestBytesMax});
    require(levels_of(manifest) <= std::size_t(JsonBounds().depth_max), "JSON deeper than its bound");
    if (manifest.is_object() && manifest.erase("digest") > 0) {
      manifest["digest"] = hex(digest_of_file(manifest.dump()));
      text = manifest.dump();
    }
  } catch (const std::exception&) {  // the reader itself has to say so
  }
  const Manifest manifest = read_manifest(text);
  require(to_text(read_manifest(to_text(manifest))) == to_text(manifest), "a manifest that changes when written");
  return true;
} catch (const std::runtime_error&) {
  return false;
}

bool take_golden(std::string_view bytes) try {
  const Golden golden = read_golden(std::string(bytes), "a golden");
  require(golden.loss.size() == golden.grad_norm.size(), "losses and norms of other numbers of steps");
  difference(golden, golden.state);
  return true;
} catch (const BadInput&) {
  return false;
}

bool take_hostfile(std::string_view bytes) {
  require(slots_of(bytes) >= 0, "fewer slots than none");
  return lint_hostfile(bytes, "hosts").empty();
}

bool take_ds_config(std::string_view bytes) try {
  const JsonText config = parse_ds_config(bytes, "ds_config.json");
  lint_config(Document::from_text(Json({{"deepspeed", config.value}}).dump(), "ds_config.json"), "ds_config.json", 8);
  return true;
} catch (const BadInput&) {
  return false;
}

}  // namespace seeksim::fuzz
