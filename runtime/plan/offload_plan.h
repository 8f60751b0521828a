// What is kept off the device, and which activations are not kept at all. As a scenario's "deepspeed" part says it,
// with DeepSpeed's keys and defaults; no value of anything here decides a bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

// Where state lies between its uses.
enum class Home : std::uint8_t { device, host, nvme };

// "offload_optimizer": masters, moments and reduced gradients; the optimizer then runs on the host. Stages 1 to 3.
struct OffloadOptimizerPlan {
  Home home = Home::device;
  std::string nvme_path = "nvme";  // folder, in Storage
  bool pin_memory = false;
  int buffer_count = 4;         // of staging buffers, nvme
  bool pipeline_read = false;   // the next piece is read while this one is updated, nvme
  bool pipeline_write = false;  // the last piece is written meanwhile, nvme
  double ratio = 1.0;           // of the shard, from its front, that is offloaded; the rest stays on the device
  bool speculates = false;      // gradients are stepped with as they come, before it is known whether the step holds
  // Whose memory holds what of it is in memory at all.
  Space space() const { return home == Home::device ? Space::device : pin_memory ? Space::pinned : Space::host; }
  friend bool operator==(const OffloadOptimizerPlan&, const OffloadOptimizerPlan&) = default;
};

// "offload_param": this rank's shard of the parameters. Stage 3.
struct OffloadParamPlan {
  Home home = Home::device;
  std::string nvme_path = "nvme";
  bool pin_memory = false;
  int buffer_count = 5;
  std::int64_t buffer_elements = 100'000'000;  // of one staging buffer, nvme
  std::int64_t max_in_cpu = 1'000'000'000;     // elements that stay in host memory though their home is nvme
  Space space() const { return home == Home::device ? Space::device : pin_memory ? Space::pinned : Space::host; }
  friend bool operator==(const OffloadParamPlan&, const OffloadParamPlan&) = default;
};

// "aio": how files are read and written. Sizes are bytes.
struct AioPlan {
  std::int64_t block_bytes = 1 << 20;  // of one request
  int queue_depth = 8;                 // requests under way
  int threads = 1;
  bool single_submit = false;
  bool overlap_events = true;
  friend bool operator==(const AioPlan&, const AioPlan&) = default;
};

struct OffloadPlan {
  OffloadOptimizerPlan optimizer;
  OffloadParamPlan parameters;
  AioPlan aio;
  bool any() const { return optimizer.home != Home::device || parameters.home != Home::device; }
  friend bool operator==(const OffloadPlan&, const OffloadPlan&) = default;
};

// Layers whose activations are computed again in backward (Chen et al. 2016). Only the input of a segment of
// consecutive layers is kept.
struct CheckpointingPlan {
  int every = 0;            // layers a segment; 0: off
  std::vector<int> layers;  // or just these, each a segment of its own
  bool on_host = false;     // the segments' inputs are kept in host memory ("cpu_checkpointing")
  bool any() const { return every > 0 || !layers.empty(); }
  friend bool operator==(const CheckpointingPlan&, const CheckpointingPlan&) = default;
};

}  // namespace seeksim::runtime
