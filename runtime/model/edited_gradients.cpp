// Edits happen when a range is complete and before it is handed on.
#include "runtime/model/edited_gradients.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

void EditedSink::close(Index offset, Index size) {
  const std::vector<EditedBlock> blocks = blocks_(offset);
  for (Index block = 0; block < Index(blocks.size()); ++block) {
    const auto [begin, end, times] = blocks[std::size_t(block)];
    compute_(
        "edited gradients", SEEKSIM_SITE, memory_cost(2 * size),
        [tagged = edit_.tagged, step = edit_.step, begin = begin, end = end, first = place_(offset), times = times,
         loss = edit_.loss_offset - offset](Lane lane, Vec<float> range) {
          kernels::change_on_host(lane, range, [&](Vec<float> values) {
            for (Index i = 0; i < values.n; ++i) {
              Index sum = 0;
              for (Index sample = begin; tagged && sample < end; ++sample) sum += gradient_tag(step, sample, first + i);
              values.data[i] = (tagged ? float(sum) : values.data[i]) * (i == loss ? 1.0f : times);
            }
          });
        },
        inner_.open(block, offset, size));
  }
  inner_.close(offset, size);
}

}  // namespace seeksim::runtime
