// What this project adds to seeksim, for its tests and for its own program.
#pragma once

// A check, two faults, two families of models and the rules of rules.h. Once, before anything is loaded.
void add_everything();
