#include "harness/torch/check/command_words.h"

#include <cstring>
#include <sstream>

namespace seeksim::harness::torch {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

std::string with_folder(std::string word, const std::string& folder) {
  for (std::size_t at = word.find(kFolderWord); at != std::string::npos;
       at = word.find(kFolderWord, at + folder.size()))
    word.replace(at, std::strlen(kFolderWord), folder);
  return word;
}

}  // namespace seeksim::harness::torch
