// Brings the reports of ranks in processes of their own to one place: an Observer that writes its calls down as notes,
// and the replay of all ranks' notes into one Collector. A rank's notes are in its own order; the notes of different
// ranks are merged step by step, in the simulator's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/processes/rank_report.h"
#include "harness/record/collector.h"
#include "runtime/backend/wire/bytes.h"

namespace seeksim::harness {

class NoteTaker final : public runtime::Observer {
 public:
  struct Bounds {  // of what a rank can report
    int ranks = 0;
    std::int64_t steps = 0;
    int batch = 0;  // samples a step
  };

  // gradients_of, digest_gradients: as the Collector's.
  NoteTaker(bool several_ranks, std::int64_t gradients_of, bool digest_gradients)
      : several_ranks_(several_ranks), gradients_of_(gradients_of), digest_gradients_(digest_gradients) {}

  void step_committed(int rank, const runtime::StepRecord& record) override;
  void trained(int, std::int64_t, TimeNs now) override { trained_ns_ = now; }
  // When training came to its end; -1: it did not.
  TimeNs trained_ns() const { return trained_ns_; }
  void looked_for_poison(int rank, runtime::Index values, const std::string& found, bool at_source) override;
  void recovering(int rank, const runtime::RecoveryRecord& so_far) override;
  void recovered(int rank, const runtime::RecoveryRecord& record) override;
  void rolled_back(int rank, std::int64_t steps) override;
  void checkpoint(int rank, const runtime::CheckpointRecord& told) override;
  void layout(int rank, const runtime::Layout& layout) override;
  bool wants_gradients(int rank, std::int64_t step) override;
  void gradients(int rank, std::int64_t step, std::vector<runtime::NamedTensor> gradients) override;
  void rerun(int rank, const runtime::RerunRecord& told) override;
  void samples(int rank, const runtime::SamplesRecord& told) override;
  void evaluated(int rank, const runtime::EvaluationRecord& told) override;
  void compressed(int rank, const runtime::CompressionRecord& told) override;
  void late(int rank, const runtime::LateRecord& told) override;
  void choices(int rank, const runtime::ChoicesRecord& told) override;
  void workers(int rank, const runtime::WorkersRecord& told) override;
  void stagnation(int rank, std::int64_t step, const kernels::Stagnation& counts) override;
  bool wants_replicas(int) override { return several_ranks_; }
  void replica(int rank, const runtime::ReplicaRecord& record) override;
  void shards(int rank, const runtime::ShardRecord& record) override;
  void pipeline(int rank, const runtime::PipelineRecord& record) override;
  void scores(std::int64_t step, const std::vector<int>& ranks, const std::vector<double>& scores) override;
  void straggler(int rank, const runtime::StragglerRecord& found) override;
  void diverged(int rank, const runtime::DivergenceRecord& found) override;

  std::vector<Note> take() { return std::move(notes_); }

 private:
  enum class Kind : std::uint8_t;
  friend void replay(const std::vector<std::vector<Note>>& notes, std::int64_t steps, int batch, Collector& collector);
  template <class... T>
  void note(Kind kind, const T&... what);
  static void tell(int rank, std::span<const std::byte> body, const Bounds& bounds, Collector& collector);

  bool several_ranks_;
  std::int64_t gradients_of_;
  bool digest_gradients_;
  std::uint64_t steps_ = 0;
  TimeNs trained_ns_ = -1;
  std::vector<Note> notes_;
};

// Notes by rank, of a run of so many steps and samples a step. Throws runtime::Malformed, which names the rank, where a
// note holds values that the run cannot have.
void replay(const std::vector<std::vector<Note>>& notes, std::int64_t steps, int batch, Collector& collector);

std::vector<std::byte> to_bytes(RankReport report);
// Throws runtime::Malformed.
RankReport report_from(std::span<const std::byte> bytes);

}  // namespace seeksim::harness
