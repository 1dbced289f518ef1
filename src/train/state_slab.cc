#include "train/state_slab.h"

#include <utility>

namespace sandglass {

StateSlab::StateSlab(std::vector<const ParamSpec*> specs, DType dtype)
    : specs_(std::move(specs)),
      dtype_(dtype),
      elements_(Elements(specs_)),
      bytes_(elements_ * SizeOf(dtype)) {
  int64_t offset = 0;
  for (const ParamSpec* spec : specs_) {
    offsets_.push_back(offset);
    offset += ParamTable::Padded(spec->elements());
  }
}

int64_t StateSlab::Elements(const std::vector<const ParamSpec*>& specs) {
  int64_t elements = 0;
  for (const ParamSpec* spec : specs) elements += ParamTable::Padded(spec->elements());
  return elements;
}

View StateSlab::Of(size_t i) const {
  const ParamSpec& spec = *specs_[i];
  const View part = values().Columns(offsets_[i], spec.elements());
  return {part.data, part.dtype, spec.rows, spec.cols, spec.cols};
}

}  // namespace sandglass
