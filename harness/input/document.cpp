#include "harness/input/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "harness/input/config_scenario.h"
#include "harness/input/ds_config_text.h"
#include "harness/input/files.h"
#include "harness/input/scenario_files.h"

namespace seeksim::harness {
namespace {

// Sections that may be the path of a file which holds them.
const std::vector<std::string> kSections = {"deepspeed", "model"};

// "/model/layers" -> "/model"
std::string section_of(const std::string& pointer) { return pointer.substr(0, pointer.find('/', 1)); }

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> steps;
  std::size_t from = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', from)) {
    steps.push_back(path.substr(from, dot - from));
    from = dot + 1;
  }
  steps.push_back(path.substr(from));
  return steps;
}

bool is_number(const std::string& step) {
  return !step.empty() && step.size() < 9 &&
         std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// JSON where it is JSON, else a string; what begins like a list, an object or a string has to be one.
Json value_of(const std::string& text, const std::string& option) {
  try {
    return parse_json_value(text, option);
  } catch (const BadInput&) {
    if (!text.empty() && (text[0] == '{' || text[0] == '[' || text[0] == '"')) throw;
    return text;
  }
}

// A scenario may have moved: the error says where to.
void refuse_what_has_moved(const std::string& file) {
  std::error_code none;
  if (std::filesystem::exists(file, none)) return;
  const std::string hint = where_it_may_be(file);
  if (!hint.empty()) throw BadInput(file, "cannot be read: No such file or directory", hint);
}

std::optional<JsonText> parsed(JsonText parse(std::string_view, const std::string&), const std::string& text,
                               const std::string& file) {
  try {
    return parse(text, file);
  } catch (const BadInput&) {
    return {};
  }
}

}  // namespace

Document Document::load(const std::string& file, const std::vector<std::string>& sets) {
  refuse_what_has_moved(file);
  const std::string text = read_file(file, kJsonBytesMax);
  std::optional<JsonText> json = parsed(parse_json, text, file);
  if (json && !is_deepspeed_config(json->value)) return from_json(std::move(*json), file, sets);
  if (!json) json = parsed(parse_ds_config, text, file);  // a ds_config.json may have comments, which JSON has not
  if (!json || !is_deepspeed_config(json->value)) return from_text(text, file, sets);
  const std::string scenario = scenario_around(json->value, file);
  Document document = from_text(scenario, file, sets);
  document.note_ = note_of_config(scenario, file);
  return document;
}

Document Document::from_text(std::string_view text, const std::string& file, const std::vector<std::string>& sets) {
  return from_json(parse_json(text, file), file, sets);
}

Document Document::from_json(JsonText parsed, const std::string& file, const std::vector<std::string>& sets) {
  Document document;
  document.file_ = file;
  document.json_ = std::move(parsed.value);
  document.lines_ = std::move(parsed.lines);
  document.problems_ = std::move(parsed.problems);
  if (!document.json_.is_object()) {
    document.problems_.push_back(
        {file + ":1", "", "a scenario is a JSON object {...}", "Copy scenarios/baseline.json."});
    throw BadInput(std::move(document.problems_));
  }
  for (const std::string& set : sets) {
    try {
      document.apply(set);
    } catch (const BadInput& bad) {
      document.problems_.insert(document.problems_.end(), bad.problems().begin(), bad.problems().end());
    }
  }
  for (const std::string& section : kSections) document.inline_section(section);
  return document;
}

std::string Document::place(std::string pointer) const {
  for (;;) {
    if (const auto option = options_.find(pointer); option != options_.end()) return option->second;
    const std::string section = section_of(pointer);
    const auto inlined = inlined_.find(section);
    if (inlined != inlined_.end() && pointer != section) {
      const auto line = inlined->second.lines.find(pointer.substr(section.size()));
      if (line != inlined->second.lines.end()) return fmt::format("{}:{}", inlined->second.file, line->second);
    } else if (const auto line = lines_.find(pointer); line != lines_.end()) {
      return fmt::format("{}:{}", file_, line->second);
    }
    if (pointer.empty()) return file_;
    pointer.resize(pointer.rfind('/'));
  }
}

