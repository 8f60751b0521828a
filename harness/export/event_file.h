// TensorBoard's event files: scalars by tag and step, as protocol buffers in TFRecord frames. Written here, because two
// messages of four fields are shorter than a library's build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace seeksim::harness {

// CRC-32C (Castagnoli), as TFRecords mask it.
std::uint32_t masked_crc32c(std::string_view bytes);

class EventFile {
 public:
  EventFile();
  // time_s: of the event, since the epoch; here virtual time.
  void scalar(const std::string& tag, std::int64_t step, double time_s, float value);
  const std::string& bytes() const { return bytes_; }

 private:
  void frame(std::string_view message);
  std::string bytes_;
};

}  // namespace seeksim::harness
