#include "runtime/checkpoint/node_files.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/comm/edge.h"
#include "runtime/files/bounded_files.h"
#include "runtime/launch/typed_ops.h"

namespace seeksim::runtime {

NodeFiles::NodeFiles(Rank& rank, const TrainPlan& plan, std::uint32_t epoch, std::vector<int> members, Vote vote)
    : rank_(rank),
      plan_(plan),
      vote_(std::move(vote)),
      all_(rank, Axis::world, epoch, std::move(members), plan.recovery.watchdog_ns) {}

// Empty where there is none, it is longer than it may be, or the disk does not give it.
std::string NodeFiles::content_of(const std::string& path, std::uint64_t bytes_max) {
  TimeNs backoff = plan_.recovery.storage_backoff_ns;
  for (int attempt = 1;; ++attempt, backoff *= 2) {
    try {
      return rank_.storage.exists(path) ? read_at_most(rank_.storage, path, bytes_max) : std::string();
    } catch (const SeamError&) {
      if (attempt >= plan_.recovery.storage_attempts_max) return {};
    } catch (const std::runtime_error&) {
      return {};
    }
    rank_.clock.sleep_until(later(rank_.clock.now(), backoff));
  }
}

std::string NodeFiles::manifest(const std::string& folder) {
  std::string text = content_of(folder + '/' + kManifest, kManifestBytesMax);
  try {
    read_manifest(text);
  } catch (const std::runtime_error&) {
    text.clear();
  }
  Ballot mine;
  mine.checkpoint.bytes = text.size();
  const Agreement agreement = vote_("manifest", mine);
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    const std::uint64_t bytes = agreement.ballots[i].checkpoint.bytes;
    if (bytes == 0) continue;
    const BufferPtr came = bring(agreement.members[i], text, bytes);
    if (agreement.members[i] == rank_.id || came->data == nullptr) return text;
    return {reinterpret_cast<const char*>(came->data), std::size_t(bytes)};
  }
  return {};
}

BufferPtr NodeFiles::file(const std::string& path, const CheckpointFile& file) {
  const std::string content = content_of(path, file.bytes);
  Ballot mine;
  mine.checkpoint.failed = content.size() != file.bytes || digest_of_file(content) != file.digest;
  const Agreement agreement = vote_("file of a node", mine);
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    if (!agreement.ballots[i].checkpoint.failed) return bring(agreement.members[i], content, file.bytes);
  }
  return nullptr;
}

// Memory of the host with the bearer's bytes.
BufferPtr NodeFiles::bring(int bearer, const std::string& content, std::uint64_t bytes) {
  const std::uint64_t even = (bytes + 1) / 2 * 2;  // moved as 16-bit words
  here_ = rank_.device.allocate_in(Space::host, even, MemoryTag::staging, "checkpoint");
  passage_ = rank_.device.allocate(even, MemoryTag::staging, "passage between hosts");
  const AnyVec on_host(here_.get(), 0, Index(even / 2), ElementType::f16);
  const AnyVec on_device(passage_.get(), 0, Index(even / 2), ElementType::f16);
  Op op;
  op.kind = OpKind::broadcast;
  op.phase = Phase::checkpoint;
  op.rank = rank_.id;
  op.tensor = "checkpoint";
  op.site = SEEKSIM_SITE;
  Queue& queue = rank_.device.communication_queue();
  Launcher copies(queue, rank_.id, 0, OpKind::copy);
  copies.at(all_.epoch(), -1);
  copies.phase(Phase::checkpoint);
  std::vector<Piece> pieces;
  const Range range = on_device.range(true);
  if (bearer == rank_.id) {
    rank_.device.host_touches(op, on_host.range(true));
    if (here_->data != nullptr) {
      std::memset(here_->data, ' ', even);
      std::memcpy(here_->data, content.data(), std::size_t(bytes));
    }
    copy_values(copies, "checkpoint", SEEKSIM_SITE, on_host, on_device);
    for (const int member : all_.members()) {
      if (member != rank_.id) pieces.push_back({member, true, passage_.get(), range.lo, range.hi});
    }
  } else {
    pieces.push_back({bearer, false, passage_.get(), range.lo, range.hi});
  }
  op = all_.exchange(queue, op, pieces);
  if (bearer != rank_.id) copy_values(copies, "checkpoint", SEEKSIM_SITE, on_device, on_host);
  all_.wait(queue.record(), op);
  rank_.device.host_touches(op, on_host.range(false));
  passage_.reset();
  return std::move(here_);
}

}  // namespace seeksim::runtime
