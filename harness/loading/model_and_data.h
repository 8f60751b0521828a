// Loading what is trained and what it is trained on: the model's shape and frozen parameters, texts and given batches,
// weights to start from. Files are read now and checked against the model, so that a wrong one is a message.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<Scenario>& model_keys();
std::vector<std::string> model_key_names();
const Keys<Scenario>& data_keys();

void read_model(const Reader& model, Scenario& scenario);
void read_data(const Reader& data, Scenario& scenario);                // after the model
void check_given_batch(const Reader& data, const Scenario& scenario);  // after DeepSpeed's part
// given: the file that --init named; empty: the model's own key says.
void read_init(const Reader& top, const std::string& given, Scenario& scenario);

}  // namespace seeksim::harness
