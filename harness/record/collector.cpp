#include "harness/record/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernels/digest.h"

#include "harness/record/same_bits.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kDisagreementsKept = 8;
constexpr std::size_t kBirthsKept = 256;
constexpr std::size_t kRerunsKept = 256;

bool same_numbers(const runtime::StepRecord& a, const runtime::StepRecord& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.grad_norm, b.grad_norm) && a.lr == b.lr &&
         a.loss_scale == b.loss_scale && a.skipped == b.skipped;
}

}  // namespace

Collector::Collector(int ranks, std::int64_t gradients_of, bool digest_gradients, OnGradients on_gradients)
    : commits_(std::size_t(ranks)),
      gradients_of_(gradients_of),
      digest_gradients_(digest_gradients),
      on_gradients_(std::move(on_gradients)) {
  record_.ranks.resize(std::size_t(ranks));
}

void Collector::add_missing(std::size_t steps) {
  while (record_.steps.size() < steps) {
    runtime::StepRecord missing;
    missing.step = std::int64_t(record_.steps.size());
    missing.loss = missing.grad_norm = std::bit_cast<float>(0x7fc00000u);
    record_.steps.push_back(missing);
  }
}

void Collector::step_committed(int rank, const runtime::StepRecord& record) {
  also_committed(rank, record);
  if (log_ != nullptr) log_->committed(rank, record);
}

void Collector::also_committed(int rank, const runtime::StepRecord& record) {
  commits_.committed(rank, record);
  record_.ranks[std::size_t(rank)].steps_committed = record.step + 1;
  attempt_begins_ = false;
  const auto step = std::size_t(record.step);
  if (step >= record_.steps.size()) {
    // A gap would mean a step that no rank committed: it shows as a missing number, not as a shifted list.
    add_missing(step);
    record_.steps.push_back(record);
    record_.detection.ledger.committed(record.committed_ns);
    return;
  }
  ++record_.training.step_comparisons;
  const runtime::StepRecord& first = record_.steps[step];
  if (same_numbers(first, record) || record_.training.disagreements.size() >= kDisagreementsKept) return;
  record_.training.disagreements.push_back({record.step, rank, record, first});
}

void Collector::begin_attempt(TimeNs now) {
  record_.training.attempts.push_back({now, -1, "", 0, 0});
  attempt_begins_ = true;
  if (record_.training.attempts.size() == 1) return;
  epochs_before_ = epochs_seen_ + 1;
  commits_.begin_again();
  replicas_.clear();
  record_.detection.dumps.clear();
  for (RankRecord& rank : record_.ranks) rank = {};
}

// Steps that are undone never were, but for the time that they took: history is one line.
void Collector::rolled_back(int rank, std::int64_t steps) {
  record_.ranks[std::size_t(rank)].steps_committed = steps;
  commits_.goes_on_at(rank, steps);
  if (log_ != nullptr) log_->rolled_back(steps);
  std::erase_if(record_.training.evaluations, [steps](const auto& one) { return one.steps > steps; });
  const auto kept = std::size_t(steps);
  if (!record_.training.attempts.empty() && attempt_begins_) record_.training.attempts.back().first_step = steps;
  if (kept > record_.steps.size()) {  // of an earlier run of the program
    record_.training.resumed_from = steps;
    add_missing(kept);
    return;
  }
  replicas_.clear();
  if (kept == record_.steps.size()) return;
  const std::int64_t undone = std::int64_t(record_.steps.size() - kept);
  record_.training.undone_steps += undone;
  if (record_.training.attempts.size() > 1 && attempt_begins_) record_.training.attempts.back().steps_lost = undone;
  record_.steps.resize(kept);
  if (record_.training.gradient_digests.size() > kept) record_.training.gradient_digests.resize(kept);
  if (record_.numbers.stagnation.size() > kept) record_.numbers.stagnation.resize(kept);
  record_.training.choices.keep(kept);
}

