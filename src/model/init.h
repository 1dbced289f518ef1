// How weights start.
#pragma once

#include <cmath>

#include "model/config.h"
#include "tensor/param_table.h"

namespace sandglass {

// Any matrix: normal with the configured standard deviation.
inline ParamInit MatrixInit(const ModelConfig& config) {
  return {ParamInit::Kind::kNormal, config.init_std};
}

// A matrix that writes to the residual stream. With depth-scaled initialisation it is divided by
// the square root of the number of additions to the stream, L*(1+K): all of them, as each adds
// variance.
inline ParamInit ResidualOutputInit(const ModelConfig& config) {
  const double additions = 1.0 * config.shape.layers * (1 + config.shape.sub_mlps());
  return {ParamInit::Kind::kNormal,
          config.depth_scaled_init ? config.init_std / std::sqrt(additions) : config.init_std};
}

}  // namespace sandglass
