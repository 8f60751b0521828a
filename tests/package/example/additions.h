// What this project adds to seeksim, for its tests and for its own program.
#pragma once

// A check, two faults and two families of models. Once, before anything is loaded.
void add_everything();
