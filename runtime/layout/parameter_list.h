// What a family's list of parameters is made with: names that outlive every run, and the entries in registration order.
#pragma once

#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

// Ops of a finished run still point to the names of parameters: a family keeps one of these for ever. A constant table.
class LayerNames {
 public:
  static constexpr int kLayersMax = 256;

  // "prefix.layer.part"
  LayerNames(const char* prefix, std::span<const char* const> parts)
      : parts_(parts.size()), names_(std::size_t(kLayersMax) * parts.size()) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      std::snprintf(names_[i].data(), names_[i].size(), "%s.%zu.%s", prefix, i / parts_, parts[i % parts_]);
    }
  }
  template <class Part>
  const char* of(int layer, Part part) const {
    SEEKSIM_CHECK(layer < kLayersMax, "%d layers; names are made for %d", layer + 1, kLayersMax);
    return names_[std::size_t(layer) * parts_ + std::size_t(part)].data();
  }

 private:
  std::size_t parts_;
  std::vector<std::array<char, 64>> names_;
};

class ParameterList {
 public:
  // decay_all: weight decay on every tensor, else on matrices only.
  explicit ParameterList(bool decay_all) : decay_all_(decay_all) {}

  void begin_module(int module) { module_ = module; }
  // What tensor parallelism may split, by slabs of `slab_rows` rows.
  template <class Part>
  void split(Part part, const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout) {
    add(int(part), name, std::move(shape), slab_rows, init, layout);
  }
  template <class Part>
  void whole(Part part, const char* name, std::vector<Index> shape, Init init) {
    add(int(part), name, std::move(shape), 0, init, HfLayout::same);
  }
  // What several experts have of a part, one below the other: an expert is a slab, or has several of `slab_rows` rows
  // that tensor parallelism may split.
  template <class Part>
  void experts(Part part, const char* name, std::vector<Index> shape, Index count, Index slab_rows, Init init,
               HfLayout layout) {
    add(int(part), name, std::move(shape), slab_rows, init, layout);
    if (slab_rows == 0) all_.back().slab /= count;
    all_.back().experts = int(count);
  }
  // Of the last one: a row is what an input of the layer does.
  void rows_are_inputs() { all_.back().rows_are_inputs = true; }
  std::vector<ParameterInfo> take() { return std::move(all_); }

 private:
  void add(int part, const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout) {
    ParameterInfo info;
    info.name = name;
    info.decays = decay_all_ || shape.size() > 1;
    info.shape = std::move(shape);
    info.splits = slab_rows > 0;
    info.slab = (slab_rows > 0 ? slab_rows : info.rows()) * info.cols();
    info.init = init;
    info.layout = layout;
    info.module = module_;
    info.part = part;
    all_.push_back(std::move(info));
  }

  bool decay_all_;
  int module_ = 0;
  std::vector<ParameterInfo> all_;
};

}  // namespace seeksim::runtime
