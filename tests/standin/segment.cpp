#include "tests/standin/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <fstream>

#include "tests/standin/loud.h"

namespace seeksim::standin {

std::size_t Ring::put(const std::byte* from, std::size_t most) {
  const std::uint64_t at = written.load(std::memory_order_relaxed);
  const std::size_t n = std::min<std::size_t>(most, kRingBytes - (at - read.load(std::memory_order_acquire)));
  const std::size_t begin = at % kRingBytes, first = std::min(n, kRingBytes - begin);
  if (n == 0) return 0;
  std::memcpy(bytes + begin, from, first);
  std::memcpy(bytes, from + first, n - first);
  written.store(at + n, std::memory_order_release);
  return n;
}

std::size_t Ring::get(std::byte* to, std::size_t most) {
  const std::uint64_t at = read.load(std::memory_order_relaxed);
  const std::size_t n = std::min<std::size_t>(most, written.load(std::memory_order_acquire) - at);
  const std::size_t begin = at % kRingBytes, first = std::min(n, kRingBytes - begin);
  if (n == 0) return 0;
  std::memcpy(to, bytes + begin, first);
  std::memcpy(to + first, bytes, n - first);
  read.store(at + n, std::memory_order_release);
  return n;
}

Segment::Segment(std::string name, int members)
    : name_(std::move(name)),
      members_(members),
      bytes_(sizeof(Shared) + std::size_t(members) * std::size_t(members) * sizeof(Ring) + alignof(Ring)) {
  const int file = ::shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ::ftruncate(file, off_t(bytes_)) != 0) {
    violation("no shared memory for a communicator: " + std::string(std::strerror(errno)));
    std::abort();
  }
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory_ == MAP_FAILED) std::abort();
}

Segment::~Segment() { ::munmap(memory_, bytes_); }

Ring& Segment::ring(int from, int to) const {
  auto* const first =
      static_cast<std::byte*>(memory_) + (sizeof(Shared) + alignof(Ring) - 1) / alignof(Ring) * alignof(Ring);
  return reinterpret_cast<Ring*>(first)[from * members_ + to];
}

void Segment::remove() { ::shm_unlink(name_.c_str()); }

void Segment::ring_bell(int rank) const {
  std::atomic<std::uint32_t>& bell = member(rank).bell;
  ++bell;
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
void Segment::ring_all() const {
  for (int rank = 0; rank < members_; ++rank) ring_bell(rank);
}

void Segment::nap(int rank, std::uint32_t heard) const {
  constexpr long kLongest = 20'000'000;
  const timespec limit{0, kLongest};
  ::syscall(SYS_futex, &member(rank).bell, FUTEX_WAIT, heard, &limit, nullptr, 0);
}

bool is_dead(std::int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return true;
  const std::size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && name_ends + 2 < text.size() && text[name_ends + 2] == 'Z';
}

}  // namespace seeksim::standin
