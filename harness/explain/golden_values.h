// GoldenValues: every value of the undisturbed one-rank run, kept by what it is the value of: an operation's result for
// a sample, a node of the gradient tree, the step's gradient, weights and moments before and after a step. The run
// takes one sample a micro-batch, so that each sample's values are by themselves; sums over more samples are made of
// those, as the contract says (docs/numerics.md#f3).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/explain/flat.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "harness/simulate/value_watch.h"
#include "kernels/tree.h"
#include "runtime/layout/parameters.h"

namespace seeksim::harness {

// One operand of an operation, whatever rank, micro-batch and layout it is in. A segment that is computed again in
// backward counts as forward.
struct OperandKey {
  runtime::Phase phase = runtime::Phase::init;
  std::int32_t layer = -1;
  std::string_view tensor, site;
  bool write = false;
  int number = 0;      // among those that are read, or written
  int occurrence = 0;  // of the operation, in its micro-batch
  friend auto operator<=>(const OperandKey&, const OperandKey&) = default;
};

// What a buffer of optimizer state or parameters holds.
enum class StateRole : std::uint8_t { none, weights, first_moments, second_moments };
StateRole state_role(const runtime::Buffer& buffer);
// The buffer holds gradients: a node of the tree, a bucket of nodes, or the reduced gradient.
bool holds_gradients(const runtime::Buffer& buffer);
// Its squared norms.
bool holds_norms(const runtime::Buffer& buffer);

// Flats of one role, by the type that they are held in.
struct StateFlats {
  std::map<std::pair<StateRole, runtime::ElementType>, Flat> of;
  const Flat* find(StateRole role, runtime::ElementType type) const;
};

struct GoldenStep {
  struct Operand {
    runtime::ElementType type = runtime::ElementType::f32;
    runtime::MemoryTag tag = runtime::MemoryTag::activations;
    std::vector<std::vector<std::byte>> of_sample;
  };
  std::map<OperandKey, Operand> operands;
  std::vector<Flat> leaves;                                    // of the gradient space, by sample
  mutable std::map<std::pair<int, std::int64_t>, Flat> nodes;  // by level and index, made of the leaves when asked for
  std::vector<Flat> sums;                                      // the step's gradient, as it came to be
  std::vector<std::uint32_t> norms;                            // bits of all that was measured, sorted
  std::map<std::string, std::uint32_t, std::less<>> norm_of;   // by parameter
  bool applied = false;                                        // the optimizer made a step
};

class GoldenValues final : public ValueSink {
 public:
  // Keeps steps [first, last], and at most so many bytes.
  GoldenValues(std::int64_t samples, std::int64_t first, std::int64_t last, std::size_t bytes_max)
      : samples_(samples), first_(first), last_(last), bytes_max_(bytes_max) {}

  void completed(int rank, const runtime::Op& op, runtime::TimeNs at_ns,
                 std::span<const runtime::Range> ranges) override;
  void finish(const Scenario& scenario);  // after the run

  // Null: it was not kept.
  const GoldenStep* step(std::int64_t step) const;
  // Weights and moments as the step begins; that of the step behind the last one is what the run ends with.
  const StateFlats* before(std::int64_t step) const;
  // Samples [node.index << level, ...) of the step, added up.
  const Flat& node(const GoldenStep& step, kernels::TreeNode node) const;
  std::int64_t samples() const { return samples_; }
  bool full() const { return bytes_ > bytes_max_; }  // more would have come
  std::size_t bytes() const { return bytes_; }

 private:
  void begin_step(std::int64_t step);
  void keep_operands(GoldenStep& step, const runtime::Op& op, std::span<const runtime::Range> ranges);
  void keep_leaf(GoldenStep& step, const runtime::Op& op, const runtime::Range& range);
  void keep_state(const runtime::Range& range);
  void keep_sums(GoldenStep& step, const runtime::Range& range);
  static void add_norms_of_blocks(GoldenStep& step, const runtime::Parameters& parameters);
  void keep_norms(GoldenStep& step, const runtime::Op& op, const runtime::Range& range);

  std::int64_t samples_, first_, last_;
  std::size_t bytes_max_, bytes_ = 0;
  std::int64_t now_ = -1;  // the step that is under way
  std::map<std::int64_t, GoldenStep> steps_;
  std::map<std::int64_t, StateFlats> before_;
  struct Shadow {
    std::vector<std::byte> bytes;
    runtime::ElementType type = runtime::ElementType::f32;
    StateRole role = StateRole::none;
  };
  std::map<std::uint64_t, Shadow> shadows_;  // of buffers of state, by their number
  std::map<std::tuple<OperandKey, std::int32_t>, int> seen_;
};

// Parts of an Op that name an operand. Null pointers are empty.
OperandKey operand_key(const runtime::Op& op, bool write, int number, int occurrence);
// Whether an operation of forward or backward is one that every layout does.
bool is_step_compute(const runtime::Op& op);
std::span<const std::byte> bytes_of(const runtime::Range& range);

// The run that the values are taken of: one rank, one sample a micro-batch.
Scenario one_sample_at_a_time(const Scenario& scenario);

}  // namespace seeksim::harness
