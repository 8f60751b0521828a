#include "harness/commands/words/command_words.h"

#include <CLI/CLI.hpp>

#include "harness/oracles/arguments.h"

namespace seeksim::harness {
namespace {

// IsMember says its words in the name of the type only: "TEXT:{sim,mpi,nccl}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return split(type.substr(open + 1, close - open - 1));
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords words;
  words.positional = option.get_positional();
  if (words.positional) words.names.push_back(option.get_name(true));
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  words.text = option.get_description();
  words.standard = option.get_default_str();
  words.choices = choices_of(option);
  words.takes_value = option.get_items_expected_max() > 0 && option.get_type_size_max() > 0;
  words.required = option.get_required();
  words.many = option.get_items_expected_max() > 1;
  return words;
}

void add(const CLI::App& command, const std::string& path, std::vector<CommandWords>& all) {
  CommandWords words{path, command.get_description(), {}, {}};
  for (const CLI::Option* option : command.get_options()) words.options.push_back(words_of(*option));
  for (const CLI::App* part : command.get_subcommands({})) words.below.push_back(part->get_name());
  all.push_back(std::move(words));
  for (const CLI::App* part : command.get_subcommands({}))
    add(*part, path.empty() ? part->get_name() : path + ' ' + part->get_name(), all);
}

}  // namespace

std::vector<CommandWords> command_words(const CLI::App& app) {
  std::vector<CommandWords> all;
  add(app, "", all);
  return all;
}

}  // namespace seeksim::harness
