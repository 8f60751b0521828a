// Closures own nothing, so they leave lengths and errors in the transfer, which its owner keeps in place.
#include "runtime/files/file_io.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/check.h"
#include "runtime/launch/launcher.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

VecView<std::byte> bytes_of(const Transfer& t, std::uint64_t at, std::uint64_t n) {
  return {t.values.buffer, Index(t.values.range(false).lo + at), Index(n)};
}

std::uint64_t digest_of_bytes(AnyVec values) {
  return XXH3_64bits(values.buffer->data + values.range(false).lo, values.bytes());
}

void keep(Transfer::Result& result, std::string_view why) {
  result.failed = true;
  const std::size_t n = std::min(why.size(), result.why.size() - 1);
  std::copy_n(why.data(), n, result.why.data());
  result.why[n] = '\0';
}

}  // namespace

FileIo::FileIo(Rank& rank, const TrainPlan& plan)
    : rank_(rank),
      recovery_(plan.recovery),
      has_values_(plan.numerics != Numerics::shapes),
      short_reads_taken_(plan.bug.is(Bug::short_reads_taken)),
      block_bytes_(std::uint64_t(plan.layout.offload.aio.block_bytes)),
      request_bytes_(block_bytes_ * std::uint64_t(plan.layout.offload.aio.queue_depth)) {}

void FileIo::start(Transfer& transfer) {
  const bool moves = transfer.values.n > 0 || !transfer.write;
  transfer.op.kind = transfer.renamed_to != nullptr ? OpKind::storage_rename
                     : !moves                       ? OpKind::storage_sync
                     : transfer.write               ? OpKind::storage_write
                                                    : OpKind::storage_read;
  transfer.op.rank = rank_.id;
  transfer.op.bytes = transfer.values.bytes();
  transfer.result = {};
  transfer.pending = true;
  enqueue(transfer);
}

// From where the last attempt ended.
void FileIo::enqueue(Transfer& t) {
  const std::uint64_t all = t.values.bytes();
  for (std::uint64_t at = t.result.bytes; at < all; at += request_bytes_) {
    const std::uint64_t n = std::min(request_bytes_, all - at);
    if (t.write)
      enqueue_write(t, at, n);
    else
      enqueue_read(t, at, n);
  }
  for (std::uint64_t at = 0; t.write && at < all; at += request_bytes_)
    enqueue_read_back(t, at, std::min(request_bytes_, all - at));
  if (t.renamed_to != nullptr)
    enqueue_rename(t);
  else if (all == 0)
    enqueue_sync(t);
  t.done = rank_.device.storage_queue().record();
}

namespace {

bool came_right(const Transfer* t) {
  return t == nullptr || (!t->result.failed && !t->result.differs && t->result.bytes == t->values.bytes());
}
constexpr const char* kNotAfterThat = "what has to come first failed";

// Block by block until one comes up short. act: of one block, (offset in the file, its bytes) -> how many it was.
template <class Bytes, class Act>
void pass_blocks(Transfer::Result& result, std::uint64_t at, std::uint64_t start, std::uint64_t block, Bytes bytes,
                 Act act) {
  if (result.failed || result.bytes != at) return;  // an earlier part is missing
  try {
    for (std::uint64_t i = 0; i < std::uint64_t(bytes.n); i += block) {
      const std::size_t wanted = std::size_t(std::min<std::uint64_t>(block, std::uint64_t(bytes.n) - i));
      const std::size_t done = act(start + i, std::span(bytes.data + i, wanted));
      result.bytes += done;
      if (done < wanted) return;
    }
  } catch (const SeamError& error) {
    keep(result, error.detail());
  }
}

}  // namespace

void FileIo::enqueue_write(Transfer& t, std::uint64_t at, std::uint64_t n) {
  Launcher launch(rank_.device.storage_queue(), t.op);
  launch(
      t.op.tensor, t.op.site, {0, double(n)},
      [storage = &rank_.storage, path = t.path, start = t.offset + at, block = block_bytes_, result = &t.result, at,
       before = t.after](Lane, Vec<const std::byte> from) {
        if (!came_right(before)) return keep(*result, kNotAfterThat);
        pass_blocks(*result, at, start, block, from, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
          return storage->write_at(*path, offset, bytes);
        });
      },
      VecView<const std::byte>(bytes_of(t, at, n)));
}

void FileIo::enqueue_read(Transfer& t, std::uint64_t at, std::uint64_t n) {
  Launcher launch(rank_.device.storage_queue(), t.op);
  launch(
      t.op.tensor, t.op.site, {0, double(n)},
      [storage = &rank_.storage, path = t.path, start = t.offset + at, block = block_bytes_, result = &t.result, at](
          Lane, Vec<std::byte> into) {
        pass_blocks(*result, at, start, block, into, [&](std::uint64_t offset, std::span<std::byte> bytes) {
          return storage->read_at(*path, offset, bytes);
        });
      },
      bytes_of(t, at, n));
}