Problem Document::problem(const std::string& pointer, std::string what, std::string next) const {
  return {place(pointer), dotted(pointer), std::move(what), std::move(next)};
}

void Document::forget_places(const std::string& pointer) {
  const auto forget = [&](auto& places, const std::string& prefix) {
    std::erase_if(places, [&](const auto& entry) {
      return entry.first == prefix || entry.first.compare(0, prefix.size() + 1, prefix + '/') == 0;
    });
  };
  forget(lines_, pointer);
  forget(options_, pointer);
  inlined_.erase(pointer);
}

void Document::apply(const std::string& set) {
  const std::string option = "--set " + (set.size() > 120 ? set.substr(0, 120) + "..." : set);
  if (!is_utf8(set)) throw BadInput(option, "the option is not UTF-8", "A terminal set to UTF-8 writes it as such.");
  const std::size_t equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw BadInput(option, "a key and a value are expected: key.path=value", "For example --set steps=5.");
  }
  const std::vector<std::string> steps = split(set.substr(0, equals));
  if (steps.size() > std::size_t(kJsonDepthMax))
    throw BadInput(option, fmt::format("the key has {} parts; at most {} are read", steps.size(), kJsonDepthMax),
                   "`seeksim list keys` prints all keys.");
  if (steps.size() > 1 && std::find(kSections.begin(), kSections.end(), steps[0]) != kSections.end())
    inline_section(steps[0]);
  Json value = value_of(set.substr(equals + 1), option);
  std::string pointer;
  Json* target = descend(steps, option, pointer);
  forget_places(pointer);
  options_[pointer] = option;
  *target = std::move(value);
}

// The value that a --set names, made where it is not there yet: an unknown key is for the schema to tell.
Json* Document::descend(const std::vector<std::string>& steps, const std::string& option, std::string& pointer) {
  Json* at = &json_;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string& step = steps[i];
    const std::string here = pointer.empty() ? "the scenario" : '"' + dotted(pointer) + '"';
    if (step.empty()) throw BadInput(option, "a part of the key is empty", "Parts are separated by single dots.");
    if (at->is_null() && i > 0) *at = is_number(step) ? Json::array() : Json::object();
    if (at->is_array()) {
      const std::size_t index = is_number(step) ? std::stoul(step) : at->size() + 1;
      if (index > at->size()) {
        throw BadInput(option,
                       fmt::format("{} is a list of {}, and {} is no place in it", here, at->size(), in_quotes(step)),
                       fmt::format("Use a number from 0 to {} (the last appends).", at->size()));
      }
      if (index == at->size()) at->push_back(nullptr);
      at = &(*at)[index];
    } else if (at->is_object()) {
      at = &(*at)[step];
    } else {
      throw BadInput(option, fmt::format("{} is a plain value, so it has no {}", here, in_quotes(step)),
                     fmt::format("Set {} itself.", here));
    }
    pointer += '/' + pointer_step(step);
    if (at->is_null()) options_.emplace(pointer, option);
  }
  return at;
}

void Document::inline_section(const std::string& name) {
  const auto section = json_.find(name);
  if (section == json_.end() || !section->is_string()) return;
  const std::string given = section->get<std::string>();
  const std::string pointer = '/' + name, at = place(pointer);
  Inlined inlined;
  try {
    inlined.file = resolve(given, file_, at);
    // A folder as Hugging Face keeps models.
    if (name == "model" && std::filesystem::is_directory(inlined.file)) inlined.file += "/config.json";
    JsonText parsed = parse_ds_config(read_file(inlined.file, kJsonBytesMax, at), inlined.file);
    problems_.insert(problems_.end(), parsed.problems.begin(), parsed.problems.end());
    json_[name] = std::move(parsed.value);
    inlined.lines = std::move(parsed.lines);
  } catch (const BadInput& bad) {
    problems_.insert(problems_.end(), bad.problems().begin(), bad.problems().end());
    throw BadInput(std::move(problems_));  // without it, every other complaint would be a guess
  }
  inlined_[pointer] = std::move(inlined);
}

}  // namespace seeksim::harness
