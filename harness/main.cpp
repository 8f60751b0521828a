// The program. All it does is in cli.cpp, so that tests can call it.
#include "harness/commands/cli.h"

int main(int argc, char** argv) { return seeksim::harness::main_of({argv + 1, argv + argc}); }
