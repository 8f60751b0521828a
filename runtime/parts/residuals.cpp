#include "runtime/parts/residuals.h"

#include <algorithm>

#include "kernels/pointwise.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::runtime {

void Residuals::lay_out(Launcher& launch, const std::vector<int>& members, int position, ShardInfo owned) {
  if (members_ == members) return;
  members_.clear();  // until there is memory for all of it: a device may have none left
  groups_ = groups_of(plan_, int(members.size()), position);
  owned_ = owned;
  in_use_ = 0;
  make(launch, groups_.size() * elements_, "residuals", buffers_);
  if (plan_.of_momentum()) make(launch, owned_.size, "residuals of sums", sums_);
  members_ = members;
}

void Residuals::make(Launcher& launch, Index elements, const char* name, std::vector<BufferPtr>& buffers) {
  buffers.clear();
  const std::size_t bytes = std::size_t(std::max<Index>(elements, 1)) * sizeof(float);
  for (int i = 0; i < 2; ++i) buffers.push_back(device_.allocate(bytes, MemoryTag::communication, name));
  if (elements == 0) return;
  for (const BufferPtr& buffer : buffers) {
    launch(
        name, SEEKSIM_SITE, memory_cost(elements, 0),
        [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0); },
        VecView<float>{buffer.get(), 0, elements});
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
  if (std::string why = part_lost(plan_.groups, members_, members, "the residuals of group"); !why.empty()) return why;
  if (plan_.of_momentum())
    return "what the second compression left out is on " + rank_names(members_) +
           ", a part on each, and the parts are others now";
  return {};
}

VecView<float> Residuals::kept_of_sum() const {
  if (!feeds_back() || sums_.empty()) return {};
  return {sums_[in_use_].get(), 0, owned_.size};
}

VecView<float> Residuals::kept(Index i) const {
  if (!feeds_back()) return {};
  return part(*buffers_[in_use_], i);
}

}  // namespace seeksim::runtime
