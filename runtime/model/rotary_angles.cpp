#include "runtime/model/rotary_angles.h"

#include "kernels/check.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {

using kernels::Index;

std::vector<float> rotary_angles(Index positions, Index head_dim, double theta) {
  SEEKSIM_CHECK(head_dim > 0 && head_dim % 2 == 0, "head_dim %lld: halves are needed",
                static_cast<long long>(head_dim));
  const Index half = head_dim / 2;
  const double log_theta = host_log(theta);
  std::vector<float> angles(static_cast<std::size_t>(positions * head_dim));
  for (Index i = 0; i < half; ++i) {
    const double frequency = host_exp(-log_theta * (2.0 * double(i) / double(head_dim)));
    for (Index t = 0; t < positions; ++t) {
      const SinCos turn = host_sin_cos(double(t) * frequency);
      angles[std::size_t(t * head_dim + i)] = static_cast<float>(turn.cos);
      angles[std::size_t(t * head_dim + half + i)] = static_cast<float>(turn.sin);
    }
  }
  return angles;
}

}  // namespace seeksim::runtime
