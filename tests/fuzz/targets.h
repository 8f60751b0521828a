// What reads bytes of strangers, one function each. replay_test.cpp runs them over corpus/.
#pragma once

#include <span>
#include <string_view>

namespace seeksim::fuzz {

struct Target {
  const char* name;  // of its folder in corpus/
  // Feeds bytes to the parser. True: it took them. What it documents that it throws at bad input is caught; anything
  // else that it throws, and a value that it takes and should not, ends the process.
  bool (*take)(std::string_view bytes);
  bool is_text = false;  // mutations of tokens make sense
};

std::span<const Target> targets();

// Of the rooms that hold the parsers.
bool take_safetensors(std::string_view bytes);
bool take_manifest(std::string_view bytes);
bool take_golden(std::string_view bytes);
bool take_hostfile(std::string_view bytes);
bool take_ds_config(std::string_view bytes);
bool take_pickle_dump(std::string_view bytes);
bool take_json_dump(std::string_view bytes);
bool take_log(std::string_view bytes);
bool take_scenario(std::string_view bytes);
bool take_set(std::string_view bytes);
bool take_schedule_string(std::string_view bytes);
bool take_control_frames(std::string_view bytes);
bool take_message(std::string_view bytes);
bool take_tcp_stream(std::string_view bytes);
bool take_relay_frames(std::string_view bytes);
bool take_report(std::string_view bytes);
bool take_nccl_tests(std::string_view bytes);
bool take_torch_trace(std::string_view bytes);

}  // namespace seeksim::fuzz
