// What pages of the documentation tell a reader to type, and what they show as the answer.
//
//   ```sh                                           commands: lines that begin with ./seeksim, but for build and test
//   ./seeksim run x.json --set a=b   # exit status 1      ... 0 where nothing is said
//   ```
//   This run ends with exit status 1.               ... or in the paragraph below, for the last command of a block
//
//   <!-- not run: takes a GPU -->                   on the line above a block: its commands are not run
//
//   <!-- sample: ./seeksim run x.json | tail -1 --> a sample: the command, and what it prints
//   ```text
//   $ ./seeksim run x.json | tail -1
//   PASS ...
//   ```
//   <!-- end -->
#pragma once

#include <string>
#include <vector>

namespace seeksim::docs {

struct PageCommand {
  int line = 0;
  std::string text;  // for the shell
  int status = 0;    // that the page promises
};
std::vector<PageCommand> commands_of(const std::string& page);

struct Sample {
  int line = 0;         // of <!-- sample: ... -->
  std::string command;  // for the shell
  std::string shown;    // what the page has between the two marks
};
std::vector<Sample> samples_of(const std::string& page);

// A sample as it is to stand in the page: the command as a reader types it, and its output.
std::string as_shown(const std::string& command, const std::string& output);

// The page with what each sample shows replaced.
std::string with_samples(const std::string& page, const std::vector<std::string>& shown);

// Where the two differ in words; empty where they do not. How lines fold is free, and so is each wall time.
std::string first_difference(const std::string& shown, const std::string& output);

}  // namespace seeksim::docs
