#include "harness/commands/words/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace seeksim::harness {
namespace {

// Text as troff takes it: no character of it is a request, an escape or a hyphen that may be broken at.
std::string plain_roff(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\')
      safe += "\\e";
    else if (c == '-')
      safe += "\\-";
    else if (c == '\'')
      safe += "\\(aq";
    else if (c == '\n')
      safe += ' ';
    else
      safe += c;
  }
  return safe.starts_with('.') ? "\\&" + safe : safe;
}

std::string bold(std::string_view text) { return "\\fB" + plain_roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain_roff(text) + "\\fR"; }

std::string paragraph_of(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", head, text);
}

std::string entry(const OptionWords& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(option.positional ? italic(name) : bold(name));
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  if (!option.positional && option.takes_value)
    head += ' ' + (option.choices.empty() ? italic("VALUE") : bold(fmt::format("{}", fmt::join(option.choices, "|"))));
  std::string text = plain_roff(option.text);
  if (!option.standard.empty()) text += fmt::format(" (default: {})", plain_roff(option.standard));
  return paragraph_of(head, text);
}

std::string section_of(const CommandWords& command) {
  std::string text = fmt::format(".SS seeksim {}\n{}.\n", plain_roff(command.path), plain_roff(command.text));
  if (!command.below.empty()) return text;
  std::string usage = bold("seeksim " + command.path) + " [OPTIONS]";
  for (const OptionWords& option : command.options) {
    if (!option.positional) continue;
    const std::string name = italic(option.names.front()) + (option.many ? "..." : "");
    usage += option.required ? ' ' + name : " [" + name + ']';
  }
  text += ".PP\n" + usage + '\n';
  for (const OptionWords& option : command.options)
    if (option.names.front() != "--help") text += entry(option);
  return text;
}

constexpr const char* kHead = R"(.SH NAME
seeksim \- distributed LLM training against injected faults, checked bit by bit
.SH SYNOPSIS
.B seeksim
.I COMMAND
[OPTIONS]
.SH DESCRIPTION
seeksim runs real distributed training on simulated ranks, on processes or on GPUs, injects faults into it, and checks
that the result equals the fault\-free run on one rank, bit for bit, and that recovery behaves.
A scenario file says what is trained, what breaks and what is checked. Scenarios that come with the program are found
by their names: \fBseeksim run nccl_timeout\fR.
.SH COMMANDS
)";

constexpr const char* kTail = R"(.SH EXIT STATUS
.TP
0
as expected
.TP
1
a check failed
.TP
2
bad scenario or usage
.TP
3
no progress: a deadlock, a livelock, or the wall\-clock limit
.TP
4
a bug in seeksim
.TP
5
packages that PyTorch scripts need cannot be had
.SH ENVIRONMENT
.TP
.B SEEKSIM_ISA
\fBscalar\fR, \fBavx2\fR or \fBavx512\fR: the instruction set of the kernels. It decides no bit.
.TP
.B COLUMNS
the width to which text is folded; 0: it is not folded
.SH EXAMPLES
.TP
\fBseeksim run nccl_timeout\fR
a collective that times out, its diagnosis and its recovery
.TP
\fBseeksim list scenarios\fR
what comes with the program
.TP
\fBseeksim explore baseline \-\-budget 90s\fR
a search for failures that nobody wrote down
)";

}  // namespace

std::string man_page(const std::vector<CommandWords>& commands, const std::string& version) {
  std::string text = fmt::format(".TH SEEKSIM 1 \"\" \"{}\" \"User Commands\"\n.nh\n.ad l\n", plain_roff(version));
  text += kHead;
  for (const CommandWords& command : commands)
    if (!command.path.empty()) text += section_of(command);
  return text + kTail;
}

}  // namespace seeksim::harness
