#include "runtime/backend/wire/mpi_wire.h"

#ifdef SEEKSIM_HAVE_MPI

#include <cstring>
#include <string>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {
constexpr std::size_t kPayloadBytesMax = std::size_t(1) << 31;  // MPI counts in int
}

MpiWire::MpiWire() : mpi_(MpiApi::get()), heads_(mpi_.comm_null), payloads_(mpi_.comm_null) {
  mpi_.comm_dup(mpi_.comm_world, &heads_);
  mpi_.comm_dup(mpi_.comm_world, &payloads_);
  for (const MPI_Comm comm : {heads_, payloads_}) mpi_.comm_set_errhandler(comm, mpi_.errors_return);
  void* value = nullptr;
  int there = 0;
  mpi_.comm_get_attr(payloads_, MPI_TAG_UB, &value, &there);
  tags_ = there != 0 ? *static_cast<int*>(value) : 32767;
}

MpiWire::~MpiWire() {
  for (MPI_Request& request : requests_) {
    if (request != mpi_.request_null) mpi_.request_free(&request);
  }
  mpi_.comm_free(&heads_);
  mpi_.comm_free(&payloads_);
}

bool MpiWire::check(int result, const char* what) {
  if (result == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  mpi_.error_string(result, text, &length);
  if (listener_ != nullptr) listener_->failed(std::string(what) + ": " + std::string(text, std::size_t(length)));
  return false;
}

void MpiWire::add(MPI_Request request, Pending pending) {
  requests_.push_back(request);
  pending_.push_back(std::move(pending));
}

Wire::Ticket MpiWire::send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) {
  SEEKSIM_CHECK(head.size() <= kHeadBytesMax, "a head of %zu bytes", head.size());
  SEEKSIM_CHECK(payload.size() < kPayloadBytesMax, "a message of %zu bytes: MPI counts in int", payload.size());
  Pending sending;
  if (spare_.empty()) spare_.push_back(std::make_unique<HeadBytes>());
  sending.head = std::move(spare_.back());
  spare_.pop_back();
  Prefix prefix;
  prefix.payload_bytes = payload.size();
  prefix.tag = next_tag_;
  seal(prefix, head, payload);
  std::memcpy(sending.head->data(), &prefix, sizeof prefix);
  std::memcpy(sending.head->data() + sizeof prefix, head.data(), head.size());
  MPI_Request request = mpi_.request_null;
  check(mpi_.isend(sending.head->data(), int(sizeof prefix + head.size()), mpi_.byte, to, 0, heads_, &request),
        "sending a head");
  add(request, std::move(sending));
  if (payload.empty()) return 0;
  request = mpi_.request_null;
  check(mpi_.isend(payload.data(), int(payload.size()), mpi_.byte, to, next_tag_, payloads_, &request), "sending");
  next_tag_ = next_tag_ == tags_ ? 0 : next_tag_ + 1;
  Pending with_payload;
  with_payload.ticket = ++tickets_;
  add(request, std::move(with_payload));
  return tickets_;
}

void MpiWire::receive(Ticket payload, std::span<std::byte> into) {
  const auto found = announced_.find(payload);
  SEEKSIM_CHECK(found != announced_.end() && found->second.bytes == into.size(), "no such message of %zu bytes",
                into.size());
  MPI_Request request = mpi_.request_null;
  check(
      mpi_.irecv(into.data(), int(into.size()), mpi_.byte, found->second.from, found->second.tag, payloads_, &request),
      "receiving");
  Pending receiving;
  receiving.ticket = payload;
  receiving.awaited = found->second;
  receiving.into = into;
  announced_.erase(found);
  add(request, std::move(receiving));
}

