// What `seeksim torch hunt` draws: features of a model and of its training, ways to distribute it, and which of them do
// not go together.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/torch/table/table_file.h"

namespace seeksim::harness::torch {

// A value for each feature, also for those that mean nothing in it: these have their plain value.
using Case = Cell;

// One row a feature.
struct Feature {
  std::string name;
  std::vector<std::string> values;    // the first is the plain one: a finding is made as plain as it stays red
  std::vector<std::string> wrappers;  // with which it means something; empty: with all
  bool of_plain;                      // the training by hand depends on it, too
  std::string key;                    // of DeepSpeed's zero_optimization, whose value is the feature's; "": none
  std::string description;
};
const std::vector<Feature>& features();
const Feature& feature(const std::string& name);

// Whether the feature means something in this case.
bool applies(const Feature& feature, const Case& drawn);
// All that means nothing set to its plain value.
Case normal(Case drawn);
// The plain case of a wrapper.
Case plain_case(const std::string& wrapper);

// What frameworks say that they do not do, or what differs by design: a reason each.
const std::vector<Rule>& impossible();
// Why a case cannot be; empty: it can.
std::string cannot_be(const Case& drawn);

// What a case is held to against the training by hand, and why it is not "bits".
Rule expected_of(const Case& drawn);

// Adds a wrapper's name, and leaves it out of the features that are not shared with it.
void add_wrapper(std::vector<Feature>& to, const std::string& wrapper, const std::vector<std::string>& shared);

// Pipelines, with which each rank has some layers only: adds them, and the features that only they have.
void add_pipe_features(std::vector<Feature>& to);
std::vector<Rule> impossible_of_pipe();
const std::vector<Rule>& expected_of_pipe();
bool is_pipe(const Case& drawn);

// Tensor parallel layers, whose ranks have a part of each weight: the same.
void add_tensor_features(std::vector<Feature>& to);
std::vector<Rule> impossible_of_tensors();
const std::vector<Rule>& expected_of_tensors();
bool is_tensors(const Case& drawn);

// The same of torch's own pipelines.
void add_stages_features(std::vector<Feature>& to);
std::vector<Rule> impossible_of_stages();
const std::vector<Rule>& expected_of_stages();
bool is_stages(const Case& drawn);

// The same of DeepSpeed's expert layer, of whose experts a rank has some.
void add_moe_features(std::vector<Feature>& to);
std::vector<Rule> impossible_of_moe();
const std::vector<Rule>& expected_of_moe();
bool is_moe(const Case& drawn);

// A feature that means something only beside certain values of another one, of which a case gets the first.
struct Need {
  std::string name, other;
  std::vector<std::string> values;
  std::string wrapper = "";  // with which it is so; "": with all
};
const std::vector<Need>& needs_of_stages();
const std::vector<Need>& needs_of_moe();

// Options of DDP and FSDP: the same of them.
std::vector<Feature> torch_options();
std::vector<Need> needs_of_torch_options();
std::vector<Rule> impossible_of_torch_options();

// "wrapper=zero3, tied=on": the wrapper and all that is not plain.
std::string case_text(const Case& drawn);
// The reverse, without spaces or with them. Throws BadInput.
Case case_of(const std::string& text);
// Features that are not plain, but for the wrapper.
std::vector<std::string> not_plain(const Case& drawn);

// Two features with their values: "reused=on & tied=on".
using Pairs = std::set<std::string>;
// The pairs that a case holds, of features that mean something in it.
Pairs pairs_of(const Case& drawn);
// A case that holds these two values; none: there is none.
std::optional<Case> with_both(const Feature& a, const std::string& of_a, const Feature& b, const std::string& of_b,
                              const std::string& wrapper);
// Whether each feature of a part, which may name some of them only, has its value in the case.
bool holds(const Case& drawn, const Case& part);

}  // namespace seeksim::harness::torch
