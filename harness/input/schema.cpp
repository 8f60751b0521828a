#include "harness/input/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "harness/input/keys.h"
#include "harness/input/limits.h"
#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

std::string type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    default:
      return "a number";
  }
}

std::string wanted(const std::string& type) {
  if (type == "object") return "an object {...}";
  if (type == "array") return "a list [...]";
  if (type == "integer") return "an integer";
  if (type == "number") return "a number";
  if (type == "string") return "a string";
  if (type == "boolean") return "true or false";
  return type;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  return value.is_null();
}

std::vector<std::string> strings(const Json& schema, const char* key) {
  std::vector<std::string> out;
  const auto found = schema.find(key);
  if (found == schema.end()) return out;
  if (found->is_string()) return {found->get<std::string>()};
  for (const Json& one : *found) out.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  return out;
}

std::string shown(const Json& value) {
  if (value.is_structured()) return type_of(value);
  return in_quotes(value.is_string() ? value.get_ref<const std::string&>() : value.dump());
}

class Explainer {
 public:
  std::vector<SchemaProblem> take() { return std::move(problems_); }

  void visit(const Json& schema, const Json& value, const std::string& pointer) {
    if (!type_fits(schema, value, pointer) || !enum_fits(schema, value, pointer)) return;
    if (value.is_object()) object(schema, value, pointer);
    if (value.is_array()) array(schema, value, pointer);
    if (value.is_number()) number(schema, value, pointer);
    if (value.is_string()) text(schema, value, pointer);
  }

 private:
  // Beyond what anybody is told: that there is one more is enough.
  bool full() const { return problems_.size() >= kProblemsTold; }
  void add(const std::string& pointer, std::string what, std::string next) {
    problems_.push_back({pointer, std::move(what), std::move(next)});
  }

  bool type_fits(const Json& schema, const Json& value, const std::string& pointer) {
    const std::vector<std::string> types = strings(schema, "type");
    if (types.empty()) return true;
    std::vector<std::string> names;
    for (const std::string& type : types) {
      if (has_type(value, type)) return true;
      names.push_back(wanted(type));
    }
    std::string next;
    const bool number = types[0] == "integer" || types[0] == "number";
    if (value.is_string() && number) next = "Write it without quotes.";
    if (value.is_string() && types[0] == "boolean") next = "Write true or false without quotes.";
    if (value.is_number_float() && types[0] == "integer") next = "Write a whole number.";
    const std::string found =
        value.is_structured() || value.is_null() ? type_of(value) : type_of(value) + ' ' + shown(value);
    add(pointer, fmt::format("{} was expected, found {}", fmt::join(names, " or "), found), next);
    return false;
  }

  bool enum_fits(const Json& schema, const Json& value, const std::string& pointer) {
    const auto choices = schema.find("enum");
    if (choices == schema.end() || schema.contains(kReaderSays)) return true;
    for (const Json& choice : *choices) {
      if (choice == value) return true;
    }
    const std::vector<std::string> names = strings(schema, "enum");
    const std::string near = value.is_string() ? closest(value.get_ref<const std::string&>(), names) : "";
    add(pointer, fmt::format("{} is not one of: {}", shown(value), fmt::join(names, ", ")),
        near.empty() ? "" : fmt::format("Did you mean \"{}\"?", near));
    return false;
  }

  void object(const Json& schema, const Json& value, const std::string& pointer) {
    const auto properties = schema.find("properties");
    const auto closed = schema.find("additionalProperties");
    for (const std::string& key : strings(schema, "required")) {
      if (!value.contains(key)) add(pointer, fmt::format("the key \"{}\" is missing", key), about(schema, key));
    }
    bool unknown = false;
    for (const auto& [key, member] : value.items()) {
      const std::string child = pointer + '/' + pointer_step(key);
      if (properties != schema.end() && properties->contains(key)) {
        visit((*properties)[key], member, child);
      } else if (closed != schema.end() && closed->is_object()) {
        visit(*closed, member, child);
      } else if (closed != schema.end() && *closed == false) {
        unknown = true;
        std::vector<std::string> known;
        if (full()) {
          add(child, "unknown key", "");
          continue;
        }
        for (const auto& property : properties->items()) known.push_back(property.key());
        add(child, fmt::format("unknown key {}", in_quotes(key)), did_you_mean(key, known));
      }
    }
    const auto limit = [&](const char* name, std::size_t otherwise) {
      const auto found = schema.find(name);
      return found == schema.end() ? otherwise : found->get<std::size_t>();
    };
    if (value.size() < limit("minProperties", 0) && !unknown) add(pointer, "an object with a key was expected", "");
    if (value.size() > limit("maxProperties", value.size()))
      add(pointer, "only one key may be here", "Write several entries.");
  }

