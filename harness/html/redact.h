// --redact: a report without what tells whose it is: names given by users, paths, host names.
#pragma once

#include <string>

#include "harness/input/json.h"

namespace seeksim::harness::html {

class Redaction {
 public:
  // on: false: everything passes as it is. scenario: its name, wherever it stands. host: this machine's name.
  Redaction(bool on, std::string scenario, std::string host);
  // Words with a slash become "[path]", the host's name "[host]", the scenario's name "[scenario]".
  std::string of(const std::string& text) const;
  // Every string of a report, keys too.
  Json report(const Json& given) const;
  bool on() const { return on_; }

 private:
  bool on_;
  std::string scenario_, host_;
};

// gethostname(); empty where it is not known.
std::string host_name();

}  // namespace seeksim::harness::html
