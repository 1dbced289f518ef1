// Products by oneDNN (github.com/oneapi-src/oneDNN), versions 2.6 to 3.x.
#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ops/cpu/element.h"
#include "ops/cpu/gemm.h"

namespace sandglass::cpu {
namespace {

// oneDNN takes the number of threads from OpenMP's setting for the calling thread.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~OmpThreads() { omp_set_num_threads(before_); }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
};

char Letter(Transpose transpose) { return transpose == Transpose::kYes ? 'T' : 'N'; }

// The library wants a row to be at least one element long.
int64_t LeadingDimension(const auto& view) { return std::max<int64_t>(1, view.stride); }

dnnl::memory::data_type DataType(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// A view, or its transpose, as oneDNN describes it.
dnnl::memory::desc Describe(ConstView view, Transpose transpose) {
  const int64_t stride = LeadingDimension(view);
  return transpose == Transpose::kYes
             ? dnnl::memory::desc({view.cols, view.rows}, DataType(view.dtype), {1, stride})
             : dnnl::memory::desc({view.rows, view.cols}, DataType(view.dtype), {stride, 1});
}

// All that a prepared product depends on.
struct ProductKey {
  int64_t rows, cols, inner;
  int64_t c_stride, a_stride, b_stride;
  DType c_type, factor_type;
  MatmulSpec spec;

  auto Tie() const {
    return std::tuple(rows, cols, inner, c_stride, a_stride, b_stride, c_type, factor_type, spec.a,
                      spec.b, spec.into);
  }
  bool operator==(const ProductKey& other) const { return Tie() == other.Tie(); }
};
struct ProductKeyHash {
  size_t operator()(const ProductKey& key) const {
    size_t hash = 0;
    std::apply([&](auto... part) { ((hash = hash * 1000003 + static_cast<size_t>(part)), ...); },
               key.Tie());
    return hash;
  }
};

class OneDnn final : public GemmLibrary {
 public:
  explicit OneDnn(int threads)
      : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void MultiplyF32(View c, ConstView a, ConstView b, const MatmulSpec& spec) override {
    const OmpThreads scope(threads_);
    const dnnl_status_t status = dnnl_sgemm(
        Letter(spec.a), Letter(spec.b), c.rows, c.cols, ColumnsOf(a, spec.a), 1.0f, a.Row<float>(),
        LeadingDimension(a), b.Row<float>(), LeadingDimension(b),
        spec.into == Into::kAccumulate ? 1.0f : 0.0f, c.Row<float>(), LeadingDimension(c));
    SANDGLASS_CHECK(status == dnnl_success, "dnnl_sgemm failed");
  }

  void MultiplyBF16(View c, ConstView a, ConstView b, const MatmulSpec& spec) override {
    const OmpThreads scope(threads_);
    const dnnl::matmul& product = Prepared(c, a, b, spec);
    // oneDNN takes all memory as writable; factors are only read.
    const auto memory = [&](const dnnl::memory::desc& desc, ConstView view) {
      return dnnl::memory(desc, engine_, const_cast<std::byte*>(view.data));
    };
    product.execute(stream_, {{DNNL_ARG_SRC, memory(Describe(a, spec.a), a)},
                              {DNNL_ARG_WEIGHTS, memory(Describe(b, spec.b), b)},
                              {DNNL_ARG_DST, memory(Describe(c, Transpose::kNo), c)}});
    stream_.wait();
  }

 private:
  // Preparing a product compiles code for it; a model has a few dozen.
  const dnnl::matmul& Prepared(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
    const ProductKey key = {
        c.rows, c.cols, ColumnsOf(a, spec.a), c.stride, a.stride, b.stride, c.dtype, a.dtype, spec};
    const auto found = prepared_.find(key);
    if (found != prepared_.end()) return found->second;
    return prepared_.emplace(key, Prepare(c, a, b, spec)).first->second;
  }

  dnnl::matmul Prepare(View c, ConstView a, ConstView b, const MatmulSpec& spec) const {
    dnnl::primitive_attr attributes;
    if (spec.into == Into::kAccumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::memory::desc factor_a = Describe(a, spec.a);
    const dnnl::memory::desc factor_b = Describe(b, spec.b);
    const dnnl::memory::desc result = Describe(c, Transpose::kNo);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::matmul(
        dnnl::matmul::primitive_desc(engine_, factor_a, factor_b, result, attributes));
#else
    return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(factor_a, factor_b, result),
                                                     attributes, engine_));
#endif
  }

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<ProductKey, dnnl::matmul, ProductKeyHash> prepared_;
};

}  // namespace

std::unique_ptr<GemmLibrary> MakeGemmLibrary(int threads) {
  return std::make_unique<OneDnn>(threads);
}

std::string GemmLibraryName() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

// Without the instructions oneDNN refuses bf16 or converts it to f32 itself.
bool LibraryHasBF16() { return HasDotBF16(); }
bool LibraryHasBF16Tiles() {
  // Instruction sets are sets of bits.
  constexpr auto kTiles = static_cast<int>(dnnl::cpu_isa::avx512_core_amx);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kTiles) == kTiles;
}

}  // namespace sandglass::cpu
