#include "runtime/trainer/final_state.h"

#include "kernels/digest.h"
#include "runtime/model/weights.h"

namespace seeksim::runtime {

// Where the run stands.
StateDigest FinalState::standing() const {
  StateDigest state;
  state.data_position = bench_.progress.data_position();
  state.loss_scale = bench_.progress.scaler().scale();
  return state;
}

StateDigest FinalState::gather() {
  StateDigest state = standing();
  state.optimizer_steps = tensors_.optimizer().steps();
  const ShardKeeper* const keeper = tensors_.keeper();
  const Optimizer& optimizer = tensors_.optimizer();
  const AnyVec weights = keeper != nullptr ? keeper->own().weights() : tensors_.flat_weights();
  const AnyVec frozen = keeper != nullptr ? keeper->own().frozen : tensors_.flat_parameters();
  const bool hands_out = bench_.has_values() && world_.is_lowest_rank();
  const bool hands_out_mean = hands_out && bench_.definition().optimizer.saves_mean;
  if (hands_out) final_weights_.resize(std::size_t(tensors_.whole().size()));
  const std::vector<AnyVec> states = optimizer.states();
  std::vector<std::vector<std::uint64_t>> digests(states.size());  // of what the optimizer keeps, tensor by tensor
  for (std::size_t kind = 0; kind < states.size(); ++kind) {
    const bool is_mean = optimizer.has_mean() && kind + 1 == states.size();
    const char* const name = is_mean ? "mean of weights" : kind == 0 ? "first moments" : "second moments";
    whole_.for_each(states[kind], nullptr, name, [&](const ParameterInfo& p, AnyVec values) {
      digests[kind].push_back(digest_of(values));
      if (is_mean && hands_out_mean) widen_to(values, final_weights_.data() + p.offset);
    });
  }
  std::size_t trained = 0;
  whole_.for_each(weights, &frozen, "parameters", [&](const ParameterInfo& p, AnyVec values) {
    if (!bench_.has_values()) return;
    if (hands_out && (p.frozen || !hands_out_mean)) widen_to(values, final_weights_.data() + p.offset);
    const std::uint64_t digest = digest_of(values);
    state.by_tensor.emplace_back(p.name, digest);
    state.params = kernels::combine(state.params, digest);
    if (p.frozen) return;
    for (const std::vector<std::uint64_t>& of_kind : digests)
      state.optimizer = kernels::combine(state.optimizer, of_kind[trained]);
    ++trained;
  });
  return state;
}

StateDigest FinalState::state(bool published) const {
  if (concluded_) return *concluded_;
  StateDigest state = standing();
  const bool flat = tensors_.keeper() == nullptr;
  if (!flat || bench_.alone()) state.optimizer_steps = tensors_.optimizer_steps();
  if (!bench_.alone() || !bench_.has_values()) return state;
  if (flat) {
    if (tensors_.has_flat_optimizer()) add_flat_state(state);
    return state;
  }
  // Shards are with other ranks now. Parameters that every rank holds can still be reported.
  if (!tensors_.flat_weights_here() || !(published || bench_.progress.step() == 0)) return state;
  for (const auto& [name, digest] : records_.replicated_digests()) {
    state.by_tensor.emplace_back(name, digest);
    state.params = kernels::combine(state.params, digest);
  }
  return state;
}

void FinalState::add_flat_state(StateDigest& state) const {
  const Optimizer& optimizer = tensors_.optimizer();
  const auto digest = [this](AnyVec values) { return digest_of(bench_.host_reads(SEEKSIM_SITE, values)); };
  for (const ParameterInfo& p : tensors_.parameters().all()) {
    const std::uint64_t of_weights = digest(tensors_.defining(p));
    state.by_tensor.emplace_back(p.name, of_weights);
    state.params = kernels::combine(state.params, of_weights);
    if (p.frozen || tensors_.outer() != nullptr) continue;
    for (const AnyVec& moments : optimizer.states())
      state.optimizer = kernels::combine(state.optimizer, digest(moments.part(p.offset, p.size)));
  }
  if (tensors_.outer() == nullptr) return;
  if (const VecView<float> momentum = tensors_.outer()->momentum(); momentum.n > 0)
    state.optimizer = kernels::combine(state.optimizer, digest(AnyVec(momentum)));
  for (const std::int64_t worker : of_workers_)
    state.optimizer = kernels::combine(state.optimizer, std::uint64_t(worker));
}

void FinalState::tell(Vote about, Ballot& own) {
  if (tensors_.outer() == nullptr || about != Vote::end) return;
  const Index n = tensors_.parameters().trainable_size();
  tensors_.for_each_worker([&](Index) {
    std::vector<AnyVec> held = tensors_.optimizer().states();
    held.push_back(tensors_.flat_weights().part(0, n));
    std::uint64_t all = 0;
    for (const AnyVec& values : held) all = kernels::combine(all, digest_of(bench_.host_reads(SEEKSIM_SITE, values)));
    own.told.push_back(std::int64_t(all));
  });
}

void FinalState::hear(Vote about, const Agreement& agreement, bool) {
  if (tensors_.outer() == nullptr || about != Vote::end) return;
  of_workers_.clear();
  for (const Ballot& ballot : agreement.ballots)
    of_workers_.insert(of_workers_.end(), ballot.told.begin(), ballot.told.end());
}

std::vector<NamedTensor> FinalState::weights() const {
  const ModelPlan& model = bench_.definition().model;
  if (concluded_ && tensors_.outer() == nullptr) return to_hugging_face(tensors_.whole(), model, final_weights_);
  const Parameters& parameters = tensors_.parameters();
  std::vector<float> values(std::size_t(parameters.size()));
  const bool mean = bench_.definition().optimizer.saves_mean;
  for (const ParameterInfo& p : parameters.all()) {
    const AnyVec held =
        mean && !p.frozen ? AnyVec(tensors_.optimizer().mean().part(p.offset, p.size)) : tensors_.defining(p);
    widen_to(bench_.host_reads(SEEKSIM_SITE, held), values.data() + p.offset);
  }
  return to_hugging_face(parameters, model, values);
}

}  // namespace seeksim::runtime
