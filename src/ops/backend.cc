#include "ops/backend.h"

namespace sandglass {

bool ValidFirstKeys(const AttentionSpec& spec) {
  if (spec.first_keys.empty()) return true;
  if (std::ssize(spec.first_keys) != int64_t{spec.batch} * spec.query_length) return false;
  const int32_t* first_key = spec.first_keys.data();
  for (int b = 0; b < spec.batch; ++b) {
    int32_t before = 0;
    for (int i = 0; i < spec.query_length; ++i, ++first_key) {
      const int position = spec.kv_length - spec.query_length + i;
      if (*first_key < before || *first_key > position) return false;
      before = *first_key;
    }
  }
  return true;
}

}  // namespace sandglass
