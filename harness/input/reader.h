// Reads values out of a document by name. Tolerant on purpose: what has the wrong type was already reported against the
// schema, so a reader takes the default and goes on, and the meaning of all the rest is still checked in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/input/document.h"
#include "harness/input/limits.h"

namespace seeksim::harness {

// Problems found so far, with the document that says where things are.
class Findings {
 public:
  explicit Findings(const Document& document) : document_(document), problems_(document.problems()) {}
  void add(const std::string& pointer, std::string what, std::string next) {
    if (full())
      ++more_;
    else
      problems_.push_back(document_.problem(pointer, std::move(what), std::move(next)));
  }
  void add(Problem problem) {
    if (full())
      ++more_;
    else
      problems_.push_back(std::move(problem));
  }
  bool full() const { return problems_.size() >= kProblemsTold; }  // further ones are only counted
  std::string place(const std::string& pointer) const { return document_.place(pointer); }
  const Document& document() const { return document_; }
  bool empty() const { return problems_.empty(); }
  std::vector<Problem> take() {
    if (more_ > 0)
      problems_.push_back({"", "", "and at least " + std::to_string(more_) + " more", "Mend these first."});
    return std::move(problems_);
  }

 private:
  const Document& document_;
  std::vector<Problem> problems_;
  std::size_t more_ = 0;
};

// One object of the document.
class Reader {
 public:
  Reader(const Json& value, std::string pointer, Findings& findings)
      : value_(value.is_object() ? &value : nullptr), pointer_(std::move(pointer)), findings_(&findings) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  std::string at(const char* key) const { return pointer_ + '/' + key; }
  const std::string& pointer() const { return pointer_; }

  Reader child(const char* key) const {
    static const Json kNothing;
    const Json* found = find(key);
    return Reader(found ? *found : kNothing, at(key), *findings_);
  }
  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    const Json* found = find(key);
    return found && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
  }
  std::uint64_t natural(const char* key, std::uint64_t otherwise) const {
    const Json* found = find(key);
    return found && found->is_number_integer() ? found->get<std::uint64_t>() : otherwise;
  }
  double number(const char* key, double otherwise) const {
    const Json* found = find(key);
    return found && found->is_number() ? found->get<double>() : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* found = find(key);
    return found && found->is_boolean() ? found->get<bool>() : otherwise;
  }
  std::string text(const char* key, std::string otherwise = "") const {
    const Json* found = find(key);
    return found && found->is_string() ? found->get<std::string>() : otherwise;
  }
  const Json* find(const char* key) const {
    if (value_ == nullptr) return nullptr;
    const auto found = value_->find(key);
    return found == value_->end() ? nullptr : &*found;
  }
  const Json* value() const { return value_; }
  Findings& findings() const { return *findings_; }
  void problem(const char* key, std::string what, std::string next) const {
    findings_->add(key[0] ? at(key) : pointer_, std::move(what), std::move(next));
  }

 private:
  const Json* value_;
  std::string pointer_;
  Findings* findings_;
};

// Reports a folder of the run's files that would lie elsewhere than below the run's own.
inline void refuse_to_leave(const Reader& reader, const char* key) {
  const std::string path = '/' + reader.text(key) + '/';
  if (path.find("/../") == std::string::npos && path.find('\0') == std::string::npos) return;
  reader.problem(key, "\"..\" or a zero byte in the name of a folder",
                 "Files of a run stay below --out: name a folder in it.");
}

}  // namespace seeksim::harness
