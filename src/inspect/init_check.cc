#include "inspect/init_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sandglass {
namespace {

constexpr double kLargestDeviation = 5.0;

double RootMeanSquare(ConstView matrix) {
  double sum = 0.0;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t col = 0; col < matrix.cols; ++col) {
      const double value = matrix.dtype == DType::kF64 ? matrix.Row<double>(row)[col]
                                                       : double{matrix.Row<float>(row)[col]};
      sum += value * value;
    }
  }
  return std::sqrt(sum / static_cast<double>(matrix.elements()));
}

}  // namespace

bool InitCheck::holds() const {
  return static_cast<int64_t>(matrices.size()) == additions &&
         std::ranges::all_of(matrices, &InitialMatrix::holds);
}

InitCheck CheckInit(const ModelConfig& config, const ParamTable& params) {
  InitCheck check;
  check.additions = int64_t{config.shape.layers} * (1 + config.shape.sub_mlps());
  check.stated = config.init_std;
  check.rule = fmt::format("{}", config.init_std);
  if (config.depth_scaled_init) {
    check.stated /= std::sqrt(static_cast<double>(check.additions));
    check.rule += fmt::format(" / sqrt(L*(1+K)), L*(1+K) = {}", check.additions);
  }
  for (const ParamSpec& spec : params.specs()) {
    if (!spec.name.ends_with(".w_o") && !spec.name.ends_with(".w_down")) continue;
    const double std = RootMeanSquare(spec.param->value);
    const double standard_error = 1.0 / std::sqrt(2.0 * static_cast<double>(spec.elements()));
    const double deviation = (std / check.stated - 1.0) / standard_error;
    check.matrices.push_back({.name = spec.name,
                              .elements = spec.elements(),
                              .std = std,
                              .deviation = deviation,
                              .holds = std::abs(deviation) <= kLargestDeviation});
  }
  return check;
}

}  // namespace sandglass
