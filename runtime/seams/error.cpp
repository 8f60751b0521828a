// What went wrong, in words: names of error kinds and transport codes, and the text of a SeamError.
#include "runtime/seams/error.h"

#include "runtime/seams/enum_names.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

std::string_view name(ErrorKind kind) {
  constexpr EnumNames<ErrorKind> kNames({{ErrorKind::timeout, "timeout"},
                                         {ErrorKind::revoked, "revoked"},
                                         {ErrorKind::remote_error, "remote_error"},
                                         {ErrorKind::corrupt, "corrupt"},
                                         {ErrorKind::mismatch, "mismatch"},
                                         {ErrorKind::out_of_memory, "out_of_memory"},
                                         {ErrorKind::io, "io"},
                                         {ErrorKind::fenced, "fenced"},
                                         {ErrorKind::no_progress, "no_progress"},
                                         {ErrorKind::closure, "closure"},
                                         {ErrorKind::corrupt_compute, "corrupt_compute"},
                                         {ErrorKind::device_lost, "device_lost"},
                                         {ErrorKind::data_error, "data_error"},
                                         {ErrorKind::diverged, "diverged"},
                                         {ErrorKind::too_slow, "too_slow"}});
  return kNames.of(kind);
}

std::string_view name(CommResult result) {
  switch (result) {
    case CommResult::success:
      return "success";
    case CommResult::unhandled_cuda:
      return "unhandled_cuda";
    case CommResult::system:
      return "system";
    case CommResult::internal:
      return "internal";
    case CommResult::invalid_argument:
      return "invalid_argument";
    case CommResult::invalid_usage:
      return "invalid_usage";
    case CommResult::remote_error:
      return "remote_error";
    case CommResult::in_progress:
      return "in_progress";
    case CommResult::timeout:
      return "timeout";
  }
  return "unknown result";
}

// A checksum that fails surfaces as NCCL's `system` (a network's fatal asynchronous event); a peer that brought another
// operation as `invalid_usage` (NCCL's "message truncated").
ErrorKind error_kind(CommResult result) {
  switch (result) {
    case CommResult::remote_error:
      return ErrorKind::remote_error;
    case CommResult::system:
      return ErrorKind::corrupt;
    case CommResult::invalid_usage:
      return ErrorKind::mismatch;
    case CommResult::timeout:
      return ErrorKind::timeout;
    case CommResult::unhandled_cuda:
      return ErrorKind::closure;
    default:
      return ErrorKind::mismatch;
  }
}

SeamError::SeamError(ErrorKind kind, const Op& op, std::string detail, bool injected)
    : kind_(kind), op_(op), injected_(injected), detail_(std::move(detail)) {
  what_ = std::string(name(kind)) + ": " + describe(op);
  if (!detail_.empty()) what_ += ": " + detail_;
  if (injected_) what_ += " (injected)";
}

}  // namespace seeksim::runtime
