#include "pytorch/core/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "kernels/check.h"

namespace seeksim::pytorch {
namespace {

struct Front {
  std::uint64_t token;
  std::int32_t ranks;
};
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPoisonAt = kPage;
constexpr std::size_t kRanksAt = kPoisonAt + (sizeof(Poison) + kPage - 1) / kPage * kPage;

constexpr std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
std::size_t slots_at(int ranks) { return kRanksAt + pages(sizeof(RankState) * std::size_t(ranks)); }
std::size_t boxes_at(int ranks) { return slots_at(ranks) + kSlotBytes * kBanks * (std::size_t(ranks) + 1); }
std::size_t size_of(int ranks) { return boxes_at(ranks) + sizeof(Box) * std::size_t(ranks) * std::size_t(ranks); }

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

void Bell::ring(std::uint32_t count_now) {
  count.store(count_now);
  if (waiters.load() != 0) wake();
}

void Bell::wake() const { syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void Bell::wait(std::uint32_t seen, int ms) {
  const timespec limit{ms / 1000, long(ms % 1000) * 1'000'000L};
  waiters.fetch_add(1);
  syscall(SYS_futex, &count, FUTEX_WAIT, seen, &limit, nullptr, 0);
  waiters.fetch_sub(1);
}

Segment::Segment(int ranks, int file, std::uint64_t token) : ranks_(ranks), file_(file), token_(token) {}

Segment::Segment(Segment&& other) noexcept
    : ranks_(other.ranks_),
      file_(std::exchange(other.file_, -1)),
      token_(other.token_),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_) {}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
  close_address();
}

void Segment::close_address() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

void Segment::map() {
  bytes_ = size_of(ranks_);
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "seeksim: mapping shared memory");
  base_ = static_cast<char*>(at);
}

Segment Segment::create(int ranks) {
  SEEKSIM_CHECK(ranks >= 1 && ranks <= kMaxRanks, "%d ranks", ranks);
  const int file = memfd_create("seeksim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "seeksim: shared memory");
  Segment segment(ranks, file, 0);
  if (getrandom(&segment.token_, sizeof segment.token_, 0) != ssize_t(sizeof segment.token_) ||
      ftruncate(file, off_t(size_of(ranks))) != 0 || fcntl(file, F_ADD_SEALS, kSeals) != 0) {
    throw std::system_error(errno, std::generic_category(), "seeksim: shared memory");
  }
  segment.map();
  new (segment.base_) Front{segment.token_, ranks};
  new (segment.base_ + kPoisonAt) Poison;
  for (int r = 0; r < ranks; ++r) new (&segment.rank(r)) RankState;
  return segment;  // boxes and slots are zeros, which is what they begin as
}

std::string Segment::address() const { return fmt::format("{}:{}:{:016x}", getpid(), file_, token_); }

Segment Segment::open(const std::string& address, int ranks) {
  SEEKSIM_CHECK(ranks >= 1 && ranks <= kMaxRanks, "%d ranks", ranks);
  int pid = 0, number = 0, used = 0;
  unsigned long long token = 0;
  const bool whole = address.size() < 64 &&
                     std::sscanf(address.c_str(), "%d:%d:%16llx%n", &pid, &number, &token, &used) == 3 &&
                     std::size_t(used) == address.size() && pid > 0 && number >= 0;
  if (!whole) throw std::runtime_error("seeksim: the first rank's address of shared memory makes no sense");
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    throw std::runtime_error(
        fmt::format("seeksim: {}: {}; ranks of one machine have to run as one user and see each other's processes; for "
                    "several machines see docs/torch-hosts.md (--nnodes)",
                    path, std::strerror(errno)));
  }
  Segment segment = mapped(file, ranks, path);
  if (segment.token_ != token)
    throw std::runtime_error(fmt::format("seeksim: {} is not the memory of this group", path));
  return segment;
}

Segment Segment::of_file(int file, int ranks) { return mapped(file, ranks, "what was handed over"); }

Segment Segment::mapped(int file, int ranks, const std::string& what) {
  Segment segment(ranks, file, 0);
  struct stat about {};
  const int seals = fcntl(file, F_GET_SEALS);
  const bool fits = ranks >= 1 && ranks <= kMaxRanks && seals >= 0 && (seals & kSeals) == kSeals &&
                    fstat(file, &about) == 0 && about.st_size == off_t(size_of(ranks));
  if (!fits) throw std::runtime_error(fmt::format("seeksim: {} is not the memory of a group of {} ranks", what, ranks));
  segment.map();
  Front front{};
  std::memcpy(&front, segment.base_, sizeof front);
  if (front.ranks != ranks) throw std::runtime_error(fmt::format("seeksim: {} is not the memory of this group", what));
  segment.token_ = front.token;
  segment.close_address();
  return segment;
}

Poison& Segment::poison() const { return *reinterpret_cast<Poison*>(base_ + kPoisonAt); }
RankState& Segment::rank(int place) const {
  return *reinterpret_cast<RankState*>(base_ + kRanksAt + sizeof(RankState) * std::size_t(place));
}
char* Segment::slot(int bank, int place) const {
  return base_ + slots_at(ranks_) + kSlotBytes * (std::size_t(bank) * std::size_t(ranks_ + 1) + std::size_t(place));
}
char* Segment::result(int bank) const { return slot(bank, ranks_); }
Box& Segment::box(int from, int to) const {
  const std::size_t index = std::size_t(from) * std::size_t(ranks_) + std::size_t(to);
  return *reinterpret_cast<Box*>(base_ + boxes_at(ranks_) + sizeof(Box) * index);
}

}  // namespace seeksim::pytorch
