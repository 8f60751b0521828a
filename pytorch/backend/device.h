// Tensors on a device, as a thread of this backend handles them: on a stream of its own, after what the caller's stream
// has done to them. Written against torch's generic streams and events, so that it compiles without CUDA and serves
// every device that has streams.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>
#include <vector>

namespace seeksim::pytorch {

class Lane {
 public:
  // On the caller's thread: notes how far its stream has come. Null where all tensors lie on the host.
  static std::shared_ptr<Lane> of(const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out);
  Lane(c10::Stream stream, c10::Stream callers);

  // On a worker's thread, for as long as the guard lives: its stream is this lane's, which waits for the caller's.
  void enter(c10::OptionalStreamGuard& guard);
  // Returns when all that was put on the stream is done: the host, and every stream, may read the tensors then.
  void settle() const { stream_.synchronize(); }

 private:
  c10::Stream stream_;
  c10::Event ready_;
};

// Devices of tensors, without the host.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors);
// Contiguous memory with the tensor's values, where the tensor lies: the tensor itself where it is that already.
// Throws c10::ValueError for sparse tensors.
at::Tensor dense(const at::Tensor& tensor);
// The same, on the host.
at::Tensor on_host(const at::Tensor& tensor);

}  // namespace seeksim::pytorch
