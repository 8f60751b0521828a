#include "runtime/zero/gradient_buckets.h"

#include <optional>

#include "runtime/layout/gradient_split.h"

namespace seeksim::runtime {
namespace {

// Its gradient is written by the same launch as that of the parameter before it.
bool is_norm_bias(const std::vector<const ParameterInfo*>& all, std::size_t i) {
  return i > 0 && all[i] == all[i - 1] + 1 && all[i]->shape.size() == 1 && all[i - 1]->init == Init::ones;
}

// Places where a bucket may begin, ascending, the end of the space last.
std::vector<Bucket> units(const Parameters& parameters) {
  std::vector<Bucket> units;
  const auto& all = parameters.trainable();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Index end = all[i]->offset + all[i]->size;
    if (is_norm_bias(all, i))
      units.back().hi = end;
    else
      units.push_back({all[i]->offset, end, all[i]->name});
  }
  if (parameters.shares_head())
    units.push_back({parameters.head_gradient_offset(), parameters.loss_offset(), "lm_head.weight"});
  units.push_back({parameters.loss_offset(), parameters.loss_offset() + 1, "loss"});
  return units;
}

}  // namespace

std::vector<Bucket> gradient_buckets(const Parameters& parameters, Index elements) {
  std::vector<Bucket> buckets;
  const std::vector<Bucket> all = units(parameters);
  std::optional<GradientSplit> split;
  if (parameters.part().by_experts) split.emplace(parameters);
  for (auto unit = all.rbegin(); unit != all.rend(); ++unit) {
    // The loss is too small to travel alone, and is no parameter: it goes along with what comes next.
    const bool alike = !split || buckets.empty() || &split->run_of(unit->lo) == &split->run_of(buckets.back().lo);
    const bool joins = !buckets.empty() && alike &&
                       parameters.piece_of(unit->lo) == parameters.piece_of(buckets.back().lo) &&
                       (buckets.back().hi - unit->lo <= elements || buckets.back().lo == parameters.loss_offset());
    if (joins) {
      buckets.back().lo = unit->lo;
      buckets.back().name = unit->name;
    } else {
      buckets.push_back(*unit);
    }
  }
  return buckets;
}

std::vector<Bucket> ddp_buckets(const Parameters& parameters, Index first, Index elements) {
  std::vector<Bucket> buckets;
  const std::vector<Bucket> all = units(parameters);
  for (auto unit = all.rbegin(); unit != all.rend(); ++unit) {
    const Index limit = buckets.size() > 1 ? elements : first;
    const bool joins = !buckets.empty() && parameters.piece_of(unit->lo) == parameters.piece_of(buckets.back().lo) &&
                       (buckets.back().hi - buckets.back().lo < limit || buckets.back().lo == parameters.loss_offset());
    if (joins) {
      buckets.back().lo = unit->lo;
      buckets.back().name = unit->name;
    } else {
      buckets.push_back(*unit);
    }
  }
  return buckets;
}

}  // namespace seeksim::runtime