void FileIo::enqueue_read_back(Transfer& t, std::uint64_t at, std::uint64_t n) {
  Op op = t.op;
  op.kind = OpKind::storage_read;
  Launcher launch(rank_.device.storage_queue(), op);
  launch(
      op.tensor, op.site, {0, double(n)},
      [storage = &rank_.storage, path = t.path, start = t.offset + at, block = block_bytes_, result = &t.result,
       end = at + n](Lane, Vec<const std::byte> wrote) {
        if (result->failed || result->bytes < end) return;
        std::vector<std::byte> held(std::size_t(std::min<std::uint64_t>(block, std::uint64_t(wrote.n))));
        try {
          for (std::uint64_t i = 0; i < std::uint64_t(wrote.n); i += block) {
            const std::size_t size = std::size_t(std::min<std::uint64_t>(block, std::uint64_t(wrote.n) - i));
            const bool whole = storage->read_at(*path, start + i, {held.data(), size}) == size;
            if (!whole || std::memcmp(held.data(), wrote.data + i, size) != 0) result->differs = true;
          }
        } catch (const SeamError& error) {
          keep(*result, error.detail());
        }
      },
      VecView<const std::byte>(bytes_of(t, at, n)));
}

void FileIo::enqueue_sync(Transfer& t) {
  Launcher launch(rank_.device.storage_queue(), t.op);
  launch(t.op.tensor, t.op.site, {0, 1},
         [storage = &rank_.storage, path = t.path, result = &t.result, before = t.after](Lane) {
           if (!came_right(before)) return keep(*result, kNotAfterThat);
           try {
             storage->sync(*path);
           } catch (const SeamError& error) {
             keep(*result, error.detail());
           }
         });
}

void FileIo::enqueue_rename(Transfer& t) {
  Launcher launch(rank_.device.storage_queue(), t.op);
  launch(t.op.tensor, t.op.site, {0, 1},
         [storage = &rank_.storage, from = t.path, to = t.renamed_to, result = &t.result, before = t.after](Lane) {
           if (!came_right(before)) return keep(*result, kNotAfterThat);
           try {
             storage->rename(*from, *to);
           } catch (const SeamError& error) {
             keep(*result, error.detail());
           }
         });
}

// The epoch of no revoke: neither that nor a communicator that failed ends this wait.
void FileIo::wait(const Transfer& transfer) {
  constexpr std::uint32_t kNoEpoch = ~std::uint32_t(0);
  const TimeNs deadline = later(rank_.clock.now(), recovery_.watchdog_ns);
  for (;;) {
    const WaitResult result = rank_.device.wait(transfer.done, deadline, kNoEpoch);
    if (result == WaitResult::done) return;
    if (result == WaitResult::timed_out)
      throw SeamError(ErrorKind::io, transfer.op, *transfer.path + ": the disk does not answer");
  }
}

std::string FileIo::wrong_with(const Transfer& t) const {
  if (t.result.failed) return t.result.why.data();
  const std::string of = " of " + std::to_string(t.values.bytes()) + " bytes";
  if (!t.write && short_reads_taken_) return {};
  if (t.result.bytes < t.values.bytes())
    return std::to_string(t.result.bytes) + of + (t.write ? " were taken" : " came");
  if (t.result.differs) return "it holds something else than what was written";
  if (!t.write && !t.unchecked && t.values.n > 0 && digest_of_bytes(t.values) != t.digest)
    return "its checksum is not that of what was written";
  return {};
}

bool FileIo::done(const Transfer& t) const { return !t.pending || rank_.device.storage_queue().done(t.done); }

void FileIo::give_up(Transfer& t) {
  if (t.pending) wait(t);
  t.pending = false;
}

void FileIo::finish(Transfer& t) {
  if (!t.pending) return;
  TimeNs backoff = recovery_.storage_backoff_ns;
  for (int attempt = 1;; ++attempt, backoff *= 2) {
    wait(t);
    if (!has_values_) break;
    if (t.values.n > 0) rank_.device.host_touches(t.op, t.values.range(false));
    const std::string wrong = wrong_with(t);
    if (wrong.empty()) break;
    if (attempt >= recovery_.storage_attempts_max) {
      t.pending = false;
      throw SeamError(ErrorKind::io, t.op,
                      *t.path + " of rank " + std::to_string(rank_.id) + ", from byte " + std::to_string(t.offset) +
                          ": " + wrong + ", " + std::to_string(attempt) + " times");
    }
    rank_.clock.sleep_until(later(rank_.clock.now(), backoff));
    const bool is_short = t.result.bytes < t.values.bytes();
    t.result = {is_short ? t.result.bytes : 0, false, false, {}};
    enqueue(t);
  }
  t.pending = false;
  if (t.write && t.values.n > 0 && has_values_) t.digest = digest_of_bytes(t.values);
}

}  // namespace seeksim::runtime
