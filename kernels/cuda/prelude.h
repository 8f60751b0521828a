// The includes of the text of the kernels for GPUs, for all files that include cuda/*.inl.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cast_body.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/experts_body.h"
#include "kernels/fused_attention.h"
#include "kernels/math.h"
#include "kernels/optimizer_body.h"
#include "kernels/philox_body.h"
#include "kernels/random.h"
#include "kernels/scalar.h"
