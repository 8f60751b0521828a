#include "harness/loading/schedule_string.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cctype>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/input/reader.h"
#include "harness/loading/scenario_json.h"

namespace seeksim::harness {
namespace {

using sim::Schedule;
using sim::SlowQueue;
using sim::Strategy;
using Bytes = std::vector<std::uint8_t>;

constexpr char kFormat = '1';
constexpr std::string_view kDigits = "0123456789abcdefghjkmnpqrstvwxyz";  // Crockford's: none is taken for another
constexpr std::size_t kCheckDigits = 2;
constexpr std::size_t kListMax = 10'000'000;  // entries: a longer one is no list of ours

// ---- numbers as bytes, 7 bits each
// -----------------------------------------------------------------------------------

void put(Bytes& bytes, std::uint64_t value) {
  for (; value >= 128; value >>= 7) bytes.push_back(std::uint8_t(value | 128));
  bytes.push_back(std::uint8_t(value));
}

class Taker {
 public:
  explicit Taker(const Bytes& bytes) : bytes_(bytes) {}
  std::uint64_t take() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) {
        short_ = true;
        return 0;
      }
      const std::uint8_t byte = bytes_[at_++];
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
    short_ = true;
    return 0;
  }
  // A number that has to be below n; else the string is none of ours.
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t value = take();
    short_ = short_ || value >= n;
    return short_ ? 0 : value;
  }
  bool fine() const { return !short_ && at_ == bytes_.size(); }
  bool broken() const { return short_; }

 private:
  const Bytes& bytes_;
  std::size_t at_ = 0;
  bool short_ = false;
};

// ---- bytes as letters
// ------------------------------------------------------------------------------------------------

std::uint32_t checksum(const Bytes& bytes) { return XXH32(bytes.data(), bytes.size(), 0) & 1023; }

std::string letters(const Bytes& bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int held = 0;
  for (const std::uint8_t byte : bytes) {
    bits = bits << 8 | byte;
    for (held += 8; held >= 5; held -= 5) text += kDigits[bits >> (held - 5) & 31];
  }
  if (held > 0) text += kDigits[bits << (5 - held) & 31];
  const std::uint32_t check = checksum(bytes);
  return text + kDigits[check >> 5] + kDigits[check & 31];
}

// False: not letters that letters() wrote.
bool bytes_of(std::string_view text, Bytes& bytes) {
  if (text.size() < kCheckDigits) return false;
  std::uint32_t bits = 0, check = 0;
  int held = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = kDigits.find(char(std::tolower(static_cast<unsigned char>(text[i]))));
    if (digit == std::string_view::npos) return false;
    if (i + kCheckDigits >= text.size()) {
      check = check << 5 | std::uint32_t(digit);
      continue;
    }
    bits = bits << 5 | std::uint32_t(digit);
    held += 5;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(std::uint8_t(bits >> held));
  }
  return check == checksum(bytes);
}

void put_schedule(Bytes& bytes, const Schedule& schedule) {
  put(bytes, std::uint64_t(schedule.strategy));
  if (schedule.strategy == Strategy::pct) {
    put(bytes, schedule.changes);
    put(bytes, schedule.horizon);
  }
  put(bytes, schedule.slow.size());
  for (const SlowQueue& slow : schedule.slow) {
    put(bytes, std::uint64_t(slow.rank));
    put(bytes, std::uint64_t(slow.queue) << 5 | std::uint64_t(slow.doublings));
  }
  put(bytes, schedule.deviations.size());
  std::uint64_t before = 0;
  for (const sim::Deviation& one : schedule.deviations) {
    put(bytes, one.decision - before);
    put(bytes, one.choice);
    before = one.decision;
  }
}

Schedule take_schedule(Taker& from) {
  Schedule schedule;
  schedule.strategy = Strategy(from.below(std::uint64_t(Strategy::count_)));
  if (schedule.strategy == Strategy::pct) {
    schedule.changes = std::uint32_t(from.below(1u << 20));
    schedule.horizon = from.take();
  }
  for (std::uint64_t n = from.below(kListMax); n > 0 && !from.broken(); --n) {
    SlowQueue slow;
    slow.rank = int(from.below(1u << 30));
    const std::uint64_t both = from.below(std::uint64_t(SlowQueue::Which::count_) << 5);
    slow.queue = SlowQueue::Which(both >> 5);
    slow.doublings = int(both & 31);
    schedule.slow.push_back(slow);
  }
  std::uint64_t at = 0;
  for (std::uint64_t n = from.below(kListMax); n > 0 && !from.broken(); --n) {
    at += from.take();
    schedule.deviations.push_back({at, std::uint32_t(from.below(std::uint64_t(1) << 32))});
  }
  return schedule;
}

}  // namespace

std::uint32_t identity_of(const Scenario& scenario) {
  Json json = to_json(scenario);
  for (const char* key : {"name", "why", "expect", "seed", "schedule", "show", "alarms"}) json.erase(key);
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return XXH32(text.data(), text.size(), 0);
}

std::string schedule_string(const Scenario& scenario, std::uint32_t version) {
  Bytes bytes;
  put(bytes, version);
  const std::uint32_t identity = scenario.identity;
  for (const int shift : {0, 8, 16, 24}) bytes.push_back(std::uint8_t(identity >> shift));
  put(bytes, scenario.world.seed);
  put_schedule(bytes, scenario.world.schedule);
  return kFormat + letters(bytes);
}

void apply_schedule(const std::string& text, Scenario& scenario) {
  const std::string place = "--schedule " + (text.size() <= 60 ? text : text.substr(0, 57) + "...");
  Bytes bytes;
  if (text.empty() || text[0] != kFormat || !bytes_of(std::string_view(text).substr(1), bytes) || bytes.size() < 5)
    throw BadInput(place, "this is no schedule, or not all of it",
                   "Copy the whole string that the run printed after --schedule.");
  Taker from(bytes);
  if (const std::uint64_t version = from.take(); version != sim::kDecisionsVersion) {
    throw BadInput(place,
                   fmt::format("it was made by a seeksim that numbers decisions otherwise (version {}, here {})",
                               version, sim::kDecisionsVersion),
                   "Replay it with that program, or look for the failure again: seeksim explore.");
  }
  std::size_t identity_at = 1;
  while (bytes[identity_at - 1] >= 128) ++identity_at;
  if (bytes.size() < identity_at + 4) throw BadInput(place, "this is no schedule, or not all of it", "");
  std::uint32_t identity = 0;
  for (int i = 3; i >= 0; --i) identity = identity << 8 | bytes[identity_at + std::size_t(i)];
  if (identity != scenario.identity) {
    throw BadInput(place, fmt::format("it belongs to another scenario than {}", scenario.file),
                   "Give the file as it was, with the same --set; name, why, expect and seed may differ.");
  }
  const Bytes rest(bytes.begin() + std::ptrdiff_t(identity_at) + 4, bytes.end());
  Taker inner(rest);
  const std::uint64_t seed = inner.take();
  Schedule schedule = take_schedule(inner);
  if (!inner.fine()) throw BadInput(place, "this is no schedule", "Copy the whole string that the run printed.");
  for (const SlowQueue& slow : schedule.slow) {
    if (slow.rank >= scenario.world.ranks())
      throw BadInput(place, fmt::format("it slows rank {}, and there are {}", slow.rank, scenario.world.ranks()),
                     "Copy the whole string that the run printed.");
  }
  scenario.world.seed = seed;
  scenario.world.schedule = std::move(schedule);
}

}  // namespace seeksim::harness
