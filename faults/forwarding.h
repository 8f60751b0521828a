// Decorators that change nothing: each function forwards to the wrapped seam. A fault overrides what it changes. The
// faults of faults/ do so, and so do faults that users add (harness/loading/extensions.h).
#pragma once

#include "runtime/seams/seams.h"

namespace seeksim::faults {

class ForwardingClock : public runtime::Clock {
 public:
  explicit ForwardingClock(runtime::Clock& inner) : inner_(inner) {}
  runtime::TimeNs now() const override { return inner_.now(); }
  void sleep_until(runtime::TimeNs t) override { inner_.sleep_until(t); }

 protected:
  runtime::Clock& inner_;
};

class ForwardingDevice : public runtime::Device {
 public:
  explicit ForwardingDevice(runtime::Device& inner) : inner_(inner) {}
  runtime::BufferPtr allocate(std::size_t bytes, runtime::MemoryTag tag, const char* name) override {
    return inner_.allocate(bytes, tag, name);
  }
  runtime::BufferPtr allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                 const char* name) override {
    return inner_.allocate_in(space, bytes, tag, name);
  }
  void release(runtime::Buffer* buffer) override { inner_.release(buffer); }
  runtime::Queue& compute_queue() override { return inner_.compute_queue(); }
  runtime::Queue& communication_queue() override { return inner_.communication_queue(); }
  runtime::Queue& copy_queue() override { return inner_.copy_queue(); }
  runtime::Queue& host_queue() override { return inner_.host_queue(); }
  runtime::Queue& storage_queue() override { return inner_.storage_queue(); }
  runtime::Queue& message_queue(runtime::MessageQueue which) override { return inner_.message_queue(which); }
  runtime::TimeNs duration(const runtime::Op& op, runtime::Cost cost) const override {
    return inner_.duration(op, cost);
  }
  runtime::WaitResult wait(const runtime::Event& event, runtime::TimeNs deadline, std::uint32_t epoch) override {
    return inner_.wait(event, deadline, epoch);
  }
  void drain() override { inner_.drain(); }
  bool drain_by(runtime::TimeNs deadline, bool files_too) override { return inner_.drain_by(deadline, files_too); }
  runtime::TimeNs busy_ns() const override { return inner_.busy_ns(); }
  void host_touches(const runtime::Op& op, const runtime::Range& range) override { inner_.host_touches(op, range); }
  std::size_t capacity(runtime::Space space) const override { return inner_.capacity(space); }
  runtime::MemoryUse use(runtime::MemoryTag tag, runtime::Space space) const override { return inner_.use(tag, space); }
  runtime::MemoryUse use_total(runtime::Space space) const override { return inner_.use_total(space); }

 protected:
  runtime::Device& inner_;
};

class ForwardingTransport : public runtime::Transport {
 public:
  explicit ForwardingTransport(runtime::Transport& inner) : inner_(inner) {}
  runtime::Comm create(const runtime::Op& op, const runtime::CommSpec& spec, runtime::TimeNs deadline) override {
    return inner_.create(op, spec, deadline);
  }
  runtime::CommResult exchange(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                               std::span<const runtime::Piece> pieces, runtime::DiesAt dies) override {
    return inner_.exchange(queue, comm, op, pieces, dies);
  }
  // Override it to return false to see single messages: each collective then comes as an exchange.
  bool has_native(runtime::Comm comm, const runtime::Op& op) const override { return inner_.has_native(comm, op); }
  runtime::CommResult tree_all_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                      const runtime::TreeReduce& reduce) override {
    return inner_.tree_all_reduce(queue, comm, op, reduce);
  }
  runtime::CommResult tree_reduce_scatter(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                          const runtime::TreeScatter& scatter) override {
    return inner_.tree_reduce_scatter(queue, comm, op, scatter);
  }
  runtime::LibrarySums library_sums() const override { return inner_.library_sums(); }
  runtime::CommResult library_all_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                         runtime::VecView<const float> values, runtime::VecView<float> out) override {
    return inner_.library_all_reduce(queue, comm, op, values, out);
  }
  runtime::CommResult library_reduce(runtime::Queue& queue, runtime::Comm comm, const runtime::Op& op,
                                     runtime::VecView<const float> values,
                                     std::span<const runtime::SumShare> shares) override {
    return inner_.library_reduce(queue, comm, op, values, shares);
  }
  runtime::CommResult async_error(runtime::Comm comm) override { return inner_.async_error(comm); }
  runtime::CommResult revoke(runtime::Comm comm) override { return inner_.revoke(comm); }
  runtime::CommResult abort(std::span<const runtime::Comm> comms) override { return inner_.abort(comms); }
  runtime::CommResult finalize(runtime::Comm comm) override { return inner_.finalize(comm); }
  runtime::CommResult destroy(runtime::Comm comm) override { return inner_.destroy(comm); }
  runtime::Comm split(const runtime::Op& op, runtime::Comm parent, int color, int key,
                      runtime::TimeNs deadline) override {
    return inner_.split(op, parent, color, key, deadline);
  }
  runtime::Comm shrink(const runtime::Op& op, runtime::Comm parent, std::span<const int> exclude,
                       runtime::TimeNs deadline) override {
    return inner_.shrink(op, parent, exclude, deadline);
  }
  Unmatched unmatched(runtime::Comm comm) const override { return inner_.unmatched(comm); }

 protected:
  runtime::Transport& inner_;
};

class ForwardingStorage : public runtime::Storage {
 public:
  explicit ForwardingStorage(runtime::Storage& inner) : inner_(inner) {}
  std::string read(std::string_view path) override { return inner_.read(path); }
  void write(std::string_view path, std::string_view bytes) override { inner_.write(path, bytes); }
  void sync(std::string_view path) override { inner_.sync(path); }
  void rename(std::string_view from, std::string_view to) override { inner_.rename(from, to); }
  void remove(std::string_view path) override { inner_.remove(path); }
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override {
    return inner_.read_at(path, offset, into);
  }
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override {
    return inner_.write_at(path, offset, from);
  }
  bool exists(std::string_view path) override { return inner_.exists(path); }
  std::vector<std::string> list(std::string_view folder) override { return inner_.list(folder); }
  std::uint64_t free_bytes(std::string_view folder) override { return inner_.free_bytes(folder); }

 protected:
  runtime::Storage& inner_;
};

class ForwardingControlPlane : public runtime::ControlPlane {
 public:
  explicit ForwardingControlPlane(runtime::ControlPlane& inner) : inner_(inner) {}
  std::uint32_t epoch() const override { return inner_.epoch(); }
  std::vector<int> members() const override { return inner_.members(); }
  void revoke(std::uint32_t epoch, const runtime::Op& op, runtime::ErrorKind why) override {
    inner_.revoke(epoch, op, why);
  }
  bool revoked(std::uint32_t epoch) const override { return inner_.revoked(epoch); }
  runtime::Agreement agree(const runtime::Op& op, std::uint32_t epoch, const runtime::Ballot& ballot,
                           runtime::TimeNs deadline) override {
    return inner_.agree(op, epoch, ballot, deadline);
  }
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override { inner_.enter_epoch(epoch, members); }
  runtime::TakenIn join(const runtime::Op& op, runtime::TimeNs deadline) override { return inner_.join(op, deadline); }
  runtime::TimeNs notice() override { return inner_.notice(); }
  void stopped_until(runtime::TimeNs when) override { inner_.stopped_until(when); }

 protected:
  runtime::ControlPlane& inner_;
};

}  // namespace seeksim::faults
