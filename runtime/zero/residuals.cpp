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

std::string part_lost(int parts, const std::vector<int>& before, const std::vector<int>& members, const char* what) {
  const auto holder = [parts](const std::vector<int>& of, int part) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      const SampleRange here = samples_of(parts, int(of.size()), int(i));
      if (part >= here.begin && part < here.end) return of[i];
    }
    return -1;
  };
  for (int part = 0; part < parts; ++part) {
    const int had = holder(before, part), has = holder(members, part);
    if (had != has)
      return std::string(what) + " " + std::to_string(part) + " are on rank " + std::to_string(had) +
             " alone, and rank " + std::to_string(has) + " would have to go on with them";
  }
  return {};
}

std::string Residuals::lost(const std::vector<int>& members) const {
  if (members_.empty() || members_ == members || !feeds_back()) return {};
  return part_lost(plan_.groups, members_, members, "the residuals of group");
}

VecView<float> Residuals::kept(Index i) const {
  if (!feeds_back()) return {};
  return part(*buffers_[in_use_], i);
}

}  // namespace seeksim::runtime
