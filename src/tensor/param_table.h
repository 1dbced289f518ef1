// The only list of a model's parameters. Counting, initialisation, the optimizer, checkpoints,
// export and tests all walk it; nothing else enumerates parameters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/memory_plan.h"
#include "tensor/view.h"

namespace sandglass {

// What a parameter belongs to, for counting and for reports.
enum class ParamRole { kAttention, kFfn, kNorm, kQkNorm, kEmbedding, kHead };
inline constexpr int kParamRoles = 6;

// How a parameter starts.
struct ParamInit {
  enum class Kind { kNormal, kOnes } kind = Kind::kNormal;
  double std = 0.0;  // for kNormal
};

// One parameter as the model sees it: views into the slabs.
struct Param {
  View value;
  View grad;     // empty without gradients
  View operand;  // the value as matrix products read it: `value` itself, or rounded to bf16
};

// One parameter as everything else sees it.
struct ParamSpec {
  std::string name;  // "layers.3.ffn.2.w_down"
  ParamRole role;
  int64_t rows;
  int64_t cols;
  ParamInit init;
  // Rows of each logical matrix where several are packed one below the other (q, k and v; gate and
  // up); empty for a parameter that is one matrix.
  std::vector<int64_t> packed_rows = {};
  int64_t offset = 0;  // elements from the start of a slab; valid in every slab alike
  Param* param = nullptr;

  int64_t elements() const { return rows * cols; }
};

class ParamTable {
 public:
  ParamTable() = default;
  ParamTable(const ParamTable&) = delete;
  ParamTable& operator=(const ParamTable&) = delete;

  // Adds a parameter; `param` must not move afterwards. Names are unique. The result is valid until
  // the next call.
  ParamSpec& Declare(Param& param, std::string name, ParamRole role, int64_t rows, int64_t cols,
                     ParamInit init);

  const std::vector<ParamSpec>& specs() const { return specs_; }
  // Parameters, without the padding between them.
  int64_t elements() const;
  int64_t elements(ParamRole role) const;
  // Elements that a parameter of so many takes in a slab, with the padding behind it.
  static int64_t Padded(int64_t elements);
  // Elements of one slab: parameters and the padding that aligns them.
  int64_t slab_elements() const { return slab_elements_; }

  // Allocates the value slab (and the gradient slab, and where matrix products read another type
  // than `dtype` a slab of operands) and fills in the declared Params.
  void Grant(DType dtype, bool with_gradients) { Grant(dtype, with_gradients, dtype); }
  void Grant(DType dtype, bool with_gradients, DType operand_dtype);
  DType dtype() const { return dtype_; }
  View values() const { return Slab(values_, dtype_); }  // [1, slab_elements]
  View grads() const { return Slab(grads_, dtype_); }
  // Rounded copies of the values, for whoever changes values to bring up to date; empty where
  // matrix products read the values themselves.
  View operands() const { return Slab(operands_, DType::kBF16); }
  // The part of a slab that holds a parameter, as [rows, cols].
  View Slice(View slab, const ParamSpec& spec) const;

  // Values drawn from streams named by (seed, parameter name): a parameter's start does not depend
  // on which other parameters the model has.
  void Initialize(uint64_t seed);

 private:
  View Slab(const AlignedBytes& bytes, DType dtype) const;

  std::vector<ParamSpec> specs_;
  int64_t slab_elements_ = 0;
  DType dtype_ = DType::kF32;
  AlignedBytes values_;
  AlignedBytes grads_;
  AlignedBytes operands_;
};

}  // namespace sandglass
