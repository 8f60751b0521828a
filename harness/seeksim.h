// All that a program of yours includes: #include <seeksim/seeksim.h>
//
//   run      load a scenario, run it, read its verdict            harness/loading/load.h, harness/run/run.h
//   extend   add checks, faults, models and rules of your own     harness/loading/extensions.h
//            and transports between processes                     harness/processes/transports.h
//   call     the command line, with what you added                harness/commands/cli.h
//   test     draw scenarios for property-based tests (rapidcheck) harness/testing/property.h
//
// Link seeksim::harness; for what is in harness/testing/ also seeksim::testing.
#pragma once

#include "harness/commands/cli.h"
#include "harness/loading/extensions.h"
#include "harness/loading/load.h"
#include "harness/processes/transports.h"
#include "harness/run/run.h"

#if __has_include(<rapidcheck.h>)
#include "harness/testing/property.h"
#endif
