// config.json of Hugging Face for a model that is saved: what transformers needs to load it.
#pragma once

#include "harness/input/json.h"
#include "runtime/plan/plan.h"

namespace seeksim::harness {

// dtype: as torch calls it, "float32". A model of one's own has no such config: null.
Json hugging_face_config(const runtime::ModelPlan& model, const char* dtype);

}  // namespace seeksim::harness