void Collector::checkpoint(int, const runtime::CheckpointRecord& told) {
  const auto same = [&](const Checkpoint& c) { return c.step == told.step && c.ended_ns >= told.began_ns; };
  auto at = std::find_if(record_.training.checkpoints.rbegin(), record_.training.checkpoints.rend(), same);
  if (at == record_.training.checkpoints.rend()) {
    record_.training.checkpoints.push_back({told.step, false, "", told.began_ns, 0, told.ended_ns, 0});
    at = record_.training.checkpoints.rbegin();
  }
  at->complete = at->complete || told.complete;
  if (at->why.empty()) at->why = told.why;
  at->began_ns = std::min(at->began_ns, told.began_ns);
  at->ended_ns = std::max(at->ended_ns, told.ended_ns);
  at->blocked_ns = std::max(at->blocked_ns, told.snapshot_ns - told.began_ns);
  at->bytes += told.bytes;
}

void Collector::shards(int rank, const runtime::ShardRecord& record) {
  record_.agreement.shards.push_back({rank, record});
  record_.agreement.shards.back().told.epoch += epochs_before_;
  epochs_seen_ = std::max(epochs_seen_, record_.agreement.shards.back().told.epoch);
}

void Collector::merge(int rank, const runtime::RecoveryRecord& given, bool over) {
  runtime::RecoveryRecord told = given;
  told.epoch += epochs_before_;
  epochs_seen_ = std::max(epochs_seen_, told.epoch + 1);
  if (!over) commits_.recovering(rank, told.epoch, told.step);
  auto at = std::find_if(record_.detection.recoveries.begin(), record_.detection.recoveries.end(),
                         [&](const Recovery& r) { return r.epoch >= told.epoch; });
  if (at == record_.detection.recoveries.end() || at->epoch != told.epoch) {
    at = record_.detection.recoveries.insert(at, Recovery{});
    at->epoch = told.epoch;
    at->step = told.step;
    at->diagnosis = told.diagnosis;
    record_.detection.ledger.noticed(told.detected_ns);
  }
  Recovery& all = *at;
  if (!over && !all.analysis) analyse(told, all);
  const bool same = all.diagnosis.culprits == told.diagnosis.culprits && all.diagnosis.links == told.diagnosis.links &&
                    all.diagnosis.verdict == told.diagnosis.verdict;
  if (!same && std::find(all.of_another_mind.begin(), all.of_another_mind.end(), rank) == all.of_another_mind.end()) {
    all.of_another_mind.push_back(rank);
  }
  if (all.detected_ns < 0 || told.detected_ns < all.detected_ns) {
    all.detected_ns = told.detected_ns;
    all.first_rank = rank;
    all.error = told.error;
    all.op = told.op;
  }
  if (told.error == runtime::ErrorKind::out_of_memory && all.out_of_memory < 0) {
    all.out_of_memory = rank;
    all.memory = told.detail;
  }
  all.layout = told.layout;
  all.evicted = told.evicted;
  all.survivors = told.survivors;
  all.agreed_ns = std::max(all.agreed_ns, told.agreed_ns);
  if (!over) return;
  all.rebuilt_ns = std::max(all.rebuilt_ns, told.rebuilt_ns);
  all.resumed_ns = std::max(all.resumed_ns, told.resumed_ns);
  all.steps_lost = std::max(all.steps_lost, told.steps_lost);
}

void Collector::nonfinite_born(int rank, std::int64_t step, const runtime::NonFiniteBirth& birth) {
  if (record_.numbers.births.size() < kBirthsKept) record_.numbers.births.push_back({rank, step, birth});
}

void Collector::ranges(int rank, std::int64_t step, std::vector<runtime::RangeLogEntry> log, std::uint64_t left_out) {
  record_.numbers.ranges.push_back({rank, step, std::move(log), left_out});
}

void Collector::rerun(int rank, const runtime::RerunRecord& told) {
  record_.numbers.rerun_micro_batches += told.micro_batches;
  record_.numbers.rerun_ranges += told.ranges;
  const bool telling = told.differs || told.nonfinite;
  if (telling && record_.numbers.reruns.size() < kRerunsKept) record_.numbers.reruns.push_back({rank, told});
}

void Collector::evaluated(int rank, const runtime::EvaluationRecord& told) {
  std::vector<runtime::EvaluationRecord>& all = record_.training.evaluations;
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.steps >= told.steps; });
  if (at == all.end() || at->steps != told.steps) {
    all.insert(at, told);
    return;
  }
  std::string& disagree = record_.training.evaluations_disagree;
  if (!same_bits(at->loss, told.loss) && disagree.empty())
    disagree = fmt::format("after {} steps rank {} has a held-out loss of {}, and another has {}", told.steps, rank,
                           told.loss, at->loss);
}

