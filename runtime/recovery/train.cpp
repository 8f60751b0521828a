// What a run consists of, without a world: initial weights and batches, for those who want to check seeksim elsewhere.
// The entry train() stands in training_run.cpp.
#include "runtime/recovery/train.h"

#include "kernels/check.h"
#include "kernels/digest.h"
#include "runtime/layout/parameters.h"
#include "runtime/model/weights.h"
#include "runtime/samples/data.h"

namespace seeksim::runtime {

namespace {

std::vector<float> initial_values(const Definition& definition, const Parameters& parameters) {
  std::vector<float> flat(static_cast<std::size_t>(parameters.size()));
  if (!definition.initial_weights.empty()) {
    from_hugging_face(parameters, definition.model, read_safetensors(definition.initial_weights), flat);
  } else {
    for (const ParameterInfo& p : parameters.all()) {
      draw_parameter({}, definition.model, definition.training_seed, p.init, p.number,
                     {flat.data() + p.offset, p.size});
    }
  }
  return flat;
}

}  // namespace

std::vector<NamedTensor> initial_weights(const Definition& definition) {
  const Parameters parameters(definition.model, definition.optimizer.decay_all);
  return to_hugging_face(parameters, definition.model, initial_values(definition, parameters));
}

std::vector<std::pair<std::string, std::uint64_t>> initial_digests(const Definition& definition) {
  const Parameters parameters(definition.model, definition.optimizer.decay_all);
  const std::vector<float> flat = initial_values(definition, parameters);
  std::vector<std::pair<std::string, std::uint64_t>> digests;
  for (const ParameterInfo& p : parameters.all())
    digests.emplace_back(p.name, kernels::digest<float>({flat.data() + p.offset, p.size}));
  return digests;
}

std::vector<std::int32_t> step_tokens(const Definition& definition, std::int64_t step) {
  SEEKSIM_CHECK(step >= 0, "step %lld", static_cast<long long>(step));
  const DataSource data = data_source(definition);
  const std::size_t row = static_cast<std::size_t>(data.context) + 1;
  std::vector<std::int32_t> tokens(row * static_cast<std::size_t>(definition.global_batch));
  for (int i = 0; i < definition.global_batch; ++i) {
    data.sample(step * definition.global_batch + i, tokens.data() + row * static_cast<std::size_t>(i));
  }
  return tokens;
}

}  // namespace seeksim::runtime
