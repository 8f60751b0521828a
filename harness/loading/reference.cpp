#include "harness/loading/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/input/schema.h"
#include "harness/loading/scenario_json.h"

namespace seeksim::harness {
namespace {

// ---- schema.json ---------------------------------------------------------------------------------------------------

// Objects with keys of their own are opened up; all else stands on a line.
bool is_open(const Json& value) {
  if (value.is_object() && value.contains("properties")) return true;
  return value.is_object() && value.contains("items") && is_open(value["items"]);
}

std::string on_one_line(const Json& value) {
  if (value.is_object() && !value.empty()) {
    std::string members;
    for (const auto& [key, member] : value.items())
      members += fmt::format("{}{}: {}", members.empty() ? "" : ", ", Json(key).dump(), on_one_line(member));
    return "{ " + members + " }";
  }
  if (value.is_array()) {
    std::string entries;
    for (const Json& entry : value) entries += (entries.empty() ? "" : ", ") + on_one_line(entry);
    return '[' + entries + ']';
  }
  return value.dump();
}

void print(const Json& value, const std::string& indent, std::string& out) {
  out += "{\n";
  std::size_t left = value.size();
  for (const auto& [key, member] : value.items()) {
    out += fmt::format("{}  {}: ", indent, Json(key).dump());
    if (is_open(member) || key == "properties") {
      print(member, indent + "  ", out);
    } else {
      out += on_one_line(member);
    }
    out += --left > 0 ? ",\n" : "\n";
  }
  out += indent + '}';
}

// ---- keys.md -------------------------------------------------------------------------------------------------------

constexpr std::size_t kColumns = 100;

// Words, as many to a line as fit; further lines begin with the indent.
std::string folded(const std::string& text, const std::string& indent) {
  std::string out, line;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t space = std::min(text.find(' ', from), text.size());
    const std::string word = text.substr(from, space - from);
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      out += line + '\n';
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
    from = space + 1;
  }
  return out + line + '\n';
}

// What Markdown would take for something else.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '*' || c == '_' || c == '<' || c == '[') out += '\\';
    out += c;
  }
  return out;
}

std::string item(const KeyInfo& key, const std::string& name) {
  std::string facts;
  for (const char c : key.type) facts += c == '|' ? std::string(" | ") : std::string(1, c);
  if (!key.limits.empty()) facts += ", " + key.limits;
  if (key.standard == "required") facts += "; required";
  if (!key.standard.empty() && key.standard != "required") facts += fmt::format("; default `{}`", key.standard);
  if (key.decides_bits) facts += "; **may decide a bit**";
  return folded(fmt::format("- `{}` ({}). {}", name, facts, plain(key.text)), "  ");
}

std::string parent_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string section(const std::vector<KeyInfo>& keys, const std::string& parent) {
  std::string out;
  for (const KeyInfo& key : keys) {
    if (parent_of(key.path) == parent) out += item(key, key.path.substr(parent.empty() ? 0 : parent.size() + 1));
  }
  return out;
}

}  // namespace

std::string schema_text() { return schema_text(scenario_schema()); }

std::string schema_text(const Json& schema) {
  std::string out;
  print(schema, "", out);
  return out + '\n';
}

std::string key_sections(const Json& schema, const std::string& title) {
  const std::vector<KeyInfo> keys = schema_keys(schema);
  std::string out = "\n## " + title + "\n\n" + section(keys, "");
  for (const KeyInfo& key : keys) {
    for (const std::string& parent : {key.path, key.path + ".N"}) {
      const std::string inner = section(keys, parent);
      if (!inner.empty()) out += fmt::format("\n## {}\n\n{}\n{}", plain(parent), folded(plain(key.text), ""), inner);
    }
  }
  return out;
}

std::string keys_reference() {
  return "# Which keys does a scenario have?\n\n" +
         folded(
             "Each key is a row of a table in `harness/loading/`; this page, `scenarios/schema.json`, the reader and "
             "the "
             "writer follow from the rows. A key that **may decide a bit** belongs to what goldens are keyed by: two "
             "scenarios that differ in no such key end with the same weights, bit for bit. `N` stands for a place in a "
             "list, from 0. Each key can be set from the command line: `--set key.path=value`.",
             "") +
         key_sections(scenario_schema(), "The scenario");
}

}  // namespace seeksim::harness
