// Edits happen when a range is complete and before it is handed on.
#include "runtime/model/edited_gradients.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

void EditedSink::close(Index offset, Index size) {
  const std::vector<EditedBlock> blocks = blocks_(offset);
  // Of experts that tensor ways have slabs of, several stretches of the whole model's gradients.
  const bool one = place_(offset + size - 1) - place_(offset) == size - 1;
  for (Index begin = 0, end = 0; begin < size; begin = end) {
    const Index place = place_(offset + begin);
    end = one ? size : begin + 1;
    while (end < size && place_(offset + end) - place == end - begin) ++end;
    for (Index block = 0; block < Index(blocks.size()); ++block) {
      const VecView<float> all = inner_.open(block, offset, size);
      edit(blocks[std::size_t(block)], place, edit_.loss_offset - offset - begin, all.part(begin, end - begin));
    }
  }
  inner_.close(offset, size);
}

// place: where the range is in the whole model's gradients; loss: where the loss is in it, if anywhere.
void EditedSink::edit(const EditedBlock& block, Index place, Index loss, VecView<float> range) {
  const auto [begin, end, times] = block;
  compute_(
      "edited gradients", SEEKSIM_SITE, memory_cost(2 * range.n),
      [tagged = edit_.tagged, step = edit_.step, begin = begin, end = end, first = place, times = times, loss](
          Lane lane, Vec<float> edited) {
        kernels::change_on_host(lane, edited, [&](Vec<float> values) {
          for (Index i = 0; i < values.n; ++i) {
            Index sum = 0;
            for (Index sample = begin; tagged && sample < end; ++sample) sum += gradient_tag(step, sample, first + i);
            values.data[i] = (tagged ? float(sum) : values.data[i]) * (i == loss ? 1.0f : times);
          }
        });
      },
      range);
}

}  // namespace seeksim::runtime