void MpiWire::discard(Ticket payload) {
  const auto found = announced_.find(payload);
  SEEKSIM_CHECK(found != announced_.end(), "no such message");
  Pending receiving;
  receiving.thrown_away.resize(found->second.bytes);
  MPI_Request request = mpi_.request_null;
  check(mpi_.irecv(receiving.thrown_away.data(), int(found->second.bytes), mpi_.byte, found->second.from,
                   found->second.tag, payloads_, &request),
        "receiving");
  announced_.erase(found);
  add(request, std::move(receiving));
}

bool MpiWire::poll() {
  const bool ended = test();
  return take_heads() || ended;
}

// A listener may send and receive at once, so the lists are in order before any listener is called.
bool MpiWire::test() {
  if (requests_.empty()) return false;
  ended_.resize(requests_.size());
  int count = 0;
  check(mpi_.testsome(int(requests_.size()), requests_.data(), &count, ended_.data(), MPI_STATUSES_IGNORE), "testing");
  if (count == MPI_UNDEFINED || count <= 0) return false;
  std::vector<Told> told;
  for (int i = 0; i < count; ++i) {
    Pending& pending = pending_[std::size_t(ended_[std::size_t(i)])];
    if (pending.ticket != 0) told.push_back({pending.ticket, damaged_from(pending)});
    if (pending.head != nullptr) spare_.push_back(std::move(pending.head));
    pending = {};
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == mpi_.request_null) continue;
    requests_[kept] = requests_[i];
    if (kept != i) pending_[kept] = std::move(pending_[i]);
    ++kept;
  }
  requests_.resize(kept);
  pending_.resize(kept);
  for (const auto& [ticket, damaged_from] : told) {
    if (listener_ == nullptr) break;
    if (damaged_from < 0)
      listener_->over(ticket);
    else
      listener_->damaged(damaged_from, ticket);
  }
  return true;
}

int MpiWire::damaged_from(const Pending& pending) {
  return pending.into.empty() || checksum(pending.into) == pending.awaited.check ? -1 : pending.awaited.from;
}

bool MpiWire::refuse(int from, const std::string& what) {
  if (listener_ != nullptr) listener_->failed("rank " + std::to_string(from) + " sent " + what);
  return true;
}

bool MpiWire::take_heads() {
  constexpr int kARound = 16;
  for (int taken = 0; taken < kARound; ++taken) {
    MPI_Message message = mpi_.message_null;
    MPI_Status status;
    int came = 0;
    if (!check(mpi_.improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, heads_, &came, &message, &status), "looking for messages"))
      return false;
    if (came == 0) return taken > 0;
    int bytes = 0;
    mpi_.get_count(&status, mpi_.byte, &bytes);
    if (bytes < int(sizeof(Prefix)) || bytes > int(arrived_.size()))
      return refuse(status.MPI_SOURCE, "a head of " + std::to_string(bytes) + " bytes");
    if (!check(mpi_.mrecv(arrived_.data(), bytes, mpi_.byte, &message, MPI_STATUS_IGNORE), "receiving a head"))
      return true;
    Prefix prefix;
    std::memcpy(&prefix, arrived_.data(), sizeof prefix);
    const std::span<const std::byte> head =
        std::span<const std::byte>(arrived_).first(std::size_t(bytes)).subspan(sizeof prefix);
    if (prefix.checks.prefix != checksum_of_prefix(prefix) || prefix.checks.head != checksum(head)) {
      if (listener_ != nullptr) listener_->damaged(status.MPI_SOURCE, 0);  // its payload's tag is in doubt, too
      continue;
    }
    Ticket ticket = 0;
    if (prefix.payload_bytes >= kPayloadBytesMax)
      return refuse(status.MPI_SOURCE, "the head of " + std::to_string(prefix.payload_bytes) + " bytes");
    if (prefix.payload_bytes > 0) {
      ticket = ++tickets_;
      announced_[ticket] = {status.MPI_SOURCE, prefix.tag, prefix.payload_bytes, prefix.checks.payload};
    }
    if (listener_ != nullptr) listener_->arrived(status.MPI_SOURCE, head, ticket);
  }
  return true;
}

}  // namespace seeksim::runtime

#endif
