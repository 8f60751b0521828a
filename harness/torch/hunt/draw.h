// The next case of a hunt: by chance, but so that it covers pairs of features that no case before it had.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {

// Features that the framework refuses together, as it turned out.
struct Refusal {
  Case part;          // the wrapper, and what is not plain
  std::string words;  // the framework's own
  int times = 1;
};

// What may be drawn, and what has been.
class Coverage {
 public:
  // only: values of some features, as "wrapper=ddp,fsdp1"; the others have all of theirs. Throws BadInput.
  explicit Coverage(const std::vector<std::string>& only);

  // A case was held to the training by hand.
  void add(const Case& held);
  void add(const std::string& pair) { covered_.insert(pair); }
  // A refusal: it, and its pairs, are not drawn any more.
  void refuse(const Case& part);

  const Pairs& covered() const { return covered_; }
  // How many pairs there are that nothing speaks against.
  std::size_t possible() const { return possible_.size(); }
  const std::map<std::string, std::vector<std::string>>& values() const { return values_; }

  // The case with this number. The same seed, number and coverage give the same one.
  Case draw(std::uint64_t seed, int number) const;

 private:
  struct Pair {
    std::string a, of_a, b, of_b;
  };
  bool there_is(const Pair& pair) const;
  bool may_be(const Case& drawn) const;
  bool none_refused(const Case& drawn) const;
  std::vector<std::string> missing() const;

  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, Pair> possible_;  // by their words
  Pairs covered_;
  std::vector<Case> refused_;
};

}  // namespace seeksim::harness::torch
