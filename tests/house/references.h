// References of the project's texts: paths, links, anchors, rules of the numeric contract and scenarios. Each rule is
// judged by a file and the tree alone, so that a test can hand in a planted violation as easily as a real file.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/source_rules.h"
#include "tests/house/tree.h"

namespace seeksim::house {

// What there is to point to.
class Targets {
 public:
  explicit Targets(const std::vector<File>& files);
  // A file or a folder, by its path from the top; '*' stands for anything but a slash.
  bool has(std::string_view path) const;
  // A file of this name, in any folder.
  bool has_name(std::string_view name) const;
  // A heading or <a id> of a Markdown page, as GitHub and mkdocs spell it.
  bool has_anchor(std::string_view page, std::string_view anchor) const;
  // A header that some source includes in <>: "nccl.h" is a library's.
  bool is_of_a_library(std::string_view header) const { return library_headers_.count(header) > 0; }
  // A folder on top, such as "runtime".
  bool is_top(std::string_view folder) const { return tops_.count(folder) > 0; }

 private:
  std::set<std::string, std::less<>> paths_, names_, tops_, library_headers_;
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> anchors_;
};

// [text](target#anchor) and ![picture](target) of a Markdown page, outside of code. Addresses of the web are not looked
// at. A page of docs/ links to pages of docs/ only, since the site holds no others.
std::vector<Violation> check_links(const File& file, const Targets& targets);

// Paths that begin with a folder on top ("runtime/seams/op.h"), and names of files without one: in `code` of Markdown
// and in comments of sources. Placeholders (x.json, NAME.json, <file>) are free.
std::vector<Violation> check_paths(const File& file, const Targets& targets);

// What Markdown and comments cite of docs/numerics.md: "(R7)", "numerics.md, F3", "numerics.md, "Forms"".
std::vector<Violation> check_rules(const File& file, const Targets& targets);

// Exhibits and scenarios that commands in Markdown name: `seeksim museum NAME`.
std::vector<Violation> check_exhibits(const File& file, const Targets& targets);

// A scenario begins with "$schema", a path from its own folder that is there: editors complete and check its keys by
// it.
std::vector<Violation> check_schema(const File& file, const Targets& targets);

// Pages of docs/ that mkdocs.yml does not list.
std::vector<Violation> unlisted_pages(const std::vector<File>& files);

// Markdown: no line over 100 columns outside of tables and generated parts; README.md at most 120 lines, a page of
// docs/ that is not generated at most 200.
std::vector<Violation> check_size(const File& file);

}  // namespace seeksim::house