  // What the schema says about a key that is missing.
  static std::string about(const Json& schema, const std::string& key) {
    const auto properties = schema.find("properties");
    if (properties == schema.end() || !properties->contains(key)) return "";
    return "Add it: " + (*properties)[key].value("description", "");
  }

  void array(const Json& schema, const Json& value, const std::string& pointer) {
    const auto bound = [&](const char* key, const char* word, bool less) {
      const auto found = schema.find(key);
      if (found == schema.end()) return;
      const auto limit = found->get<std::size_t>();
      if (less ? value.size() < limit : value.size() > limit) {
        add(pointer, fmt::format("a list of {} {} was expected, found {}", word, limit, value.size()), "");
      }
    };
    bound("minItems", "at least", true);
    bound("maxItems", "at most", false);
    const auto items = schema.find("items");
    if (items == schema.end()) return;
    for (std::size_t i = 0; i < value.size(); ++i) visit(*items, value[i], pointer + '/' + std::to_string(i));
  }

  void number(const Json& schema, const Json& value, const std::string& pointer) {
    const double v = value.get<double>();
    const auto bound = [&](const char* key, const char* relation, auto holds) {
      const auto found = schema.find(key);
      if (found == schema.end() || holds(v, found->get<double>())) return;
      add(pointer, fmt::format("{} is out of range: it must be {} {}", value.dump(), relation, found->dump()), "");
    };
    bound("minimum", "at least", [](double a, double b) { return a >= b; });
    bound("maximum", "at most", [](double a, double b) { return a <= b; });
    bound("exclusiveMinimum", "greater than", [](double a, double b) { return a > b; });
    bound("exclusiveMaximum", "less than", [](double a, double b) { return a < b; });
  }

  void text(const Json& schema, const Json& value, const std::string& pointer) {
    const std::size_t length = value.get_ref<const std::string&>().size();
    if (schema.contains("minLength") && length < schema["minLength"].get<std::size_t>()) {
      add(pointer, "an empty string", "Write something there, or remove the key.");
    }
    if (schema.contains("maxLength") && length > schema["maxLength"].get<std::size_t>()) {
      add(pointer, fmt::format("{} characters; at most {} are allowed", length, schema["maxLength"].dump()), "");
    }
  }

  std::vector<SchemaProblem> problems_;
};

// "1 to 8", "at least 1", "above 0 and below 1".
std::string limits_of(const Json& schema) {
  const auto bound = [&](const char* key) { return schema.contains(key) ? schema[key].dump() : std::string(); };
  const std::string least = bound("minimum"), most = bound("maximum");
  if (!least.empty() && !most.empty()) return least + " to " + most;
  std::vector<std::string> parts;
  const auto say = [&](const char* words, const std::string& limit) {
    if (!limit.empty()) parts.push_back(fmt::format("{} {}", words, limit));
  };
  say("at least", least);
  say("above", bound("exclusiveMinimum"));
  say("at most", most);
  say("below", bound("exclusiveMaximum"));
  return fmt::format("{}", fmt::join(parts, " and "));
}

void collect_keys(const Json& schema, const std::string& path, std::vector<KeyInfo>& out) {
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return;
  const std::vector<std::string> required = strings(schema, "required");
  for (const auto& [key, inner] : properties->items()) {
    KeyInfo info;
    info.path = path + key;
    info.type = fmt::format("{}", fmt::join(strings(inner, "type"), "|"));
    if (inner.contains("enum") && !inner.contains(kReaderSays))
      info.type = fmt::format("{}", fmt::join(strings(inner, "enum"), "|"));
    info.limits = limits_of(inner);
    if (inner.contains("default")) info.standard = inner["default"].dump();
    if (std::find(required.begin(), required.end(), key) != required.end()) info.standard = "required";
    info.text = inner.value("description", "");
    info.decides_bits = inner.value(kDecidesBits, false);
    out.push_back(info);
    collect_keys(inner, info.path + '.', out);
    if (inner.contains("items")) collect_keys(inner["items"], info.path + ".N.", out);
  }
}

}  // namespace

std::vector<SchemaProblem> explain(const Json& schema, const Json& value) {
  Explainer explainer;
  explainer.visit(schema, value, "");
  return explainer.take();
}

std::vector<KeyInfo> schema_keys(const Json& schema) {
  std::vector<KeyInfo> keys;
  collect_keys(schema, "", keys);
  return keys;
}

}  // namespace seeksim::harness
