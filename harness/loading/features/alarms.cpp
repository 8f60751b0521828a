#include "harness/loading/features/alarms.h"

namespace seeksim::harness {

using namespace shapes;

const Keys<Alarms>& alarm_keys() {
  static const Keys<Alarms> keys = {
      {"loss_max", at(&Alarms::loss_max).unless_standard(), number().unset(), kNoBit,
       "A step's loss is above this, or is not a number."},
      {"loss_min", at(&Alarms::loss_min).unless_standard(), number().unset(), kNoBit,
       "A step's loss is below this, or is not a number."},
      {"grad_norm_max", at(&Alarms::grad_norm_max).unless_standard(), number().least(0).unset(), kNoBit,
       "A step's gradient norm, before clipping, is above this, or is not a number."},
      {"loss_scale_min", at(&Alarms::loss_scale_min).unless_standard(), number().least(0).unset(), kNoBit,
       "A step used a smaller loss scale."},
      {"step_s_max", at(&Alarms::step_s_max).unless_standard(), number().least(0).unset(), kNoBit,
       "More seconds from one committed step to the next: virtual ones, on processes real ones. Recoveries count."},
      {"memory_share_max", at(&Alarms::memory_share_max).unless_standard(), number().least(0).most(1).unset(), kNoBit,
       "The peak of the rank that holds most is above this share of the device's memory."},
      {"nonfinite_max", at(&Alarms::nonfinite_max).unless_standard(), integer(0).unset(), kNoBit,
       "More steps than this have a loss or a gradient norm that is NaN or infinite."},
      {"expert_share_max", at(&Alarms::expert_share_max).unless_standard(), number().least(0).most(1).unset(), kNoBit,
       "In a step one expert of a layer has more than this share of the layer's choices. An even share is 1 / experts; "
       "no expert can have more than 1 / experts_per_token."},
      {"dropped_share_max", at(&Alarms::dropped_share_max).unless_standard(), number().least(0).most(1).unset(), kNoBit,
       "In a step more than this share of all choices of experts found no room (model.capacity_factor)."},
  };
  return keys;
}

}  // namespace seeksim::harness
