// seeksim torch: a user's own PyTorch script under faults, oracles and reports; two such runs compared.
#pragma once

#include <string>
#include <vector>

#include "harness/commands/releases_command.h"
#include "harness/verdict/exit_status.h"

namespace CLI {
class App;
}

namespace seeksim::harness {

struct TorchArguments {
  std::string scenario;
  std::vector<std::string> sets;
  std::vector<std::string> script;  // behind --
  int ranks = 0;                    // 0: as the scenario says
  std::string python, out, report, junit;
  struct Job {
    double wall_limit_s = 0;
    int hosts = 0, host = -1;  // not given
    std::string endpoint;
    bool insecure = false;
  } job;                              // run: when it ends, and on which hosts
  double warm_s = 0;                  // run: a process that has imported torch stays so long
  std::vector<std::string> imports;   // run, hunt: with these modules
  std::string a, b;                   // compare: folders of runs
  std::string table;                  // table: its file
  std::vector<std::string> only;      // table, hunt: axes or features and their values
  std::vector<std::string> switches;  // check: only these
  std::string resume;                 // check, recovers, explore: arguments with which the script goes on
  struct {
    std::string how = "kill";  // what happens to the last rank
    std::int64_t step = -1;    // in which step; -1: it is drawn
    bool again = false;        // and once more as it goes on
  } breaks;                    // recovers
  struct {
    std::string html, trace, flight_recorder;
  } shown;                 // run: files for people and other tools
  std::uint64_t seed = 1;  // recovers, explore, hunt: of what is drawn
  struct Search {
    std::string budget = "60s";
    int cases = 0, findings = 0;     // at most so many; 0: by time alone
    std::string one;                 // hunt: this case, and no other
    std::vector<std::string> known;  // hunt: what more findings need that are not told again
    bool again = false;              // hunt: those that docs/findings has are told, too
  } search;                          // explore, hunt: for how long
  std::vector<std::string> orders;   // compare: runs of `a` with other orders of sums
  std::string grade = "bits";
  bool json = false;
  ReleasesArguments releases;  // museum, bisect
};

void add_torch(CLI::App& app, TorchArguments& a);

// Takes what stands behind "--" off the arguments of `seeksim torch`, for it is the script's.
std::vector<std::string> take_script(std::vector<std::string>& arguments);

ExitStatus torch_command(const CLI::App& app, const TorchArguments& a);

}  // namespace seeksim::harness
