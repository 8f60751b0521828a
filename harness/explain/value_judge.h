// ValueJudge: looks at every value of a run while it runs, holds it against the golden's, and keeps the first operation
// whose inputs were right and whose results were not. What has no like in the golden (messages between ways and stages,
// files, copies) is passed over: if it spoils a value, whoever reads it finds that, and the last writer is named.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/explain/golden_values.h"
#include "harness/explain/sample_map.h"

namespace seeksim::harness {

// The first operation that went wrong.
struct Culprit {
  // How it is known.
  enum class How : std::uint8_t {
    computed,  // its inputs were right, what it wrote is not
    brought,   // it wrote what somebody reads as another value; nothing is known of its inputs
    changed,   // what it wrote was right, and is not when it is read
    missing,   // the value is that of the step before: whoever should have renewed it did not
  } how = How::computed;
  int rank = -1;
  runtime::Op op;
  runtime::TimeNs at_ns = 0;
  std::string buffer;
  runtime::ElementType type = runtime::ElementType::f32;
  std::int64_t element = -1;          // the first that differs, of what it wrote, or of what was read; -1: not known
  std::int64_t sample = -1;           // of the step; -1: of all, or not known
  runtime::SampleRange samples;       // of its micro-batch; empty: outside micro-batches
  std::string have, want;             // bits and value; empty: not known
  bool struck = false;                // an injected fault changed the value in this operation
  bool over_ways = false;             // it adds up what tensor ways have made
  std::optional<runtime::Op> reader;  // that met it, where it is not `op` itself
};

class ValueJudge final : public ValueSink {
 public:
  ValueJudge(const Scenario& scenario, const GoldenValues& golden, const RunRecord* record)
      : scenario_(scenario),
        golden_(golden),
        map_(scenario, record),
        parameters_(scenario.train.definition.model, scenario.train.definition.optimizer.decay_all) {
    for (const runtime::ParameterInfo& one : parameters_.all()) offsets_.emplace(one.name, one.offset);
  }

  void completed(int rank, const runtime::Op& op, runtime::TimeNs at_ns,
                 std::span<const runtime::Range> ranges) override;

  // The first of each attempt at a step, in order of time; those of attempts that were given up too.
  const std::vector<Culprit>& culprits() const { return culprits_; }
  std::uint64_t compared() const { return compared_; }    // operands that had a like
  std::uint64_t differing() const { return differing_; }  //   of these

 private:
  enum class Verdict : std::uint8_t { unknown, right, wrong };
  struct Seen {
    Verdict verdict = Verdict::unknown;
    std::int64_t element = -1, sample = -1;
    std::string have, want;
    bool of_the_step_before = false;
    bool over_ways = false;
  };
  struct Written {
    std::size_t lo = 0, hi = 0;
    runtime::Op op;
    runtime::TimeNs at_ns = 0;
    Verdict verdict = Verdict::unknown;
  };

  using MessageKey = std::tuple<int, int, std::int64_t, std::int32_t, std::uint32_t>;
  // Names a message between stages, and its sender.
  static MessageKey message_key(const runtime::Op& op, int sender) {
    return {int(op.kind), sender, op.step, op.micro_batch, op.epoch};
  }

  Seen judge(int rank, const runtime::Op& op, const runtime::Range& range, int number, int occurrence);
  Seen operand(int rank, const runtime::Op& op, const runtime::Range& range, const GoldenStep& step,
               const OperandKey& key);
  Seen sample_rows(int rank, const runtime::Op& op, std::span<const std::byte> have, const GoldenStep::Operand& like,
                   bool by_heads) const;
  Seen gradient(int rank, const runtime::Op& op, const runtime::Range& range, const GoldenStep& step) const;
  Seen state(int rank, const runtime::Op& op, const runtime::Range& range) const;
  Seen norm(const runtime::Range& range, const GoldenStep& step) const;
  Seen part_of(int rank, std::span<const Flat* const> any, const runtime::Op& op, const runtime::Range& range,
               runtime::ElementType type) const;
  bool lies_where_expected(int rank, std::span<const Flat* const> any, const runtime::Op& op,
                           const runtime::Range& range, runtime::ElementType type) const;
  void write(int rank, const runtime::Op& op, runtime::TimeNs at_ns, const runtime::Range& range, const Seen& seen);
  const Written* last_writer(int rank, const runtime::Range& range) const;
  bool is_consequence(const runtime::Op& op) const;
  bool is_of_a_step_that_faults_ended(const runtime::Op& op) const;
  void blame(Culprit culprit);
  Culprit culprit_of(int rank, const runtime::Op& op, runtime::TimeNs at_ns, const runtime::Range& range,
                     const Seen& seen) const;
  Culprit writer_of(int rank, const runtime::Op& op, const runtime::Range& range, const Seen& seen) const;

  const Scenario& scenario_;
  const GoldenValues& golden_;
  SampleMap map_;
  runtime::Parameters parameters_;
  std::map<std::string_view, runtime::Index> offsets_;  // of parameters
  // Where parts were found that are looked at again in each step, by rank, buffer, place in it and operation's tensor.
  using PartKey = std::tuple<int, std::string_view, std::size_t, std::size_t, std::string_view>;
  mutable std::map<PartKey, std::vector<Flat::Stretch>> places_;
  std::map<std::pair<int, std::uint64_t>, std::vector<Written>> written_;  // by rank and buffer, newest last
  std::map<std::tuple<int, OperandKey, std::int64_t, std::int32_t, std::uint32_t>, int> seen_;
  std::map<int, std::uint64_t> sequence_;  // by rank: of its last computation
  std::map<MessageKey, Written> sent_;     // by message: who made what it carries
  std::map<int, runtime::Op> struck_;      // by rank: the last operation that a fault struck
  std::map<int, runtime::Op> published_;   // by rank: the last publication
  std::map<int, std::int64_t> updated_;    // by rank: the step of its last update
  std::vector<Culprit> culprits_;
  std::uint64_t compared_ = 0, differing_ = 0;
};

}  // namespace seeksim::harness
