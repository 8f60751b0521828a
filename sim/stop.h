// Whether somebody outside wants every world of this process to end: asked by each now and then. Never part of what is
// simulated.
#pragma once

namespace seeksim::sim {

using AskedToStop = bool (*)();
// null: nobody ever does. Until it is called again.
void stop_worlds_when(AskedToStop asked);
bool worlds_shall_stop();

}  // namespace seeksim::sim
