// A manifest carries a digest of itself: a flipped bit in a number is as bad as one in a weight. Every field has to be
// there; none has a default.
#include "runtime/checkpoint/checkpoint_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "runtime/files/bounded_json.h"
#include "runtime/layout/model_limits.h"
#include "runtime/numbers/fp8_products.h"
#include "runtime/seams/bounded.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

using json = nlohmann::json;

constexpr const char* kFormat = "seeksim.checkpoint";
constexpr EnumNames<StateKind> kKinds({{StateKind::weights, "weights"},
                                       {StateKind::exp_avg, "exp_avg"},
                                       {StateKind::exp_avg_sq, "exp_avg_sq"},
                                       {StateKind::residual, "residual"},
                                       {StateKind::worker, "worker"},
                                       {StateKind::outer_momentum, "outer_momentum"},
                                       {StateKind::late, "late"},
                                       {StateKind::mean, "mean"},
                                       {StateKind::server_residual, "server_residual"},
                                       {StateKind::factors, "factors"}});
constexpr std::string_view kFolderPrefix = "step-";
constexpr std::size_t kFolderDigits = 10;

template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

json scaler_json(const LossScalerState& s) {
  return {{"scale", s.scale},           {"iteration", s.iteration},           {"last_overflow", s.last_overflow},
          {"hysteresis", s.hysteresis}, {"growth_tracker", s.growth_tracker}, {"stopped", s.stopped}};
}

json sampler_json(const SamplerState& s) { return {{"seed", s.seed}, {"epoch", s.epoch}, {"index", s.index}}; }

json skips_json(const SkipState& s) {
  return {{"steps", s.steps},
          {"skipped", s.skipped},
          {"consecutive", s.consecutive},
          {"first_step", s.first_step},
          {"last_step", s.last_step},
          {"first_scale", s.first_scale},
          {"last_scale", s.last_scale},
          {"nonfinite_min", s.nonfinite_min},
          {"nonfinite_max", s.nonfinite_max}};
}

// Magnitudes are the bits of fp32 numbers, the last step's first.
json fp8_json(const std::vector<Fp8State>& states, const ModelPlan& model) {
  const std::vector<std::string> names = fp8_tensor_names(model);
  json all = json::object();
  for (std::size_t i = 0; i < states.size() && i < names.size(); ++i) {
    std::string history;
    for (const float amax : states[i].amax_history)
      history += fmt::format("{:08x}", std::bit_cast<std::uint32_t>(amax));
    all[names[i]] = {{"scale", states[i].scale}, {"amax_history", history}};
  }
  return all;
}

// Changes that were undone, and where a sampler stands, are written where there are some: other manifests are as they
// were before there were any.
json state_json(const RunState& s) {
  json all = {{"contract_version", s.contract_version},
              {"definition", hex(s.definition)},
              {"step", s.step},
              {"data_position", s.data_position},
              {"training_seed", s.training_seed},
              {"optimizer_steps", s.optimizer_steps},
              {"scaler", scaler_json(s.scaler)},
              {"skips", skips_json(s.skips)},
              {"dropped_batches", s.dropped_batches},
              {"epoch", s.epoch}};
  if (!s.undone_changes.empty()) all["undone_changes"] = s.undone_changes;
  if (s.sampler != SamplerState{}) all["sampler"] = sampler_json(s.sampler);
  return all;
}

// The experts are written where there are some: what they decide stands in the definition's digest.
json model_json(const ModelPlan& m) {
  json all = {{"family", m.family},     {"layers", m.layers}, {"width", m.width},   {"heads", m.heads},
              {"context", m.context},   {"vocab", m.vocab},   {"tied", m.tied},     {"logit_scale", m.logit_scale},
              {"kv_heads", m.kv_heads}, {"ffn", m.ffn},       {"frozen", m.frozen}, {"rope_theta", m.rope_theta},
              {"norm_eps", m.norm_eps}};
  const ExpertsPlan& x = m.experts;
  if (x.on()) all.update({{"experts", x.count}, {"experts_per_token", x.per_token}});
  if (x.deepseek())
    all.update({{"gate_scale", x.scale},
                {"sigmoid_gates", x.sigmoid},
                {"shared_experts", x.shared},
                {"dense_layers", x.dense_layers},
                {"dense_ffn", m.dense_hidden()}});
  return all;
}

// Reads fields by name and says which one is missing or of the wrong kind.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no object");
  }

  const json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(std::string("has no \"") + key + '"');
    return *found;
  }
  bool has(const char* key) const { return object_.contains(key); }
  template <class T>
  void read(const char* key, T& into) const {
    try {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        const std::optional<T> value = whole_number<T>(at(key));
        if (!value) fail(std::string("has a \"") + key + "\" that is no whole number, or too large");
        into = *value;
      } else {
        at(key).get_to(into);
      }
    } catch (const json::exception&) {
      fail(std::string("has a \"") + key + "\" of the wrong type");
    }
  }
  std::uint64_t digest(const char* key) const {
    std::string text;
    read(key, text);
    const auto value = number<std::uint64_t>(text, 16);
    if (!value) fail(std::string("has a \"") + key + "\" that is no digest");
    return *value;
  }
  Fields child(const char* key) const { return {at(key), where_ + "." + key}; }
  [[noreturn]] void fail(const std::string& what) const { throw std::runtime_error(where_ + ' ' + what); }

 private:
  const json& object_;
  std::string where_;
};