// A step that is made again, also after going back, is another world's: the samples of the last one count.
void Collector::samples(int rank, const runtime::SamplesRecord& told) {
  std::vector<UsedSamples>& all = record_.training.samples;
  if (all.size() <= std::size_t(told.step)) all.resize(std::size_t(told.step) + 1);
  UsedSamples& used = all[std::size_t(told.step)];
  const std::uint32_t epoch = told.epoch + epochs_before_;
  epochs_seen_ = std::max(epochs_seen_, epoch);
  if (used.epoch > epoch) return;
  if (used.epoch < epoch) used = {epoch, {}};
  const std::size_t first = std::size_t(told.first), end = first + told.rows.size();
  if (used.rows.size() < end) used.rows.resize(end, -1);
  for (std::size_t i = first; i < end; ++i) {
    std::int64_t& row = used.rows[i];
    std::string& disagree = record_.training.samples_disagree;
    if (row >= 0 && row != told.rows[i - first] && disagree.empty())
      disagree = fmt::format("step {}: rank {} takes sample {} for place {} of the batch, and another rank sample {}",
                             told.step, rank, told.rows[i - first], i, row);
    row = told.rows[i - first];
  }
}

void Collector::compressed(int rank, const runtime::CompressionRecord& told) {
  RunRecord::Numbers::Compressed& all = record_.numbers.compressed;
  if (told.unconserved > 0 && all.unconserved == 0) all.rank = rank, all.step = told.step;
  all.elements += told.elements;
  all.unconserved += told.unconserved;
  all.bytes += told.bytes;
}

void Collector::late(int, const runtime::LateRecord& told) { record_.agreement.late.push_back(told); }

void Collector::choices(int, const runtime::ChoicesRecord& told) { record_.training.choices.add(told, epochs_before_); }

// After an outer step every worker has its weights; before the next one none has, once it has moved.
void Collector::workers(int rank, const runtime::WorkersRecord& told) {
  RunRecord::Agreement::Workers& all = record_.agreement.workers;
  for (std::size_t i = 0; i < told.workers.size(); ++i) {
    const bool equal = told.workers[i] == told.outer;
    if (told.met) ++all.meetings;
    if (!told.met && told.moved) ++all.apart;
    if (equal == told.met || !(told.met || told.moved) || !all.wrong.empty()) continue;
    all.wrong = fmt::format(
        "step {}: worker {}, on rank {}, {}", told.step, told.first + std::int64_t(i), rank,
        told.met ? "goes on from other weights than the outer step made" : "has the outer weights after an inner step");
  }
}

void Collector::stagnation(int, std::int64_t step, const kernels::Stagnation& counts) {
  if (record_.numbers.stagnation.size() <= std::size_t(step)) record_.numbers.stagnation.resize(std::size_t(step) + 1);
  kernels::Stagnation& sum = record_.numbers.stagnation[std::size_t(step)];
  sum.changes += counts.changes;
  sum.lost += counts.lost;
}

void Collector::looked_for_poison(int, runtime::Index values, const std::string& found, bool at_source) {
  record_.numbers.poison_looks += std::uint64_t(values);
  if (found.empty()) return;
  const auto end = at_source ? record_.numbers.poison.begin() + poison_sources_++ : record_.numbers.poison.end();
  record_.numbers.poison.insert(end, found);
}

void Collector::recovering(int rank, const runtime::RecoveryRecord& so_far) { merge(rank, so_far, false); }
void Collector::recovered(int rank, const runtime::RecoveryRecord& record) { merge(rank, record, true); }

// Members enter an epoch one after another; the next one begins when all have.
void Collector::joined(int, const runtime::JoinRecord& told) {
  const std::uint32_t epoch = told.epoch + epochs_before_;
  if (!record_.detection.joins.empty() && record_.detection.joins.back().epoch >= epoch) return;
  record_.detection.joins.push_back(told);
  record_.detection.joins.back().epoch = epoch;
  for (const int rank : told.ranks) commits_.goes_on_at(rank, told.step);
}

bool Collector::wants_gradients(int, std::int64_t step) {
  return (on_gradients_ && looks_at(step)) || digest_gradients_ || step == gradients_of_;
}

