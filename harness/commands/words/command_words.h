// What CLI11 knows of the commands, as plain data: completion and the manual page are made of it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace seeksim::harness {

struct OptionWords {
  std::vector<std::string> names;  // "--jobs", "-j"; of a positional its one name, without dashes
  std::string text;                // what it does, for people
  std::string standard;            // its default as written; "": none is shown
  std::vector<std::string> choices;
  bool takes_value = false;
  bool positional = false;
  bool required = false;
  bool many = false;  // may be given several times in a row
};

struct CommandWords {
  std::string path;  // "run", "torch run"; "" is the program itself
  std::string text;
  std::vector<OptionWords> options;
  std::vector<std::string> below;  // names of the commands below it
};

// The program and all its commands, each before those below it, in the order of --help.
std::vector<CommandWords> command_words(const CLI::App& app);

}  // namespace seeksim::harness
