#include "train/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sandglass {
namespace {

constexpr double kLinear = 3.4445;
constexpr double kCubic = -4.7750;
constexpr double kQuintic = 2.0315;

// Calls action(first row, rows) for every logical matrix of a parameter.
template <class Action>
void ForEachMatrix(const ParamSpec& spec, const Action& action) {
  if (spec.packed_rows.empty()) return action(int64_t{0}, spec.rows);
  int64_t begin = 0;
  for (const int64_t rows : spec.packed_rows) {
    action(begin, rows);
    begin += rows;
  }
  SANDGLASS_CHECK(begin == spec.rows, "packed matrices do not fill their parameter");
}

// What the largest matrix needs.
struct Largest {
  int64_t elements = 0;
  int64_t square = 0;
};

Largest LargestOf(const std::vector<const ParamSpec*>& specs) {
  Largest largest;
  for (const ParamSpec* spec : specs) {
    ForEachMatrix(*spec, [&](int64_t, int64_t rows) {
      const int64_t side = std::min(rows, spec->cols);
      largest.elements = std::max(largest.elements, ParamTable::Padded(rows * spec->cols));
      largest.square = std::max(largest.square, ParamTable::Padded(side * side));
    });
  }
  return largest;
}

double ScaleOf(MuonScale scale, int64_t rows, int64_t cols) {
  const auto height = static_cast<double>(rows);
  const auto width = static_cast<double>(cols);
  return scale == MuonScale::kRms ? 0.2 * std::sqrt(std::max(height, width))
                                  : std::sqrt(std::max(1.0, height / width));
}

}  // namespace

Muon::Muon(const ParamTable& params, const OptimizerOptions& options,
           std::vector<const ParamSpec*> specs)
    : options_(options),
      momentum_(std::move(specs), params.dtype()),
      scratch_(ScratchElements(momentum_.specs()) * SizeOf(params.dtype())) {}

int64_t Muon::ScratchElements(const std::vector<const ParamSpec*>& specs) {
  const Largest largest = LargestOf(specs);
  return 2 * (largest.elements + largest.square);
}

void Muon::Step(Backend& ops, const MuonStep& step) {
  for (size_t i = 0; i < momentum_.specs().size(); ++i) {
    const ParamSpec& spec = *momentum_.specs()[i];
    ForEachMatrix(spec, [&](int64_t begin, int64_t rows) {
      Update(ops,
             {.value = spec.param->value.Rows(begin, rows),
              .gradient = spec.param->grad.Rows(begin, rows),
              .momentum = momentum_.Of(i).Rows(begin, rows),
              .weight_decay = options_.WeightDecayOf(spec.role),
              .learning_rate_factor = options_.learning_rate_factors[spec.role]},
             step);
    });
  }
}

void Muon::Update(Backend& ops, const Matrix& matrix, const MuonStep& step) {
  const int64_t rows = matrix.value.rows;
  const int64_t cols = matrix.value.cols;
  const int64_t side = std::min(rows, cols);
  const Largest largest = LargestOf(momentum_.specs());
  const DType dtype = matrix.value.dtype;
  const auto buffer = [&](int64_t offset, int64_t height, int64_t width) {
    return View{scratch_.data() + offset * SizeOf(dtype), dtype, height, width, width};
  };
  const View update = buffer(0, rows, cols);
  const OrthogonalizeScratch scratch{
      .next = buffer(largest.elements, rows, cols),
      .gram = buffer(2 * largest.elements, side, side),
      .polynomial = buffer(2 * largest.elements + largest.square, side, side)};

  const MuonOptions& options = options_.muon;
  ops.Blend(matrix.momentum, matrix.gradient, {.y = options.momentum, .x = step.grad_scale});
  ops.Copy(update, matrix.momentum);
  if (options.nesterov) {
    ops.Blend(update, matrix.gradient, {.y = options.momentum, .x = step.grad_scale});
  }
  Orthogonalize(ops, update, scratch, options.iterations);
  // The change is formed whole before it is subtracted: the weight is rounded once, and a small
  // decay is not lost.
  ops.Blend(update, matrix.value,
            {.y = ScaleOf(options.scale, rows, cols), .x = matrix.weight_decay});
  ops.Blend(matrix.value, update,
            {.y = 1.0, .x = -step.learning_rate * matrix.learning_rate_factor});
}

void Orthogonalize(Backend& ops, View x, const OrthogonalizeScratch& scratch, int iterations) {
  const double norm = std::sqrt(ops.SquaredNorm(x));
  if (norm == 0.0) return;
  ops.Blend(x, x, {.y = 0.0, .x = 1.0 / norm});
  const bool wide = x.rows <= x.cols;
  for (int i = 0; i < iterations; ++i) {
    // gram = x x^T or x^T x, whichever is smaller; polynomial = b gram + c gram^2.
    ops.Matmul(scratch.gram, x, x,
               wide ? MatmulSpec{.b = Transpose::kYes} : MatmulSpec{.a = Transpose::kYes});
    ops.Matmul(scratch.polynomial, scratch.gram, scratch.gram, {});
    ops.Blend(scratch.polynomial, scratch.gram, {.y = kQuintic, .x = kCubic});
    if (wide) {
      ops.Matmul(scratch.next, scratch.polynomial, x, {});
    } else {
      ops.Matmul(scratch.next, x, scratch.polynomial, {});
    }
    ops.Blend(x, scratch.next, {.y = kLinear, .x = 1.0});
  }
}

}  // namespace sandglass
