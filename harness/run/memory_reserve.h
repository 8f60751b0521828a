// Memory kept for the moment in which there is no more: what is unwound then, and the report that says so, need some.
#pragma once

namespace seeksim::harness {

// Keeps it, once more after it was used. When memory runs out the reserve is given back and std::bad_alloc thrown as
// ever. When it runs out again before the next call, the program says so and ends with status 2: nothing could be
// unwound.
void keep_memory_reserve();

// Once a run was ended for want of memory the program should end without destructors of threads and statics: Boost's
// scheduler of fibers falls over the fiber that it could not make.
void memory_has_run_out();
bool memory_ran_out();

}  // namespace seeksim::harness
