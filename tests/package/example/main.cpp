// All of seeksim's command line, with this project's additions in it: shrink, explore and sweeps know them too.
#include <seeksim/seeksim.h>

#include "additions.h"

int main(int argc, char** argv) {
  add_everything();
  return seeksim::harness::main_of({argv + 1, argv + argc});
}
