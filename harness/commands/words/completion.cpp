#include "harness/commands/words/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/input/shell.h"

namespace seeksim::harness {
namespace {

// In single quotes of fish.
std::string fish_quoted(std::string_view text) {
  std::string safe = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') safe += '\\';
    safe += c;
  }
  return safe + "'";
}

// An entry `name:text` of zsh's _describe. A colon in the name is escaped.
std::string described(const std::string& name, const std::string& text) {
  std::string safe;
  for (const char c : name) safe += c == ':' ? std::string("\\:") : std::string(1, c);
  return for_the_shell(safe + ':' + text);
}

std::vector<std::string> paths_below(const std::vector<CommandWords>& commands) {
  std::vector<std::string> paths;
  for (const CommandWords& command : commands)
    if (!command.path.empty()) paths.push_back(command.path);
  return paths;
}

// The lines that find the command among the words before the cursor, for bash and zsh.
std::string path_case(const std::vector<CommandWords>& commands) {
  std::vector<std::string> patterns;
  for (const std::string& path : paths_below(commands)) {
    const std::size_t space = path.rfind(' ');
    const std::string pattern = space == std::string::npos ? ' ' + path : path;
    patterns.push_back(for_the_shell(pattern));
  }
  return fmt::format("    case \"$at $word\" in\n      {}) at=\"${{at:+$at }}$word\" ;;\n    esac\n",
                     fmt::join(patterns, "|"));
}

std::vector<std::string> option_names(const CommandWords& command) {
  std::vector<std::string> names;
  for (const OptionWords& option : command.options)
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// 'run --backend'|'run -b': the patterns of an option behind its command.
std::string option_pattern(const CommandWords& command, const OptionWords& option) {
  std::vector<std::string> patterns;
  for (const std::string& name : option.names) patterns.push_back(for_the_shell(command.path + ' ' + name));
  return fmt::format("{}", fmt::join(patterns, "|"));
}

// Choices of each option, then "a file": for options that take another value.
std::string value_cases(const std::vector<CommandWords>& commands, const char* offer, const char* file) {
  std::string text;
  for (const CommandWords& command : commands) {
    for (const OptionWords& option : command.options) {
      if (option.positional || !option.takes_value) continue;
      const std::string action =
          option.choices.empty() ? file : fmt::format(fmt::runtime(offer), fmt::join(option.choices, " "));
      text += fmt::format("    {}) {}; return ;;\n", option_pattern(command, option), action);
    }
  }
  return text;
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string text =
      "# bash completion of seeksim, made by `seeksim completion bash`\n_seeksim() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at='' word='' words='' i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n    word=${COMP_WORDS[i]}\n"
      "    [ \"$word\" = -- ] && return  # a script of the user's and its own arguments\n" +
      path_case(commands) + "  done\n  case \"$at $prev\" in\n" +
      value_cases(commands, "COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", ":") + "  esac\n  case $at in\n";
  for (const CommandWords& command : commands) {
    text +=
        fmt::format("    {})\n      case $cur in\n        -*) words='{}' ;;\n        *) words='{}' ;;\n      esac ;;\n",
                    for_the_shell(command.path), fmt::join(option_names(command), " "), fmt::join(command.below, " "));
  }
  return text +
         "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _seeksim seeksim\n";
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  std::string text =
      "#compdef seeksim\n# zsh completion of seeksim, made by `seeksim completion zsh`\n_seeksim() {\n"
      "  local cur=$words[CURRENT] prev=$words[CURRENT-1] at='' word=''\n  local -i i\n  local -a offered\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n    word=$words[i]\n"
      "    [[ $word == -- ]] && { _files; return }  # a script of the user's and its own arguments\n" +
      path_case(commands) + "  done\n  case \"$at $prev\" in\n" + value_cases(commands, "compadd -- {}", "_files") +
      "  esac\n  case $at in\n";
  for (const CommandWords& command : commands) {
    std::vector<std::string> options, below;
    for (const OptionWords& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) options.push_back(described(name, option.text));
    }
    for (const std::string& name : command.below) {
      const std::string path = command.path.empty() ? name : command.path + ' ' + name;
      const auto found =
          std::find_if(commands.begin(), commands.end(), [&](const auto& one) { return one.path == path; });
      below.push_back(described(name, found->text));
    }
    text += fmt::format(
        "    {})\n      if [[ $cur == -* ]]; then\n        offered=({})\n        _describe option offered\n",
        for_the_shell(command.path), fmt::join(options, " "));
    if (below.empty()) {
      text += "      else\n        _files\n      fi ;;\n";
    } else {
      text += fmt::format("      else\n        offered=({})\n        _describe command offered\n      fi ;;\n",
                          fmt::join(below, " "));
    }
  }
  return text + "  esac\n}\n_seeksim \"$@\"\n";
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::vector<std::string> paths;
  for (const std::string& path : paths_below(commands)) paths.push_back(fish_quoted(path));
  std::string text = fmt::format(
      "# fish completion of seeksim, made by `seeksim completion fish`\n"
      "function __seeksim_at\n  set -l at ''\n  set -l words (commandline -opc)\n  for word in $words[2..-1]\n"
      "    set -l longer (string trim -- \"$at $word\")\n    contains -- $longer {} && set at $longer\n  end\n"
      "  test \"$at\" = \"$argv\"\nend\n",
      fmt::join(paths, " "));
  for (const CommandWords& command : commands) {
    const std::string when = fish_quoted("__seeksim_at " + command.path);
    for (const std::string& name : command.below) {
      const std::string path = command.path.empty() ? name : command.path + ' ' + name;
      const auto found =
          std::find_if(commands.begin(), commands.end(), [&](const auto& one) { return one.path == path; });
      text += fmt::format("complete -c seeksim -f -n {} -a {} -d {}\n", when, name, fish_quoted(found->text));
    }
    for (const OptionWords& option : command.options) {
      if (option.positional) continue;
      text += "complete -c seeksim -n " + when;
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value) text += " -r";
      if (!option.choices.empty())
        text += fmt::format(" -f -a {}", fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      text += " -d " + fish_quoted(option.text) + '\n';
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return bash_script(commands);
  return shell == "zsh" ? zsh_script(commands) : fish_script(commands);
}

}  // namespace seeksim::harness
