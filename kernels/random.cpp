#include "kernels/random.h"

#include <algorithm>

#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/philox_body.h"

namespace seeksim::kernels {
std::array<std::uint32_t, 4> philox(PhiloxCounter counter, std::uint64_t key) {
  std::uint32_t c[4] = {counter.element, counter.sample, counter.op, counter.step};
  philox_body<OneCounter>(c, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
  return {c[0], c[1], c[2], c[3]};
}

// Element e is word e % 4 of the block whose counter is e / 4 (low half in `element`, high half in `sample`).
void fill_normal(Lane lane, Vec<float> out, std::uint32_t op, std::uint64_t first, float stddev, std::uint64_t key) {
  if (const DeviceTable* device = device_of(lane)) return device->common.fill_normal(lane, out, op, first, stddev, key);
  constexpr Index kChunk = 1024;
  std::array<std::uint32_t, kChunk + 4> words;
  for (Index done = 0; done < out.n;) {
    const std::uint64_t element = first + static_cast<std::uint64_t>(done), block = element / 4;
    const Index before = static_cast<Index>(element % 4), n = std::min(kChunk, out.n - done);
    const PhiloxCounter counter = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), op,
                                   kBeforeTraining};
    elements().philox_words(counter, key, words.data(), (before + n + 3) / 4);
    elements().normal_of_words(words.data() + before, out.data + done, n, stddev);
    done += n;
  }
}

}  // namespace seeksim::kernels
