// The words of a shell script, as far as a launch line needs them: quotes, backslashes, continued lines, comments and
// variables that the script itself sets. No shell is run.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::harness {

struct ShellLine {
  int number = 0;                  // of its first line, from 1
  std::vector<std::string> words;  // of one command; "#SBATCH" lines keep their words
};

// Commands are parted at line ends, ";", "&&", "||" and "|".
std::vector<ShellLine> shell_lines(std::string_view text);

// "$NAME", "${NAME}" and "${NAME:-other}" replaced where the value is known. Unknown ones stay as they are.
std::string expanded(const std::string& word, const std::map<std::string, std::string>& variables);

}  // namespace seeksim::harness
