#include "tensor/param_table.h"

#include <algorithm>

#include "base/random.h"

namespace sandglass {
namespace {

// Every parameter starts on a cache line in slabs of any element type down to two bytes.
constexpr int64_t kSlabAlignmentElements = kAlignmentBytes / 2;

}  // namespace

ParamSpec& ParamTable::Declare(Param& param, std::string name, ParamRole role, int64_t rows,
                               int64_t cols, ParamInit init) {
  for (const ParamSpec& spec : specs_) {
    SANDGLASS_CHECK(spec.name != name, "two parameters of the same name");
  }
  ParamSpec spec{.name = std::move(name),
                 .role = role,
                 .rows = rows,
                 .cols = cols,
                 .init = init,
                 .offset = slab_elements_,
                 .param = &param};
  slab_elements_ += Padded(spec.elements());
  return specs_.emplace_back(std::move(spec));
}

int64_t ParamTable::Padded(int64_t elements) {
  return (elements + kSlabAlignmentElements - 1) / kSlabAlignmentElements * kSlabAlignmentElements;
}

int64_t ParamTable::elements() const {
  int64_t sum = 0;
  for (const ParamSpec& spec : specs_) sum += spec.elements();
  return sum;
}

int64_t ParamTable::elements(ParamRole role) const {
  int64_t sum = 0;
  for (const ParamSpec& spec : specs_) sum += spec.role == role ? spec.elements() : 0;
  return sum;
}

void ParamTable::Grant(DType dtype, bool with_gradients, DType operand_dtype) {
  SANDGLASS_CHECK(operand_dtype == dtype || operand_dtype == DType::kBF16, "operand type");
  dtype_ = dtype;
  values_ = AlignedBytes(slab_elements_ * SizeOf(dtype));
  if (with_gradients) grads_ = AlignedBytes(slab_elements_ * SizeOf(dtype));
  if (operand_dtype != dtype) operands_ = AlignedBytes(slab_elements_ * SizeOf(operand_dtype));
  for (const ParamSpec& spec : specs_) {
    spec.param->value = Slice(values(), spec);
    if (with_gradients) spec.param->grad = Slice(grads(), spec);
    spec.param->operand = operand_dtype == dtype ? spec.param->value : Slice(operands(), spec);
  }
}

View ParamTable::Slab(const AlignedBytes& bytes, DType dtype) const {
  if (bytes.data() == nullptr) return {};
  return {bytes.data(), dtype, 1, slab_elements_, slab_elements_};
}

View ParamTable::Slice(View slab, const ParamSpec& spec) const {
  const View part = slab.Columns(spec.offset, spec.elements());
  return {part.data, part.dtype, spec.rows, spec.cols, spec.cols};
}

void ParamTable::Initialize(uint64_t seed) {
  for (const ParamSpec& spec : specs_) {
    RandomStream stream(seed, "init/" + spec.name);
    const auto draw = [&] {
      return spec.init.kind == ParamInit::Kind::kOnes ? 1.0 : spec.init.std * stream.NextNormal();
    };
    const View value = spec.param->value;
    if (value.dtype == DType::kF64) {
      std::generate_n(value.Row<double>(), spec.elements(), draw);
    } else {
      std::generate_n(value.Row<float>(), spec.elements(),
                      [&] { return static_cast<float>(draw()); });
    }
  }
}

}  // namespace sandglass