void Collector::digest(int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
  std::uint64_t all = 0;
  for (const runtime::NamedTensor& tensor : gradients) {
    all = kernels::combine(all, kernels::digest({tensor.values.data(), runtime::Index(tensor.values.size())}));
  }
  std::vector<std::uint64_t>& digests = record_.training.gradient_digests;
  if (std::size_t(step) >= digests.size()) {
    digests.resize(std::size_t(step) + 1);
    digests.back() = all;
  } else if (digests[std::size_t(step)] != all && record_.training.gradients_disagree.empty()) {
    record_.training.gradients_disagree = "step " + std::to_string(step) + ": rank " + std::to_string(rank);
  }
}

void Collector::gradients(int rank, std::int64_t step, std::vector<runtime::NamedTensor> gradients) {
  if (on_gradients_ && looks_at(step)) on_gradients_(rank, step, gradients);
  if (digest_gradients_ && !gradients.empty()) digest(rank, step, gradients);
  if (step == gradients_of_ && !gradients.empty()) record_.training.gradients = std::move(gradients);
}

// ---- flight recorders, scores --------------------------------------------------------------------------------------

runtime::FlightDump dump_of(int rank, std::uint32_t epoch, const runtime::Recorder& recorder, std::size_t records) {
  runtime::FlightDump dump;
  dump.rank = rank;
  dump.epoch = epoch;
  dump.comms = recorder.communicators();
  dump.records = recorder.records(records);
  return dump;
}

void Collector::failed(int rank, std::uint32_t epoch, const runtime::Recorder& recorder,
                       const runtime::Ballot& ballot) {
  if (on_end_) on_end_(rank, -1);
  // A rank that comes after the others have agreed has no voice, and the others' records were analysed already.
  for (const Recovery& recovery : record_.detection.recoveries) {
    if (recovery.epoch == epoch + epochs_before_ && recovery.analysis) return;
  }
  std::vector<runtime::FlightDump>& dumps = record_.detection.dumps;
  std::erase_if(dumps, [&](const runtime::FlightDump& dump) { return dump.epoch != epoch || dump.rank == rank; });
  dumps.push_back(dump_of(rank, epoch, recorder, records_));
  dumps.back().ballot = ballot;
}

// All ranks that answered have dumped by now. The launcher dumps for the others, where it can reach them.
void Collector::analyse(const runtime::RecoveryRecord& told, Recovery& recovery) {
  std::vector<runtime::FlightDump>& dumps = record_.detection.dumps;
  const std::uint32_t epoch = told.epoch - epochs_before_;
  std::erase_if(dumps, [&](const runtime::FlightDump& dump) { return dump.epoch != epoch; });
  for (const int rank : told.dead) {
    auto dump = std::find_if(dumps.begin(), dumps.end(), [rank](const auto& one) { return one.rank == rank; });
    const runtime::Recorder* recorder = recorder_of_ ? recorder_of_(rank) : nullptr;
    if (dump == dumps.end()) {
      dumps.push_back(recorder != nullptr ? dump_of(rank, epoch, *recorder, records_) : runtime::FlightDump{});
      dump = dumps.end() - 1;
      dump->rank = rank;
      dump->epoch = epoch;
    }
    dump->ballot.reset();
    dump->gone = recorder == nullptr;
    dump->silent = std::find(told.silent.begin(), told.silent.end(), rank) != told.silent.end();
  }
  std::sort(dumps.begin(), dumps.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  recovery.analysis = runtime::analyse(dumps, &told.diagnosis);
}

void Collector::scores(std::int64_t step, const std::vector<int>& ranks, const std::vector<double>& scores) {
  if (log_ != nullptr) log_->scores(step, ranks, scores);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ScoreRecord& score = record_.detection.scores[ranks[i]];
    ++score.steps;
    score.sum += scores[i];
    score.least = std::min(score.least, scores[i]);
  }
}

void Collector::straggler(int, const runtime::StragglerRecord& found) {
  for (const runtime::StragglerRecord& known : record_.detection.stragglers) {
    if (known.rank == found.rank && known.step == found.step) return;
  }
  record_.detection.stragglers.push_back(found);
}

void Collector::diverged(int, const runtime::DivergenceRecord& found) {
  if (!record_.detection.divergences.empty() && record_.detection.divergences.back().step == found.step) return;
  record_.detection.divergences.push_back(found);
}

// ---- replicas ------------------------------------------------------------------------------------------------------

