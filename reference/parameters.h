// The parameters of a model under the names and in the shapes of Hugging Face's files, in the order of the contract.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/training.h"

namespace seeksim::reference {

// What a parameter is for, in a layer or outside of all.
enum class Part : std::uint8_t {
  tokens,
  positions,  // (V, C), (T, C)
  norm1,
  norm1_bias,
  norm2,
  norm2_bias,  // (C)
  qkv,
  qkv_bias,  // GPT-2: (C, 3C), (3C)
  q,
  k,
  v,  // Llama: (H D, C), (K D, C), (K D, C)
  attention_out,
  attention_out_bias,  // GPT-2: (C, C) in -> out; Llama: out -> in
  up,
  up_bias,
  gate,
  down,
  down_bias,  // GPT-2: (C, F), (F, C); Llama: (F, C), (F, C), (C, F)
  norm,
  norm_bias,
  head,  // (C), (C), (V, C)
  router,
  expert_gate,
  expert_up,
  expert_down,  // (E, C); each expert's (F, C), (F, C), (C, F)
  shared_gate,
  shared_up,
  shared_down  // (S F, C), (S F, C), (C, S F), of S shared experts
};

struct Parameter {
  std::string name;
  Part part{};
  int layer = -1;
  int expert = -1;
  int rows = 0, cols = 1;
  enum class Start : std::uint8_t { normal, residual, zeros, ones } start = Start::zeros;
  bool matrix = false;  // decays
  bool frozen = false;
  std::uint32_t stream = 0;  // of its initial values; what is stored together shares one

  std::size_t size() const { return std::size_t(rows) * std::size_t(cols); }
};

std::vector<Parameter> parameters_of(const Model& model);
// Its number in parameters_of(); -1: the model has none.
int find(const std::vector<Parameter>& all, Part part, int layer = -1, int expert = -1);
// Does a pattern in which '*' stands for any characters ask for this name?
bool matches(const std::string& pattern, const std::string& name);

// The first value of an element, and all of them, in the order of the shape.
double initial_value(const Training& t, const Parameter& parameter, std::size_t element);
std::vector<double> initial_values(const Training& t, const Parameter& parameter);

// The number nearest to x that the type can hold, ties to the even one; beyond its range infinity.
double nearest(double x, Type type);
// Half a unit in the last place, relative; and absolute, where the type is denormal. 0: fp32, whose roundings are
// counted with the operations.
double unit_of(Type type);
double tiny_of(Type type);
double largest_of(Type type);

}  // namespace seeksim::reference
