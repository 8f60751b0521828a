#include "kernels/random.h"

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
  std::array<std::uint32_t, kChunk> words;
  for (Index done = 0; done < out.n;) {
    Index n = 0;
    while (n < kChunk && done + n < out.n) {
      const std::uint64_t element = first + static_cast<std::uint64_t>(done + n);
      const std::uint64_t block = element / 4;
      const auto four = philox(
          {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), op, kBeforeTraining}, key);
      for (std::uint64_t w = element % 4; w < 4 && n < kChunk && done + n < out.n; ++w)
        words[static_cast<std::size_t>(n++)] = four[w];
    }
    elements().normal_of_words(words.data(), out.data + done, n, stddev);
    done += n;
  }
}

}  // namespace seeksim::kernels