LossScalerState read_scaler(const Fields& f) {
  LossScalerState s;
  f.read("scale", s.scale);
  f.read("iteration", s.iteration);
  f.read("last_overflow", s.last_overflow);
  f.read("hysteresis", s.hysteresis);
  f.read("growth_tracker", s.growth_tracker);
  f.read("stopped", s.stopped);
  return s;
}

SkipState read_skips(const Fields& f) {
  SkipState s;
  f.read("steps", s.steps);
  f.read("skipped", s.skipped);
  f.read("consecutive", s.consecutive);
  f.read("first_step", s.first_step);
  f.read("last_step", s.last_step);
  f.read("first_scale", s.first_scale);
  f.read("last_scale", s.last_scale);
  f.read("nonfinite_min", s.nonfinite_min);
  f.read("nonfinite_max", s.nonfinite_max);
  return s;
}

SamplerState read_sampler(const Fields& f) {
  SamplerState s;
  f.read("seed", s.seed);
  f.read("epoch", s.epoch);
  f.read("index", s.index);
  return s;
}

Fp8State read_fp8_tensor(const Fields& f) {
  Fp8State s;
  std::string history;
  f.read("scale", s.scale);
  f.read("amax_history", history);
  if (history.size() % 8 != 0) f.fail("has an \"amax_history\" that is no row of 32-bit numbers");
  for (std::size_t at = 0; at < history.size(); at += 8) {
    const auto bits = number<std::uint32_t>(std::string_view(history).substr(at, 8), 16);
    if (!bits) f.fail("has an \"amax_history\" that is no row of 32-bit numbers");
    s.amax_history.push_back(std::bit_cast<float>(*bits));
  }
  return s;
}

std::vector<Fp8State> read_fp8(const Fields& f, const ModelPlan& model) {
  if (!is_known(model))
    f.fail("is of a model of the family '" + model.family.substr(0, 40) + "', which is not known here");
  std::vector<Fp8State> states;
  for (const std::string& name : fp8_tensor_names(model)) states.push_back(read_fp8_tensor(f.child(name.c_str())));
  return states;
}

RunState read_state(const Fields& f) {
  RunState s;
  f.read("contract_version", s.contract_version);
  s.definition = f.digest("definition");
  f.read("step", s.step);
  f.read("data_position", s.data_position);
  if (f.has("sampler")) s.sampler = read_sampler(f.child("sampler"));
  f.read("training_seed", s.training_seed);
  f.read("optimizer_steps", s.optimizer_steps);
  s.scaler = read_scaler(f.child("scaler"));
  s.skips = read_skips(f.child("skips"));
  f.read("dropped_batches", s.dropped_batches);
  if (f.has("undone_changes")) f.read("undone_changes", s.undone_changes);
  f.read("epoch", s.epoch);
  return s;
}

ModelPlan read_model(const Fields& f) {
  ModelPlan m;
  f.read("family", m.family);
  f.read("layers", m.layers);
  f.read("width", m.width);
  f.read("heads", m.heads);
  f.read("context", m.context);
  f.read("vocab", m.vocab);
  f.read("tied", m.tied);
  f.read("logit_scale", m.logit_scale);
  f.read("kv_heads", m.kv_heads);
  f.read("ffn", m.ffn);
  f.read("frozen", m.frozen);
  f.read("rope_theta", m.rope_theta);
  f.read("norm_eps", m.norm_eps);
  if (f.has("experts")) {
    f.read("experts", m.experts.count);
    f.read("experts_per_token", m.experts.per_token);
  }
  if (f.has("shared_experts")) {
    f.read("gate_scale", m.experts.scale);
    f.read("sigmoid_gates", m.experts.sigmoid);
    f.read("shared_experts", m.experts.shared);
    f.read("dense_layers", m.experts.dense_layers);
    f.read("dense_ffn", m.experts.dense_ffn);
  }
  if (const std::string why = problem(m); !why.empty()) f.fail("cannot be: " + why);
  return m;
}

std::string seal_of(const json& manifest) {
  const std::string text = manifest.dump();
  return hex(XXH3_64bits(text.data(), text.size()));
}

}  // namespace

std::string_view name(StateKind kind) { return kKinds.of(kind); }

std::string text(const PieceName& name) {
  return fmt::format("{}/{}/{}", name.parameter, runtime::name(name.kind), name.first);
}

std::optional<PieceName> parse_piece_name(std::string_view text) {
  const std::size_t last = text.rfind('/');
  if (last == std::string_view::npos || last == 0) return std::nullopt;
  const std::size_t before = text.rfind('/', last - 1);
  if (before == std::string_view::npos || before == 0) return std::nullopt;
  const auto first = number<std::int64_t>(text.substr(last + 1));
  const std::string_view kind = text.substr(before + 1, last - before - 1);
  const StateKind known = kKinds.named(kind);
  if (!first || *first < 0 || known == StateKind::count_) return std::nullopt;
  return PieceName{std::string(text.substr(0, before)), known, *first};
}

