// The names of a rank's queues, as errors, traces and reports write them. Every device has the same.
#pragma once

#include "runtime/seams/enum_names.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime::queue_names {

inline constexpr const char* kCommunication = "communication queue";
inline constexpr const char* kCompute = "compute queue";
inline constexpr const char* kCopy = "copy queue";
inline constexpr const char* kHost = "host queue";
inline constexpr const char* kStorage = "storage queue";
inline constexpr EnumNames<MessageQueue> kMessages({
    {MessageQueue::send_activation, "queue of sent activations"},
    {MessageQueue::receive_activation, "queue of received activations"},
    {MessageQueue::send_gradient, "queue of sent gradients"},
    {MessageQueue::receive_gradient, "queue of received gradients"},
    {MessageQueue::tensor, "queue of tensor ways"},
    {MessageQueue::expert, "queue of an expert group"},
    {MessageQueue::context, "queue of a context group"},
});

}  // namespace seeksim::runtime::queue_names
