// "fsdp" of a scenario: the layout in the words of torch's FullyShardedDataParallel (version 1) and fully_shard (2),
// brought to the keys of "deepspeed" and "world" that say the same.
#pragma once

#include "harness/input/keys.h"
#include "harness/loading/deepspeed/forms.h"

namespace seeksim::harness {

// Names, values and texts of the section; what it says is read from the keys that it is brought to.
struct FsdpWords {};
const Keys<FsdpWords>& fsdp_keys();

// Changes the document where it has "fsdp"; the section stays, for the schema to look at.
Forms bring_fsdp_to_form(Document& document);

}  // namespace seeksim::harness
