#include "harness/html/redact.h"

#include <unistd.h>

#include <array>
#include <cctype>

#include <nlohmann/json.hpp>

namespace seeksim::harness::html {
namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

// Where it stands as a word of its own.
void replace_word(std::string& text, const std::string& word, const std::string& by) {
  if (word.empty()) return;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const std::size_t end = at + word.size();
    const bool whole = (at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]));
    if (whole) text.replace(at, word.size(), by);
    at += whole ? by.size() : word.size();
  }
}

bool ends_word(char c) { return std::string_view(" \t\n\"'()[]{},;=").find(c) != std::string_view::npos; }

bool is_path(std::string_view word) {
  const std::size_t slash = word.find('/');
  if (slash == std::string_view::npos) return false;
  for (const char c : word) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) return true;
  }
  return word.size() > 1 && slash == 0;
}

std::string without_paths(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !ends_word(text[end])) ++end;
    std::size_t last = end;  // without the point or colon of its sentence
    while (last > at && (text[last - 1] == ':' || text[last - 1] == '.')) --last;
    const std::string_view word = std::string_view(text).substr(at, last - at);
    out += is_path(word) ? std::string_view("[path]") : word;
    out += std::string_view(text).substr(last, end - last);
    if (end < text.size()) out += text[end++];
    at = end;
  }
  return out;
}

}  // namespace

Redaction::Redaction(bool on, std::string scenario, std::string host)
    : on_(on), scenario_(std::move(scenario)), host_(std::move(host)) {}

std::string Redaction::of(const std::string& text) const {
  if (!on_) return text;
  std::string out = without_paths(text);
  replace_word(out, scenario_, "[scenario]");
  replace_word(out, host_, "[host]");
  return out;
}

Json Redaction::report(const Json& given) const {
  if (!on_) return given;
  if (given.is_string()) return of(given.get<std::string>());
  if (given.is_array()) {
    Json out = Json::array();
    for (const Json& one : given) out.push_back(report(one));
    return out;
  }
  if (!given.is_object()) return given;
  Json out = Json::object();
  for (const auto& [key, value] : given.items()) out[of(key)] = report(value);
  return out;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

}  // namespace seeksim::harness::html
