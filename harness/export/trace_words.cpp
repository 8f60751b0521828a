#include "harness/export/trace_words.h"

#include <fmt/format.h>

#include <array>

#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

using runtime::Phase;
using sim::Blocked;

namespace {

constexpr std::array<const char*, std::size_t(Phase::count_)> kColours = {
    "startup",                // init
    "rail_load",              // data
    "thread_state_running",   // forward
    "thread_state_runnable",  // backward
    "thread_state_iowait",    // grad_reduce
    "rail_animation",         // optimizer
    "good",                   // commit
    "light_memory_dump",      // checkpoint
    "terrible",               // recovery
    "rail_response",          // publish
    "olive",                  // recompute
    "vsync_highlight_color",  // evaluation
};

}  // namespace

const char* trace_colour(Phase phase) {
  return std::size_t(phase) < kColours.size() ? kColours[std::size_t(phase)] : "generic_work";
}

std::string as_json_text(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string in_microseconds(runtime::TimeNs ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

const char* wait_in_words(Blocked why) {
  switch (why) {
    case Blocked::event:
      return "waits for an event";
    case Blocked::sleep:
      return "sleeps";
    case Blocked::for_ever:
      return "hangs";
    case Blocked::rendezvous:
      return "waits for a communicator's members";
    case Blocked::agreement:
      return "waits for an agreement";
    case Blocked::abort:
      return "waits for an abort";
    case Blocked::drain:
      return "waits for its queues";
    default:
      return "waits";
  }
}

}  // namespace seeksim::harness
