// Values that cannot mean what was intended: of a training job's environment (NCCL, PyTorch, launchers), of a
// ds_config.json, of a DeepSpeed hostfile. Pure functions of what they are given; `seeksim doctor` prints what they
// say. Facts: NCCL's environment page, DeepSpeed's and PyTorch's source.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/input/document.h"

namespace seeksim::harness {

struct Advice {
  enum class Weight : std::uint8_t {
    wrong,     // is refused, ignored or read as something else
    doubtful,  // does what it says, which is rarely what is wanted
    note       // nothing is wrong; many take it to mean something else
  };
  Weight weight = Weight::wrong;
  Problem problem;
};
const char* name(Advice::Weight weight);

using Environment = std::map<std::string, std::string>;

// The known name that two slips of the finger make into this one; empty: it may well be a newer one that we do not
// know.
std::string slip_of(const std::string& name, const std::vector<std::string>& known);

// Variables of NCCL, PyTorch, DeepSpeed, CUDA and launchers; others are left alone.
std::vector<Advice> lint_environment(const Environment& environment);

// document: {"deepspeed": a ds_config.json or its path}. file: its name. gpus: data-parallel ranks that it is to run
// on; 0: not known. gpus_before: that its learning rate was chosen for; 0: not known.
std::vector<Advice> lint_config(Document document, const std::string& file, std::int64_t gpus = 0,
                                std::int64_t gpus_before = 0);

// "host slots=8", one a line.
std::vector<Advice> lint_hostfile(std::string_view text, const std::string& file);

}  // namespace seeksim::harness
