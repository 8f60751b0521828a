// Rows of the tables in bench/published/, and the layouts in them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/calibration/step_times.h"
#include "harness/input/problem.h"

namespace seeksim::harness::calibration {

inline constexpr const char* kPublishedColumns = "id,series,what,platform,layout,size,value,unit,source";

// Fields of a table whose first line names the columns `head`. `file` names it in messages. Throws BadInput with all
// problems.
std::vector<std::vector<std::string>> rows_of(const std::string& csv, const std::string& file, const std::string& head);

// What `of(row, wrong)` makes of each row; it tells in `wrong` what is missing, wrong or unknown there. Throws BadInput
// with all problems.
template <class Of>
auto read_rows(const std::string& csv, const std::string& file, const Of& of) {
  std::string wrong;
  std::vector<decltype(of(std::vector<std::string>(), wrong))> all;
  std::vector<Problem> problems;
  for (const std::vector<std::string>& row : rows_of(csv, file, kPublishedColumns)) {
    wrong.clear();
    all.push_back(of(row, wrong));
    if (!wrong.empty()) problems.push_back({file, row[0], "missing, wrong or unknown:" + wrong, ""});
  }
  if (!problems.empty()) throw BadInput(std::move(problems));
  return all;
}

// "gpus=8 tensor=1": what is asked for by name, and what was not.
class LayoutWords {
 public:
  explicit LayoutWords(const std::string& text);

  std::string word(const std::string& key, const std::string& otherwise = {});
  int whole(const std::string& key, int otherwise = -1, int least = 1);
  // Keys that are missing, wrong or unknown.
  std::string wrong() const;

 private:
  std::map<std::string, std::string> values_;
  std::string wrong_;
};

// The keys of a step, but those of the platform.
void read_step(ModelShape& model, StepLayout& layout, LayoutWords& words);

// A table of the checkout or of the installed program, by its name.
std::string published_file(const std::string& name);
std::string published_table(const std::string& name);

}  // namespace seeksim::harness::calibration
