#include "harness/processes/told.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/digest.h"

namespace seeksim::harness {

using runtime::from_bytes;

enum class NoteTaker::Kind : std::uint8_t {
  step,
  poison,
  recovering,
  recovered,
  rolled_back,
  checkpoint,
  layout,
  gradients,
  rerun,
  compressed,
  late,
  choices,
  workers,
  evaluated,
  samples,
  stagnation,
  replica,
  shards,
  pipeline,
  scores,
  straggler,
  diverged,
  count_
};

template <class... T>
void NoteTaker::note(Kind kind, const T&... what) {
  notes_.push_back({steps_, runtime::to_bytes(kind, what...)});
}

void NoteTaker::step_committed(int, const runtime::StepRecord& record) {
  note(Kind::step, record);
  ++steps_;
}
void NoteTaker::rolled_back(int, std::int64_t steps) {
  note(Kind::rolled_back, steps);
  ++steps_;
}
void NoteTaker::looked_for_poison(int, runtime::Index values, const std::string& found, bool at_source) {
  note(Kind::poison, values, found, at_source);
}
void NoteTaker::recovering(int, const runtime::RecoveryRecord& r) { note(Kind::recovering, r); }
void NoteTaker::recovered(int, const runtime::RecoveryRecord& r) { note(Kind::recovered, r); }
void NoteTaker::checkpoint(int, const runtime::CheckpointRecord& told) { note(Kind::checkpoint, told); }
void NoteTaker::layout(int, const runtime::Layout& layout) { note(Kind::layout, layout); }
void NoteTaker::rerun(int, const runtime::RerunRecord& told) { note(Kind::rerun, told); }
void NoteTaker::evaluated(int, const runtime::EvaluationRecord& told) { note(Kind::evaluated, told); }
void NoteTaker::compressed(int, const runtime::CompressionRecord& told) { note(Kind::compressed, told); }
void NoteTaker::late(int, const runtime::LateRecord& told) { note(Kind::late, told); }
void NoteTaker::choices(int, const runtime::ChoicesRecord& told) { note(Kind::choices, told); }
void NoteTaker::workers(int, const runtime::WorkersRecord& told) { note(Kind::workers, told); }
void NoteTaker::samples(int, const runtime::SamplesRecord& told) { note(Kind::samples, told); }
void NoteTaker::replica(int, const runtime::ReplicaRecord& record) { note(Kind::replica, record); }
void NoteTaker::shards(int, const runtime::ShardRecord& record) { note(Kind::shards, record); }
void NoteTaker::pipeline(int, const runtime::PipelineRecord& record) { note(Kind::pipeline, record); }
void NoteTaker::straggler(int, const runtime::StragglerRecord& found) { note(Kind::straggler, found); }
void NoteTaker::diverged(int, const runtime::DivergenceRecord& found) { note(Kind::diverged, found); }
void NoteTaker::stagnation(int, std::int64_t step, const kernels::Stagnation& counts) {
  note(Kind::stagnation, step, counts);
}
void NoteTaker::scores(std::int64_t step, const std::vector<int>& ranks, const std::vector<double>& scores) {
  note(Kind::scores, step, ranks, scores);
}

bool NoteTaker::wants_gradients(int, std::int64_t step) { return digest_gradients_ || step == gradients_of_; }

void NoteTaker::gradients(int, std::int64_t step, std::vector<runtime::NamedTensor> gradients) {
  note(Kind::gradients, step, gradients);
}

// ---- the replay ----------------------------------------------------------------------------------------------------

namespace {
template <class T>
T read(std::span<const std::byte> body) {
  T value{};
  from_bytes(body, value);
  return value;
}

// A rank's numbers are used as places in lists, so its steps and ranks have to be those of the run.
std::int64_t steps_within(const NoteTaker::Bounds& bounds, std::int64_t steps) {
  if (steps < 0 || steps > bounds.steps) throw runtime::Malformed("a step that the run does not have");
  return steps;
}
void expect_step(const NoteTaker::Bounds& bounds, std::int64_t step) { steps_within(bounds, step); }
void expect_ranks(const NoteTaker::Bounds& bounds, std::span<const int> ranks) {
  for (const int rank : ranks) {
    if (rank < 0 || rank >= bounds.ranks) throw runtime::Malformed("a rank that the run does not have");
  }
}

runtime::StepRecord within(const NoteTaker::Bounds& bounds, runtime::StepRecord told) {
  expect_step(bounds, told.step);
  return told;
}
runtime::CompressionRecord within(const NoteTaker::Bounds& bounds, runtime::CompressionRecord told) {
  expect_step(bounds, told.step);
  return told;
}
runtime::LateRecord within(const NoteTaker::Bounds& bounds, runtime::LateRecord told) {
  expect_step(bounds, told.step);
  return told;
}
runtime::ChoicesRecord within(const NoteTaker::Bounds& bounds, runtime::ChoicesRecord told) {
  expect_step(bounds, told.step);
  const std::size_t layers = told.layers.size();
  if (layers == 0 || told.counts.size() % layers != 0 || told.counts.size() / layers % 2 != 0)
    throw runtime::Malformed("choices that are of no layers");
  return told;
}
runtime::WorkersRecord within(const NoteTaker::Bounds& bounds, runtime::WorkersRecord told) {
  expect_step(bounds, told.step);
  return told;
}
runtime::EvaluationRecord within(const NoteTaker::Bounds& bounds, runtime::EvaluationRecord told) {
  expect_step(bounds, told.steps);
  return told;
}
runtime::SamplesRecord within(const NoteTaker::Bounds& bounds, runtime::SamplesRecord told) {
  expect_step(bounds, told.step);
  if (told.first < 0 || told.first > bounds.batch || runtime::Index(told.rows.size()) > bounds.batch - told.first)
    throw runtime::Malformed("a place that no batch has");
  return told;
}
runtime::ReplicaRecord within(const NoteTaker::Bounds& bounds, runtime::ReplicaRecord told) {
  expect_step(bounds, told.step);
  return told;
}
runtime::StragglerRecord within(const NoteTaker::Bounds& bounds, runtime::StragglerRecord told) {
  expect_ranks(bounds, {&told.rank, 1});
  return told;
}
runtime::ShardRecord within(const NoteTaker::Bounds& bounds, runtime::ShardRecord told) {
  const auto is_member = [&](int position) { return position >= 0 && position < told.members; };
  const bool copied =
      std::all_of(told.copies.begin(), told.copies.end(), [&](const auto& copy) { return is_member(copy.first); });
  if (told.members > bounds.ranks || !is_member(told.position) || !copied)
    throw runtime::Malformed("a shard that no rank has");
  return told;
}
runtime::RecoveryRecord within(const NoteTaker::Bounds& bounds, runtime::RecoveryRecord told) {
  expect_step(bounds, told.step);
  for (const std::vector<int>* ranks : {&told.dead, &told.silent, &told.evicted, &told.survivors})
    expect_ranks(bounds, *ranks);
  return told;
}
}  // namespace

void NoteTaker::tell(int rank, std::span<const std::byte> body, const Bounds& bounds, Collector& to) {
  Kind kind = Kind::count_;
  from_bytes(body.first(sizeof kind), kind);
  body = body.subspan(sizeof kind);
  switch (kind) {
    case Kind::step:
      return to.step_committed(rank, within(bounds, read<runtime::StepRecord>(body)));
    case Kind::poison: {
      runtime::Index values = 0;
      std::string found;
      bool at_source = false;
      from_bytes(body, values, found, at_source);
      return to.looked_for_poison(rank, values, found, at_source);
    }
    case Kind::recovering:
      return to.recovering(rank, within(bounds, read<runtime::RecoveryRecord>(body)));
    case Kind::recovered:
      return to.recovered(rank, within(bounds, read<runtime::RecoveryRecord>(body)));
    case Kind::rolled_back:
      return to.rolled_back(rank, steps_within(bounds, read<std::int64_t>(body)));
    case Kind::checkpoint:
      return to.checkpoint(rank, read<runtime::CheckpointRecord>(body));
    case Kind::layout:
      return to.layout(rank, read<runtime::Layout>(body));
    case Kind::gradients: {
      std::int64_t step = 0;
      std::vector<runtime::NamedTensor> gradients;
      from_bytes(body, step, gradients);
      expect_step(bounds, step);
      return to.gradients(rank, step, std::move(gradients));
    }
    case Kind::rerun:
      return to.rerun(rank, read<runtime::RerunRecord>(body));
    case Kind::compressed:
      return to.compressed(rank, within(bounds, read<runtime::CompressionRecord>(body)));
    case Kind::late:
      return to.late(rank, within(bounds, read<runtime::LateRecord>(body)));
    case Kind::choices:
      return to.choices(rank, within(bounds, read<runtime::ChoicesRecord>(body)));
    case Kind::workers:
      return to.workers(rank, within(bounds, read<runtime::WorkersRecord>(body)));
    case Kind::evaluated:
      return to.evaluated(rank, within(bounds, read<runtime::EvaluationRecord>(body)));
    case Kind::samples:
      return to.samples(rank, within(bounds, read<runtime::SamplesRecord>(body)));
    case Kind::stagnation: {
      std::int64_t step = 0;
      kernels::Stagnation counts;
      from_bytes(body, step, counts);
      expect_step(bounds, step);
      return to.stagnation(rank, step, counts);
    }
    case Kind::replica:
      return to.replica(rank, within(bounds, read<runtime::ReplicaRecord>(body)));
    case Kind::shards:
      return to.shards(rank, within(bounds, read<runtime::ShardRecord>(body)));
    case Kind::pipeline:
      return to.pipeline(rank, read<runtime::PipelineRecord>(body));
    case Kind::scores: {
      std::int64_t step = 0;
      std::vector<int> ranks;
      std::vector<double> scores;
      from_bytes(body, step, ranks, scores);
      expect_ranks(bounds, ranks);
      if (scores.size() != ranks.size()) throw runtime::Malformed("scores of other ranks");
      return to.scores(step, ranks, scores);
    }
    case Kind::straggler:
      return to.straggler(rank, within(bounds, read<runtime::StragglerRecord>(body)));
    case Kind::diverged:
      return to.diverged(rank, read<runtime::DivergenceRecord>(body));
    case Kind::count_:
      break;
  }
  throw runtime::Malformed("no kind of note");
}

// The rank that has reported the fewest steps goes on; among equals the lowest.
void replay(const std::vector<std::vector<Note>>& notes, std::int64_t steps, int batch, Collector& collector) {
  std::vector<std::size_t> next(notes.size());
  for (;;) {
    std::size_t chosen = notes.size();
    for (std::size_t rank = 0; rank < notes.size(); ++rank) {
      if (next[rank] == notes[rank].size()) continue;
      if (chosen == notes.size() || notes[rank][next[rank]].steps < notes[chosen][next[chosen]].steps) chosen = rank;
    }
    if (chosen == notes.size()) return;
    const Note& note = notes[chosen][next[chosen]++];
    try {
      if (note.body.empty()) throw runtime::Malformed("an empty note");
      NoteTaker::tell(int(chosen), note.body, {int(notes.size()), steps, batch}, collector);
    } catch (const runtime::Malformed& bad) {
      throw runtime::Malformed(fmt::format("rank {} reported {}", chosen, bad.what()));
    }
  }
}

std::vector<std::byte> to_bytes(RankReport report) { return runtime::to_bytes(report); }

RankReport report_from(std::span<const std::byte> bytes) {
  RankReport report;
  from_bytes(bytes, report);
  for (const RankReport::Memory* memory : {&report.device, &report.host, &report.pinned}) {
    for (const std::vector<std::size_t>* tags : {&memory->peak_by_tag, &memory->at_peak}) {
      if (tags->size() > std::size_t(runtime::MemoryTag::count_)) throw runtime::Malformed("reports no use of memory");
    }
  }
  if (report.comm.size() > std::size_t(runtime::OpKind::count_)) throw runtime::Malformed("reports no operation");
  return report;
}

}  // namespace seeksim::harness
