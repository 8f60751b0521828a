// Random scenarios as JSON documents: small models of awkward sizes, any world of up to 8 ranks, any stage, cut,
// precision and schedule. What a test needs can be fixed; everything else is drawn.
#pragma once

#include <rapidcheck.h>

#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/input/json.h"

namespace seeksim::property {

using harness::Json;

struct Wanted {
  int stage = -1;                    // -1: any
  std::string precision;             // "fp32", "bf16", "fp16"; empty: any
  bool formulas = false;             // ask for the checks against formulas, where they apply
  std::string bug;                   // planted; "skip_wait:*": one edge or another
  bool corrupt = false;              // a bit of a message flips silently
  std::string check;                 // asked for besides the usual ones
  bool schedules = false;            // orders by all strategies, slow queues
  bool offload = false;              // of the optimizer, to the host or to files
  bool parallel = false;             // stages of a pipeline, tensor ways
  bool experts = false;              // divided among ranks that share the batch
  bool slabs = false;                // experts that tensor ways have slabs of, divided among ranks or not
  bool context = false;              // the tokens of each sample on several ranks, of which one may die
  bool groups = false;               // shards inside groups of ranks, replicas across them
  bool compression = false;          // of gradients, in stages 0 and 1
  bool local_sgd = false;            // workers with weights of their own
  bool staleness = false;            // gradients that come late, in stages 0 and 1
  bool fp8 = false;                  // operands of linear layers in 8 bits
  bool quantised = false;            // weights gathered in 8 bits; wants stage 3
  bool restarts = false;             // the job dies once or twice, and goes on from a checkpoint
  bool quantised_gradients = false;  // in 4 or 8 bits; wants stage 2 or 3
  bool momentum = false;             // compressed, in stage 0
  bool factors = false;              // of gradients, in stage 0
};

// As rapidcheck prints it: the file that `seeksim run` takes.
struct Drawn {
  Json document;
  int ranks = 0;
  std::string precision;  // fp32, bf16 or fp16
};
std::ostream& operator<<(std::ostream& out, const Drawn& drawn);

// Not shrunk by rapidcheck: harness/search/shrink.h does that.
rc::Gen<Drawn> scenarios(const Wanted& wanted);

}  // namespace seeksim::property
