#include "harness/commands/words/command_line_page.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "harness/reference/markdown.h"

namespace seeksim::harness {
namespace {

std::string value_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  return type.empty() || type == "TEXT" ? "" : plain(type, true);
}

std::string option_row(const CLI::Option& option) {
  const bool positional = option.get_positional();
  std::string name = positional ? option.get_name(true) : option.get_name(false, true);
  const std::string standard = option.get_default_str();
  std::string meaning = plain(option.get_description(), true);
  if (option.get_required()) meaning += " (required)";
  return table_row({code_span(name), value_of(option), standard.empty() ? "" : code_span(standard), meaning});
}

std::string usage(const CLI::App& command, const std::string& name) {
  std::string line = name + " [OPTIONS]";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string many = option->get_items_expected_max() > 1 ? "..." : "";
    const std::string word = option->get_name(true) + many;
    line += option->get_required() ? ' ' + word : " [" + word + ']';
  }
  return fmt::format("\n```\n{}\n```\n", line);
}

std::string command_section(const CLI::App& command, const std::string& parent) {
  const std::string name = parent + ' ' + command.get_name();
  std::string text = fmt::format("\n## {}\n\n{}", name, paragraph(plain(command.get_description())));
  const auto below = command.get_subcommands({});
  if (below.empty()) {
    text += usage(command, name);
    std::string rows;
    for (const CLI::Option* option : command.get_options())
      if (option->get_name() != "--help") rows += option_row(*option);
    if (!rows.empty()) text += '\n' + table_header({"argument", "value", "default", "meaning"}) + rows;
  }
  for (const CLI::App* part : below) text += command_section(*part, name);
  return text;
}

}  // namespace

Page command_line_page(const CLI::App& app) {
  std::string text =
      page_head("What does each command take?",
                "`seeksim COMMAND --help` prints the same. Exit status: 0 as expected, 1 a check failed, "
                "2 bad scenario or usage, 3 no progress, 4 a bug in seeksim, 5 packages for PyTorch "
                "scripts cannot be had.");
  for (const CLI::App* command : app.get_subcommands({})) text += command_section(*command, "seeksim");
  return {"command-line.md", text};
}

}  // namespace seeksim::harness
