// A scenario as JSON, before it means anything: the file, a ds_config.json and a model's config.json named in it, and
// the --set options, with the place where each value came from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/input/json_text.h"

namespace seeksim::harness {

class Document {
 public:
  // Reads and parses; load() puts a small scenario around a ds_config.json. `sets` are "key.path=value", applied in
  // order. Throws BadInput where there is nothing to go on with; what can wait for the other problems is in problems().
  static Document load(const std::string& file, const std::vector<std::string>& sets = {});
  static Document from_text(std::string_view text, const std::string& file, const std::vector<std::string>& sets = {});

  const Json& json() const { return json_; }
  Json& json() { return json_; }
  const std::string& file() const { return file_; }
  const std::vector<Problem>& problems() const { return problems_; }
  // What is to be said of the file itself; empty: nothing.
  const std::string& note() const { return note_; }

  // Where the value at a JSON pointer came from: "x.json:12" or "--set steps=0"; for what is missing, its parent.
  std::string place(std::string pointer) const;
  Problem problem(const std::string& pointer, std::string what, std::string next) const;

 private:
  static Document from_json(JsonText parsed, const std::string& file, const std::vector<std::string>& sets);
  void apply(const std::string& set);
  Json* descend(const std::vector<std::string>& steps, const std::string& option, std::string& pointer);
  void inline_section(const std::string& section);
  void forget_places(const std::string& pointer);

  std::string file_;
  Json json_;
  std::map<std::string, int> lines_;  // pointer -> line of file_
  // A section that was a path: where its members are. By the section's pointer.
  struct Inlined {
    std::string file;
    std::map<std::string, int> lines;  // pointer inside the section -> line
  };
  std::map<std::string, Inlined> inlined_;
  std::map<std::string, std::string> options_;  // pointer -> the --set that gave the value
  std::vector<Problem> problems_;
  std::string note_;
};

}  // namespace seeksim::harness
