// seeksim torch museum, bisect and releases: scripts on released versions of their packages.
#pragma once

#include <string>
#include <vector>

#include "harness/releases/bisect.h"
#include "harness/releases/by_release.h"
#include "harness/releases/museum.h"
#include "harness/verdict/exit_status.h"

namespace CLI {
class App;
}

namespace seeksim::harness {

constexpr int kTorchRanksMax = 64;  // of one script's run on this machine

struct ReleasesArguments {
  releases::ReleaseMuseumArguments museum;
  releases::BisectArguments bisect;
  releases::ByReleaseArguments by_release;
};

// Adds the verbs to `seeksim torch`.
void add_releases(CLI::App& torch, ReleasesArguments& a);

// Runs the one that was given; `script` stands behind "--". `given` is false where it was none of them.
ExitStatus releases_command(const CLI::App& torch, ReleasesArguments a, const std::vector<std::string>& script,
                            bool& given);

}  // namespace seeksim::harness
