// Everything is launched on the compute queue, so that a range is digested when it is complete and before its memory is
// used again. Only the first run's digests are kept: the second run is compared range by range.
#include "runtime/trainer/rerun.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "kernels/norms.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

const char* gradient_name(const Parameters& parameters, Index offset) {
  for (const ParameterInfo* p : parameters.trainable()) {
    if (p->offset == offset) return p->name;
  }
  return offset == parameters.loss_offset() ? "loss" : "lm_head.weight";
}

Rerun::Rerun(Device& device, const Parameters& parameters, Index blocks_max)
    : device_(device),
      parameters_(parameters),
      blocks_max_(std::max<Index>(blocks_max, 1)),
      ranges_max_(parameters.trainable().size() + 2) {  // a tied head's use of wte, and the loss
  digests_ = device.allocate(ranges_max_ * std::size_t(blocks_max_) * sizeof(std::uint64_t), MemoryTag::scratch,
                             "digests of the first run");
  result_ = device.allocate(sizeof(Result), MemoryTag::scratch, "comparison of two runs");
}

void Rerun::begin_step(Launcher& compute) {
  compute_ = &compute;
  micro_batches_ = 0;
  compute.launch(
      OpKind::inspect, "comparison", SEEKSIM_SITE, Cost{},
      [](Lane lane, Vec<Result> result) {
        const Result none;
        kernels::write_values(lane, &none, result);
      },
      vec<Result>(*result_));
}

void Rerun::begin_first(int micro_batch, Index blocks) {
  micro_batch_ = micro_batch;
  blocks_ = blocks;
  ranges_.clear();
}

VecView<std::uint64_t> Rerun::digest_of(std::size_t range, Index block) const {
  SEEKSIM_CHECK(range < ranges_max_ && block < blocks_max_, "range %zu, block %lld", range,
                static_cast<long long>(block));
  return vec<std::uint64_t>(*digests_, Index(range) * blocks_max_ + block, 1);
}

void Rerun::keep(Index offset, Index size, GradientSink& gradients) {
  for (Index block = 0; block < blocks_; ++block) {
    compute_->launch(
        OpKind::inspect, "digest", SEEKSIM_SITE, memory_cost(size),
        [](Lane lane, Vec<const float> x, Vec<std::uint64_t> digest) {
          const std::uint64_t of_x = kernels::digest(kernels::OnHost<float>(lane, x).get());
          kernels::write_values(lane, &of_x, digest);
        },
        VecView<const float>(gradients.open(block, offset, size)), digest_of(ranges_.size(), block));
  }
  ranges_.push_back({offset, size});
}

void Rerun::begin_second() {
  at_ = 0;
  if (blocks_ == 0) return;
  ++micro_batches_;
  if (scratch_) return;
  Index largest = 0;
  for (const ShardInfo& range : ranges_) largest = std::max(largest, range.size);
  scratch_ = device_.allocate(std::size_t(blocks_max_ * largest) * sizeof(float), MemoryTag::scratch,
                              "gradients of the second run");
}

VecView<float> Rerun::open(Index block, Index offset, Index size) {
  const ShardInfo& range = ranges_.at(at_);
  SEEKSIM_CHECK(offset >= range.offset && offset + size <= range.offset + range.size,
                "[%lld, +%lld) is not in the range that the first run closed next", static_cast<long long>(offset),
                static_cast<long long>(size));
  const Index largest = Index(scratch_->bytes / sizeof(float)) / blocks_max_;
  return vec<float>(*scratch_, block * largest + offset - range.offset, size);
}

void Rerun::compare(Index offset, Index size) {
  for (Index block = 0; block < blocks_; ++block) {
    compute_->launch(
        OpKind::inspect, "comparison", SEEKSIM_SITE, memory_cost(2 * size),
        [here = RerunFound{micro_batch_, offset}](Lane lane, Vec<const float> values, Vec<const std::uint64_t> first,
                                                  Vec<Result> result) {
          const kernels::OnHost<float> on_host(lane, values);
          const Vec<const float> x = on_host.get();
          const bool same = kernels::digest(x) == kernels::OnHost<std::uint64_t>(lane, first)[0];
          std::int64_t nonfinite = 0;
          if (same) kernels::count_nonfinite<float>(Lane{}, x, {&nonfinite, 1});
          kernels::change_on_host(lane, result, [&](Vec<Result> held) {
            Result& r = held[0];
            ++r.compared;
            if (!same && r.differs.micro_batch < 0) r.differs = here;
            if (nonfinite > 0 && r.nonfinite.micro_batch < 0) r.nonfinite = here;
          });
        },
        VecView<const float>(open(block, offset, size)), VecView<const std::uint64_t>(digest_of(at_, block)),
        vec<Result>(*result_));
  }
  ++at_;
}

Range Rerun::result_range() const { return vec<const Result>(*result_).range(); }

Rerun::Result Rerun::read() const { return on_host(vec<const Result>(*result_))[0]; }

RerunFind Rerun::find(const RerunFound& found) const {
  return {found.micro_batch, gradient_name(parameters_, found.offset)};
}

RerunRecord Rerun::result() const {
  const Result r = read();
  RerunRecord record;
  record.micro_batches = micro_batches_;
  record.ranges = r.compared;
  if (r.differs.micro_batch >= 0) record.differs = find(r.differs);
  if (r.nonfinite.micro_batch >= 0) record.nonfinite = find(r.nonfinite);
  return record;
}

std::optional<RerunFound> Rerun::corrupt() const {
  const RerunFound differs = read().differs;
  return differs.micro_batch >= 0 ? std::optional(differs) : std::nullopt;
}

}  // namespace seeksim::runtime
