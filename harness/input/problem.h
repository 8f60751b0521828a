// What is wrong with what a user gave us: where, what, and what to do next. Collected, never thrown one by one, so that
// a person sees all problems of a scenario at once.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::harness {

struct Problem {
  std::string place;  // "scenarios/x.json:12", "--set steps=abc", "--report"; empty: nowhere in particular
  std::string path;   // "faults.0.rank", as --set would name it; empty: the whole
  std::string what;
  std::string next;  // what to do

  // "scenarios/x.json:12: faults.0.rank: rank 9 is not in a world of 8 ranks. Use 0..7."
  std::string text() const;
};

// Bad scenario, file or usage: exit status 2.
class BadInput : public std::runtime_error {
 public:
  explicit BadInput(std::vector<Problem> problems);
  BadInput(std::string place, std::string what, std::string next);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// Edits (insert, delete, replace, swap of neighbours) between two words; case does not count, '-' and '_' are alike.
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate that a misspelt word most likely meant; empty when none is near.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);
// ` Did you mean "closest"?`, or ` Known: a, b, c.` when none is near and the list is short.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// For messages: quoted, control characters escaped, cut when long.
std::string in_quotes(std::string_view text);

}  // namespace seeksim::harness
