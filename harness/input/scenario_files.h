// Scenarios as files: those of a folder, and where one that is not there may have gone.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

// Every scenario below `folder`, its subfolders included, sorted by path. Other JSON files (a schema, a ds_config, a
// report) are left out; a file that is no JSON stays in, so that loading it says what is wrong. Throws BadInput where
// the folder cannot be read.
std::vector<std::string> scenarios_below(const std::string& folder);

// The file of a scenario that is called by its name alone: one below scenarios/ in the working folder, or one that
// comes with seeksim, "nccl_timeout". Names of files and folders that are there, names with a slash or an ending, and
// names that no scenario or several have, stay as they are.
std::string scenario_named(const std::string& name);

// Files, folders and names as a user gives them: each folder gives its scenarios. Throws BadInput for a folder without
// any.
std::vector<std::string> with_folders_expanded(const std::vector<std::string>& names);

// The folder of the scenarios that come with seeksim: "scenarios" where the working folder is seeksim's own.
std::string scenarios_folder();

// For a scenario file that does not exist: `Did you mean scenarios/deaths/rank_returns.json?`. The search goes by the
// file's name, then by a scenario's "name", then by spelling; in the scenarios/ that the path names, then in those that
// come with seeksim. Empty when nothing is near.
std::string where_it_may_be(const std::string& missing);

}  // namespace seeksim::harness
