// One row for each kind of fault that a script can be given.
#include "harness/torch/faults.h"

namespace seeksim::harness::torch {

using faults::FaultKind;
using faults::Mode;
using faults::Site;

namespace {

using Keys = std::vector<std::string_view>;

Keys with(Keys all, std::initializer_list<std::string_view> more) {
  all.insert(all.end(), more);
  return all;
}
// The triggers that all kinds share but those that last.
const Keys& often() {
  static const Keys keys = {"rank", "step", "micro_batch", "attempt", "call", "probability", "count"};
  return keys;
}
// At a collective.
Keys keys(std::initializer_list<std::string_view> more) { return with(with(often(), {"op", "phase"}), more); }
// In a number of a tensor that has a name, or of what a collective sums.
Keys values(std::initializer_list<std::string_view> more) {
  return with(with(often(), {"phase", "tensor", "site", "element"}), more);
}

std::vector<TorchFault> of_collectives() {
  return {
      {FaultKind::collective_timeout,
       keys({"mode", "delay_s"}),
       {Mode::never, Mode::late},
       {},
       "never: the rank stays out of a collective for good, as if its process hung. late: it joins after delay_s"},
      {FaultKind::pause, keys({"delay_s"}), {}, {}, "the rank sleeps for delay_s before it joins a collective"},
      {FaultKind::rank_crash,
       keys({"mode", "signal"}),
       {Mode::before, Mode::during, Mode::after},
       {},
       "the process ends before, during or after a collective: by a signal, or with an exit status"},
      {FaultKind::message_drop, keys({}), {}, {}, "the rank joins, and its contribution never arrives"},
      {FaultKind::message_corrupt,
       keys({"mode", "bit", "checksum"}),
       {Mode::dup_apply},
       {},
       "a bit of what the others see of its contribution flips; its own tensor keeps it. dup_apply: a sum has the "
       "contribution twice"},
      {FaultKind::collective_mismatch,
       keys({"mode"}),
       {Mode::op, Mode::count, Mode::dtype, Mode::skip, Mode::count0},
       {},
       "the rank means another operation, count or type than the others, or leaves the collective out"},
      {FaultKind::device_error,
       keys({"mode"}),
       {Mode::never},
       {},
       "a call of NCCL on the rank returns ncclUnhandledCudaError, and nothing is sent. never: the call does not "
       "return. On GPUs only"},
      {FaultKind::oom,
       keys({"tensor"}),
       {},
       {},
       "the collective raises torch.OutOfMemoryError on the rank. tensor: this module does, as it begins, or with "
       "phase backward as backward comes to its output"},
  };
}

std::vector<TorchFault> of_numbers() {
  const std::vector<Site> sites = {Site::gradient,  Site::reduced_gradient, Site::activation, Site::activation_gradient,
                                   Site::parameter, Site::optimizer_state,  Site::loss};
  const std::vector<Site> of_many(sites.begin(), sites.end() - 1);  // of tensors with more than one number
  std::vector<Site> of_flips = sites;
  of_flips.push_back(Site::message);
  return {
      {FaultKind::bit_flip,
       with(values({"bit"}), {"op"}),
       {},
       of_flips,
       "a bit of a number flips: what the rank gives to a sum in backward or gets from it, or on the way; with tensor, "
       "the gradient of that parameter; or what the site names"},
      {FaultKind::nan_inject, values({}), {}, sites, "the same, and the number becomes NaN"},
      {FaultKind::inf_inject, values({"negative"}), {}, sites, "the same, with infinity"},
      {FaultKind::overflow,
       values({"value", "negative"}),
       {},
       {Site::gradient, Site::reduced_gradient, Site::activation, Site::activation_gradient, Site::parameter},
       "the same, with a number that fp16 cannot hold"},
      {FaultKind::zero_tile, values({"elements"}), {}, of_many, "the same, with a run of zeros"},
  };
}

std::vector<TorchFault> of_hosts() {
  return {
      {FaultKind::straggler,
       {"rank", "step", "attempt", "phase", "call", "probability", "mode", "factor", "period_s", "duty", "ramp_s",
        "cool_s"},
       {Mode::constant, Mode::periodic, Mode::ramp},
       {},
       "after each phase the rank sleeps factor - 1 times the processor time that the phase took; phase: only that "
       "one"},
      {FaultKind::slow_link,
       {"link", "both_directions", "step", "attempt", "op", "phase", "call", "probability", "factor", "delay_s"},
       {},
       {},
       "what an end of the link gives to a group that has both ends comes late: by delay_s, and by its bytes over the "
       "share of 12.5 GB/s that is left"},
      {FaultKind::data_stall,
       with(often(), {"delay_s"}),
       {},
       {},
       "the script waits delay_s for the loader's next batch"},
      {FaultKind::data_error,
       with(often(), {"mode"}),
       {Mode::skip, Mode::dup_apply},
       {},
       "the loader raises an error. skip: it leaves a batch out. dup_apply: the batch before comes again in the place "
       "of the next"},
      {FaultKind::nvme_write_error,
       with(often(), {"path"}),
       {},
       {},
       "saving a file of a checkpoint fails with an input/output error; nothing is written"},
      {FaultKind::disk_full,
       with(often(), {"path"}),
       {},
       {},
       "the same, with \"no space left on device\", when half of the file is written"},
      {FaultKind::checkpoint_corrupt,
       with(often(), {"path", "mode", "bit"}),
       {Mode::truncate, Mode::flip, Mode::missing},
       {},
       "a file of a checkpoint is damaged once it is written: half of it is missing, a bit flips, or it is gone"},
      {FaultKind::store_death,
       {"rank", "step", "attempt"},
       {},
       {},
       "as the step begins, the rank's connection to the job's store (MASTER_ADDR, MASTER_PORT) breaks; the rank that "
       "hosts the store takes it down. Without rank: every rank's"},
      {FaultKind::clock_skew,
       {"rank", "attempt", "offset_s", "drift_ppm"},
       {},
       {},
       "Python's time.time() and time.time_ns() show another time on this rank"},
  };
}

}  // namespace

const std::vector<TorchFault>& torch_faults() {
  static const std::vector<TorchFault> rows = [] {
    std::vector<TorchFault> all = of_collectives();
    for (TorchFault& row : of_numbers()) all.push_back(std::move(row));
    for (TorchFault& row : of_hosts()) all.push_back(std::move(row));
    return all;
  }();
  return rows;
}

}  // namespace seeksim::harness::torch
