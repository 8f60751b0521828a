#include "runtime/zero/residuals.h"

#include <algorithm>

#include "kernels/pointwise.h"

namespace seeksim::runtime {

void Residuals::lay_out(Launcher& launch, const std::vector<int>& members, int position) {
  if (members_ == members) return;
  members_ = members;
  groups_ = groups_of(plan_, int(members.size()), position);
  buffers_.clear();
  in_use_ = 0;
  const Index all = groups_.size() * elements_;
  for (int i = 0; i < 2; ++i) {
    buffers_.push_back(
        device_.allocate(std::size_t(std::max<Index>(all, 1)) * sizeof(float), MemoryTag::communication, "residuals"));
  }
  if (all == 0) return;
  for (const BufferPtr& buffer : buffers_) {
    launch(
        "residuals", SEEKSIM_SITE, memory_cost(all, 0),
        [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0); },
        VecView<float>{buffer.get(), 0, all});
  }
}

std::string Residuals::lost(const std::vector<int>& members) const {
  if (members_.empty() || members_ == members || !feeds_back()) return {};
  const auto holder = [this](const std::vector<int>& of, int group) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      const SampleRange groups = groups_of(plan_, int(of.size()), int(i));
      if (group >= groups.begin && group < groups.end) return of[i];
    }
    return -1;
  };
  for (int group = 0; group < plan_.groups; ++group) {
    const int had = holder(members_, group), has = holder(members, group);
    if (had != has)
      return "the residual of group " + std::to_string(group) + " is on rank " + std::to_string(had) +
             " alone, and rank " + std::to_string(has) + " would have to go on with it";
  }
  return {};
}

VecView<float> Residuals::kept(Index i) const {
  if (!feeds_back()) return {};
  return part(*buffers_[in_use_], i);
}

}  // namespace seeksim::runtime
