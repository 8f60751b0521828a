// A script's arguments with a folder in them.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness::torch {

// What stands for the folder of checkpoints, in a script's arguments and in --resume.
inline constexpr const char* kFolderWord = "{dir}";

// A text's words, as they stand between blanks.
std::vector<std::string> words_of(const std::string& text);
// The word with a folder in the place of each {dir}.
std::string with_folder(std::string word, const std::string& folder);

}  // namespace seeksim::harness::torch
