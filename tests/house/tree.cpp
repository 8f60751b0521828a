#include "tests/house/tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/paths.h"

namespace seeksim::house {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::vector<File> files_of_the_tree() {
  const fs::path top = seeksim::paths::source_dir();
  std::vector<File> files;
  for (fs::recursive_directory_iterator it(top), end; it != end; ++it) {
    const std::string name = it->path().filename().string();
    const bool top_level = it.depth() == 0;
    const bool hidden = name.starts_with(".") && name != ".ci";
    if (it->is_symlink() || hidden || (top_level && (name.starts_with("build") || name == "out"))) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || it->file_size() > (32U << 20)) continue;
    files.push_back({it->path().lexically_relative(top).generic_string(), read(it->path())});
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

bool is_source(std::string_view path) {
  static const std::array<std::string, 7> kEnds = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh", ".inl"};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](const std::string& end) { return path.ends_with(end); });
}

bool is_markdown(std::string_view path) { return path.ends_with(".md"); }

bool is_generated(std::string_view path) { return path.starts_with("docs/reference/"); }

std::string listing(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) text += violation.text() + "\n";
  return text;
}

}  // namespace seeksim::house
