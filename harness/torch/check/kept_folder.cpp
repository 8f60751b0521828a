#include "harness/torch/check/kept_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/input/problem.h"

namespace seeksim::harness::torch {

namespace fs = std::filesystem;

KeptFolder::KeptFolder(const std::string& given, const std::string& word) : path_(given), temporary_(given.empty()) {
  if (temporary_) {
    path_ = (fs::temp_directory_path() / fmt::format("seeksim-{}-XXXXXX", word)).string();
    if (::mkdtemp(path_.data()) == nullptr)
      throw BadInput(path_, fmt::format("no temporary folder: {}", std::strerror(errno)), "Use --out FOLDER.");
  } else {
    make_folder(path_, "--out");
  }
  path_ = fs::absolute(path_).string();
}

KeptFolder::~KeptFolder() {
  std::error_code ignored;
  if (temporary_ && !kept_) fs::remove_all(path_, ignored);
}

}  // namespace seeksim::harness::torch
