// Lines of a Python program.
#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {

Lines& Lines::add(int depth, const std::string& text) {
  if (!text.empty()) text_ += std::string(std::size_t(depth) * 4, ' ') + text;
  text_ += '\n';
  return *this;
}

Lines& Lines::add_block(int depth, const Lines& block) {
  for (std::size_t at = 0; at < block.text_.size();) {
    const std::size_t end = block.text_.find('\n', at);
    add(depth, block.text_.substr(at, end - at));
    at = end + 1;
  }
  return *this;
}

}  // namespace seeksim::harness::torch
