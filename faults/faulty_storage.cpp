// Disks that fail in four ways: an error, too few bytes, a lie, no room.
#include "faults/faulty_storage.h"

#include <algorithm>

namespace seeksim::faults {

using runtime::Op;
using runtime::OpKind;

namespace {

constexpr const char* kBadMedium = "input/output error";
constexpr const char* kNoRoom = "no space left on device";

bool is_partial(FaultKind kind) { return kind == FaultKind::nvme_short_read || kind == FaultKind::nvme_torn_write; }

// How much arrives of a short read, and lasts of a torn write: as the rule says, or half, in whole sectors.
std::size_t part_of(const Rule& rule, std::size_t bytes) {
  constexpr std::size_t kSector = 512;
  if (rule.bytes > 0 && is_partial(rule.kind)) return std::min(std::size_t(rule.bytes), bytes);
  const std::size_t sectors = bytes / kSector / 2;
  return sectors > 0 ? sectors * kSector : bytes / 2;
}

Op op_of(const LastOps& last, int rank, OpKind kind, std::size_t bytes) {
  const bool syncs = kind == OpKind::storage_write && last.storage.kind == OpKind::storage_sync;
  Op op = last.storage.kind == kind || syncs ? last.storage : last.launched;
  op.kind = kind;
  op.rank = rank;
  op.peer = -1;
  op.bytes = bytes;
  return op;
}

}  // namespace

const Rule* FaultyStorage::struck(OpKind kind, std::string_view path, std::size_t bytes) {
  const Op op = op_of(last_, rank_, kind, bytes);
  for (RuleState* state : rules_) {
    const Rule& rule = state->rule();
    if (path.find(rule.path) == std::string_view::npos || !state->asks(op, clock_.now())) continue;
    state->record(clock_.now(), rank_, &op);
    return &rule;
  }
  return nullptr;
}

namespace {
std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}
}  // namespace

void FaultyStorage::damage(OpKind kind, std::string_view path) {
  const Op op = op_of(last_, rank_, kind, 0);
  for (RuleState* state : rules_) {
    const Rule& rule = state->rule();
    const bool is_about_it = rule.kind == FaultKind::checkpoint_corrupt || rule.kind == FaultKind::lost_checkpoint;
    if (!is_about_it || path.find(rule.path) == std::string_view::npos || !state->asks(op, clock_.now())) continue;
    state->record(clock_.now(), rank_, &op);
    spoil(rule, path);
  }
}

void FaultyStorage::spoil(const Rule& rule, std::string_view path) {
  const std::string folder(folder_of(path));
  if (rule.kind == FaultKind::lost_checkpoint) {
    for (const std::string& name : inner_.list(folder)) inner_.remove(folder + '/' + name);
    return inner_.sync(folder);
  }
  if (rule.mode == Mode::missing) {
    inner_.remove(path);
    return inner_.sync(folder);
  }
  std::string content = inner_.read(path);
  const std::size_t bits = content.size() * 8;
  if (rule.mode == Mode::truncate) content.resize(content.size() / 2);
  if (rule.mode == Mode::flip && bits > 0) {
    const std::size_t bit = std::size_t(rule.bit % bits);
    content[bit / 8] = char(content[bit / 8] ^ char(1 << (bit % 8)));
  }
  inner_.write(path, content);
  inner_.sync(path);
}

void FaultyStorage::fail(OpKind kind, std::string_view path, const char* why) const {
  throw runtime::SeamError(runtime::ErrorKind::io, op_of(last_, rank_, kind, 0),
                           std::string(path) + ": " + why + " (injected)");
}

std::size_t FaultyStorage::read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) {
  const Rule* rule = struck(OpKind::storage_read, path, into.size());
  if (rule == nullptr) return inner_.read_at(path, offset, into);
  if (rule->kind == FaultKind::nvme_read_error) fail(OpKind::storage_read, path, kBadMedium);
  return inner_.read_at(path, offset, into.first(part_of(*rule, into.size())));
}

std::size_t FaultyStorage::write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) {
  const Rule* rule = struck(OpKind::storage_write, path, from.size());
  if (rule == nullptr) return inner_.write_at(path, offset, from);
  if (rule->kind == FaultKind::nvme_write_error) fail(OpKind::storage_write, path, kBadMedium);
  if (rule->kind == FaultKind::disk_full) return 0;
  inner_.write_at(path, offset, from.first(part_of(*rule, from.size())));
  return from.size();  // the lie
}

std::string FaultyStorage::read(std::string_view path) {
  const Rule* rule = struck(OpKind::storage_read, path, 0);
  if (rule != nullptr && rule->kind == FaultKind::nvme_read_error) fail(OpKind::storage_read, path, kBadMedium);
  std::string bytes = inner_.read(path);
  if (rule != nullptr) bytes.resize(part_of(*rule, bytes.size()));
  return bytes;
}

void FaultyStorage::write(std::string_view path, std::string_view bytes) {
  const Rule* rule = struck(OpKind::storage_write, path, bytes.size());
  if (rule == nullptr) return inner_.write(path, bytes);
  if (rule->kind == FaultKind::nvme_write_error) fail(OpKind::storage_write, path, kBadMedium);
  inner_.write(path, bytes.substr(0, part_of(*rule, bytes.size())));
  if (rule->kind == FaultKind::disk_full) fail(OpKind::storage_write, path, kNoRoom);
}

// A sync reports errors that earlier writes did not report.
void FaultyStorage::sync(std::string_view path) {
  const Rule* rule = struck(OpKind::storage_write, path, 0);
  if (rule == nullptr) {
    inner_.sync(path);
    return damage(OpKind::storage_sync, path);
  }
  if (rule->kind == FaultKind::nvme_write_error) fail(OpKind::storage_write, path, kBadMedium);
  if (rule->kind == FaultKind::disk_full) fail(OpKind::storage_write, path, kNoRoom);
  // A torn write is reported as durable, and is not.
}

}  // namespace seeksim::faults
