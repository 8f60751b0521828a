// Rerun: each micro-batch computed twice on the same rank, and the bits of both runs compared. The same bits are what
// follows from weights and data, a NaN too; other bits show that the hardware erred in one of the two, and on which
// rank, before any rank uses the result. Weights that are damaged at rest give the same bits twice: comparing replicas
// shows those.
#pragma once

#include <optional>
#include <vector>

#include "runtime/detect/observer.h"
#include "runtime/layout/shard.h"
#include "runtime/model/model.h"

namespace seeksim::runtime {

// The first range of the gradient space whose bits differ.
struct RerunFound {
  std::int64_t micro_batch = 0;
  Index offset = 0;
};

// Whose gradient begins at `offset` of the gradient space: a parameter's, "lm_head.weight" for a tied head's use of
// wte, "loss".
const char* gradient_name(const Parameters& parameters, Index offset);

class Rerun {
 public:
  // blocks_max: of a micro-batch. The second run's gradients take as much memory as the largest range that backward
  // closes, for each block.
  Rerun(Device& device, const Parameters& parameters, Index blocks_max);

  void begin_step(Launcher& compute);
  // Both runs of a micro-batch, one after the other, on the compute queue.
  void begin_first(int micro_batch, Index blocks);
  void keep(Index offset, Index size, GradientSink& gradients);  // a range of the first run, of every block
  void begin_second();
  VecView<float> open(Index block, Index offset, Index size);  // of the second run
  void compare(Index offset, Index size);

  // To be asked when all that was enqueued is done. The host reads result_range().
  Range result_range() const;
  RerunRecord result() const;  // without step and epoch
  std::optional<RerunFound> corrupt() const;

 private:
  // What the comparisons leave on the device: plain numbers.
  struct Result {
    std::int64_t compared = 0;
    RerunFound differs{-1, 0}, nonfinite{-1, 0};  // micro-batch -1: nowhere
  };
  VecView<std::uint64_t> digest_of(std::size_t range, Index block) const;
  Result read() const;
  RerunFind find(const RerunFound& found) const;

  Device& device_;
  const Parameters& parameters_;
  Index blocks_max_;
  std::size_t ranges_max_;
  BufferPtr digests_;  // (ranges_max, blocks_max) of the first run
  BufferPtr result_;   // (1) Result
  BufferPtr scratch_;  // (blocks_max, largest range) gradients of the second run

  Launcher* compute_ = nullptr;
  std::int64_t micro_batches_ = 0;  // of the step, with samples of this rank
  std::int64_t micro_batch_ = 0;
  Index blocks_ = 0;
  std::vector<ShardInfo> ranges_;  // in the order in which the first run closed them
  std::size_t at_ = 0;             // the range that the second run is at
};

// A sink around the one where gradients go: what is complete is digested before it is handed on.
class FirstRun final : public GradientSink {
 public:
  FirstRun(Rerun& rerun, GradientSink& inner) : rerun_(rerun), inner_(inner) {}
  VecView<float> open(Index block, Index offset, Index size) override { return inner_.open(block, offset, size); }
  void close(Index offset, Index size) override {
    rerun_.keep(offset, size, inner_);
    inner_.close(offset, size);
  }

 private:
  Rerun& rerun_;
  GradientSink& inner_;
};

// Where the gradients of the second run go: nowhere but into the comparison.
class SecondRun final : public GradientSink {
 public:
  explicit SecondRun(Rerun& rerun) : rerun_(rerun) {}
  VecView<float> open(Index block, Index offset, Index size) override { return rerun_.open(block, offset, size); }
  void close(Index offset, Index size) override { rerun_.compare(offset, size); }

 private:
  Rerun& rerun_;
};

}  // namespace seeksim::runtime