StoredPiece piece_of(const TensorInfo& tensor) {
  const std::string shown = "'" + tensor.name.substr(0, 80) + "'";
  const auto fail = [&](const std::string& what) { throw std::runtime_error(shown + ' ' + what); };
  const auto name = parse_piece_name(tensor.name);
  if (!name || tensor.shape.size() != 1) fail("is no piece of a parameter");
  const bool floats = tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  if (!floats) fail(std::string("is ") + runtime::name(tensor.dtype) + "; F32, F16 or BF16 is expected");
  if (tensor.begin % size_of(tensor.dtype) != 0)
    fail("begins at byte " + std::to_string(tensor.begin) + " of the file, which is no multiple of the " +
         std::to_string(size_of(tensor.dtype)) + " bytes of an element");
  const auto end = sum(std::uint64_t(name->first), std::uint64_t(tensor.shape[0]));
  if (!end || *end > std::uint64_t(std::numeric_limits<std::int64_t>::max())) fail("ends beyond any parameter");
  return {*name, std::int64_t(*end)};
}

std::string step_folder(std::string_view path, std::int64_t step) {
  return fmt::format("{}/{}{:0{}}", path, kFolderPrefix, step, kFolderDigits);
}

std::optional<std::int64_t> step_of_folder(std::string_view name) {
  if (name.size() < kFolderPrefix.size() + kFolderDigits || !name.starts_with(kFolderPrefix)) return std::nullopt;
  const auto step = number<std::int64_t>(name.substr(kFolderPrefix.size()));
  return step && *step >= 0 ? step : std::nullopt;
}

std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string to_text(const Manifest& m) {
  json files = json::array();
  for (const CheckpointFile& file : m.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"digest", hex(file.digest)}});
  json manifest = {
      {"format", kFormat},
      {"version", kCheckpointVersion},
      {"state", state_json(m.state)},
      {"model", model_json(m.model)},
      {"world", {{"ranks", m.ranks}, {"zero_stage", m.zero_stage}, {"pipeline", m.pipeline}, {"tensor", m.tensor}}},
      {"files", files}};
  if (!m.state.fp8.empty()) manifest["fp8"] = fp8_json(m.state.fp8, m.model);
  if (m.expert != Manifest().expert) manifest["world"]["expert"] = m.expert;
  if (m.shard_group != Manifest().shard_group) manifest["world"]["shard_group"] = m.shard_group;
  if (m.moments != Manifest().moments) manifest["moments"] = m.moments;
  if (m.mean) manifest["mean"] = true;
  manifest["digest"] = seal_of(manifest);
  return manifest.dump(1) + '\n';
}

Manifest read_manifest(std::string_view text) {
  const json manifest = parse_bounded<json>(text, {"the manifest", kManifestBytesMax});
  const Fields fields(manifest, "the manifest");
  std::string format, seal;
  int version = 0;
  fields.read("format", format);
  if (format != kFormat) fields.fail("has the format '" + format.substr(0, 40) + "', not '" + kFormat + "'");
  fields.read("version", version);
  if (version != kCheckpointVersion)
    fields.fail(fmt::format("is of version {}; this program reads version {}", version, kCheckpointVersion));
  fields.read("digest", seal);
  json sealed = manifest;
  sealed.erase("digest");
  if (seal_of(sealed) != seal) fields.fail("does not have the digest that it says: it was changed or damaged");
  Manifest m;
  m.state = read_state(fields.child("state"));
  m.model = read_model(fields.child("model"));
  if (fields.has("fp8")) m.state.fp8 = read_fp8(fields.child("fp8"), m.model);
  const Fields world = fields.child("world");
  world.read("ranks", m.ranks);
  world.read("zero_stage", m.zero_stage);
  world.read("pipeline", m.pipeline);
  world.read("tensor", m.tensor);
  if (world.has("expert")) world.read("expert", m.expert);
  if (world.has("shard_group")) world.read("shard_group", m.shard_group);
  if (fields.has("moments")) fields.read("moments", m.moments);
  if (m.moments < 0 || m.moments > 2) fields.fail("has \"moments\" that are neither 0, 1 nor 2");
  if (fields.has("mean")) fields.read("mean", m.mean);
  if (!fields.at("files").is_array()) fields.fail("has \"files\" that are no list");
  for (const json& entry : fields.at("files")) {
    const Fields file(entry, "the manifest: a file");
    CheckpointFile& one = m.files.emplace_back();
    file.read("name", one.name);
    file.read("bytes", one.bytes);
    one.digest = file.digest("digest");
    if (one.name.empty() || one.name.find('/') != std::string::npos)
      file.fail("is named '" + one.name.substr(0, 40) + "'");
  }
  return m;
}

std::uint64_t digest_of_file(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace seeksim::runtime
