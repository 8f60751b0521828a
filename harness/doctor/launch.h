// What a launch line or a batch script starts: torchrun, deepspeed, mpirun, srun, sbatch. Read as text; nothing of it
// is run, and what only the shell knows ($SLURM_NNODES) stays unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/doctor/lint.h"

namespace seeksim::harness {

// Numbers are 0 where the text does not say.
struct Launch {
  std::string launcher;  // of the ranks: "torchrun", "deepspeed", "mpirun" or "srun"; empty: none was found
  std::int64_t nodes = 0, ranks_per_node = 0, ranks = 0;
  std::string hostfile, config;    // files that it names
  std::vector<std::string> autos;  // arguments of Hugging Face's Trainer, as --auto takes them: "lr=1e-4"
  Environment environment;         // that the script sets
  std::vector<Advice> advice;
};

// file: where the text is from, for the advice.
Launch read_launch(std::string_view text, const std::string& file);

}  // namespace seeksim::harness