void Collector::differs(std::int64_t step, int rank, int other, std::string what) {
  if (record_.agreement.replica_differences.size() < kDisagreementsKept)
    record_.agreement.replica_differences.push_back({step, rank, other, std::move(what)});
}

// In the order of causes: a rate that differs comes before the parameters that it spoils.
void Collector::compare(int rank, const runtime::ReplicaRecord& told, StepReplicas& step) {
  ++record_.agreement.replica_comparisons;
  const runtime::ReplicaRecord& first = step.first;
  const auto is = [&](const char* what, auto mine, auto theirs) {
    if (mine != theirs) differs(told.step, rank, step.first_rank, fmt::format("{}: {} and {}", what, mine, theirs));
    return mine == theirs;
  };
  if (!is("the random seed", told.training_seed, first.training_seed) ||
      !is("the data position", told.data_position, first.data_position) ||
      !is("the optimizer's step count", told.optimizer_steps, first.optimizer_steps) ||
      !is("the learning rate", told.lr, first.lr) || !is("the loss scale", told.loss_scale, first.loss_scale) ||
      !is("the number of parameters that all hold", told.parameters.size(), first.parameters.size())) {
    return;
  }
  for (std::size_t i = 0; i < told.parameters.size(); ++i) {
    if (told.parameters[i].second == first.parameters[i].second) continue;
    differs(told.step, rank, step.first_rank, fmt::format("their parameter {}", told.parameters[i].first));
    return;
  }
}

// Ways of one stage: what is not split is the same on all.
void Collector::compare_ways(int rank, const runtime::ReplicaRecord& told) {
  StepReplicas& ways = replicas_[told.step][-1 - told.part / told.ways];
  runtime::ReplicaRecord whole = told;
  whole.parameters = told.on_all_ways;
  if (ways.first_rank >= 0) return compare(rank, whole, ways);
  ways.first_rank = rank;
  ways.first = std::move(whole);
}

// An owner and the keepers of its copies report at different times; the later one is compared with the first.
void Collector::compare_copy(std::int64_t step, StepReplicas& replicas, const StepReplicas::Key& key, int keeper) {
  const auto owner = replicas.owners.find(key);
  if (owner == replicas.owners.end()) return;
  const runtime::ReplicaRecord::OfShard& copy = replicas.copies[key][keeper];
  ++record_.agreement.replica_comparisons;
  for (std::size_t i = 0; i < owner->second.size(); ++i) {
    if (owner->second[i] == copy[i]) continue;
    differs(step, keeper, key.second,
            fmt::format("{} of the copy and of the shard", runtime::ReplicaRecord::kOfShard[i]));
    return;
  }
}

// Owners of the same shard in several groups.
void Collector::compare_shard(int rank, const runtime::ReplicaRecord& told, StepReplicas& step) {
  const auto [first, is_first] = step.shards.try_emplace({told.epoch, told.shard}, rank, *told.own);
  if (is_first) return;
  ++record_.agreement.replica_comparisons;
  const auto& [other, theirs] = first->second;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    if ((*told.own)[i] == theirs[i]) continue;
    differs(told.step, rank, other,
            fmt::format("{} of shard {}, which both own", runtime::ReplicaRecord::kOfShard[i], told.shard));
    return;
  }
}

void Collector::replica(int rank, const runtime::ReplicaRecord& told) {
  StepReplicas& step = replicas_[told.step][told.part];
  if (step.first_rank < 0) {
    step.first_rank = rank;
    step.first = told;
  } else {
    compare(rank, told, step);
  }
  if (told.ways > 1) compare_ways(rank, told);
  if (told.own && told.shard >= 0) compare_shard(rank, told, step);
  if (told.own) {
    step.owners[{told.epoch, rank}] = *told.own;
    for (const auto& [keeper, copy] : step.copies[{told.epoch, rank}])
      compare_copy(told.step, step, {told.epoch, rank}, keeper);
  }
  for (const auto& [owner, copy] : told.copies) {
    step.copies[{told.epoch, owner}][rank] = copy;
    compare_copy(told.step, step, {told.epoch, owner}, rank);
  }
  // A step ends for all before the one after the next begins for anybody.
  while (replicas_.begin()->first + 2 < replicas_.rbegin()->first) replicas_.erase(replicas_.begin());
}

}  // namespace seeksim::harness
