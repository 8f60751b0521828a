#include "pytorch/backend/device.h"

#include <algorithm>

namespace seeksim::pytorch {

std::shared_ptr<Lane> Lane::of(const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out) {
  std::vector<c10::Device> devices = devices_of(in);
  for (const c10::Device device : devices_of(out)) devices.push_back(device);
  if (devices.empty()) return nullptr;
  const c10::impl::VirtualGuardImpl streams(devices[0].type());
  return std::make_shared<Lane>(streams.getStreamFromGlobalPool(devices[0]), streams.getStream(devices[0]));
}

Lane::Lane(c10::Stream stream, c10::Stream callers) : stream_(stream), ready_(stream.device_type()) {
  ready_.record(callers);
}

void Lane::enter(c10::OptionalStreamGuard& guard) {
  guard.reset_stream(stream_);
  ready_.block(stream_);
}

std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& t : tensors) {
    if (!t.device().is_cpu() && std::find(devices.begin(), devices.end(), t.device()) == devices.end())
      devices.push_back(t.device());
  }
  return devices;
}

at::Tensor dense(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.layout() == c10::kStrided, "seeksim: sparse tensors are not supported");
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

at::Tensor on_host(const at::Tensor& tensor) { return dense(tensor.device().is_cpu() ? tensor : tensor.cpu()); }

}  // namespace seeksim::pytorch
