// Products by any library with the CBLAS interface: OpenBLAS, BLIS, Netlib.
#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <limits>

#include "ops/cpu/gemm.h"

// CBLAS has no call for its own name. These belong to the two libraries that people link most and
// are null with any other.
extern "C" {
[[gnu::weak]] char* openblas_get_config();
[[gnu::weak]] char* bli_info_get_version_str();
}

namespace sandglass::cpu {
namespace {

CBLAS_TRANSPOSE Letter(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

int Dimension(int64_t size) {
  SANDGLASS_CHECK(size <= std::numeric_limits<int>::max(), "CBLAS counts in int");
  return std::max(1, static_cast<int>(size));
}

class Cblas final : public GemmLibrary {
 public:
  explicit Cblas(int threads) : threads_(threads) {}

  void MultiplyF32(View c, ConstView a, ConstView b, const MatmulSpec& spec) override {
    // The libraries built with OpenMP follow its setting for the calling thread.
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads_);
    cblas_sgemm(CblasRowMajor, Letter(spec.a), Letter(spec.b), Dimension(c.rows), Dimension(c.cols),
                Dimension(ColumnsOf(a, spec.a)), 1.0f, a.Row<float>(), Dimension(a.stride),
                b.Row<float>(), Dimension(b.stride), spec.into == Into::kAccumulate ? 1.0f : 0.0f,
                c.Row<float>(), Dimension(c.stride));
    omp_set_num_threads(before);
  }

  void MultiplyBF16(View, ConstView, ConstView, const MatmulSpec&) override {
    SANDGLASS_CHECK(false, "CBLAS has no bf16 products");
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<GemmLibrary> MakeGemmLibrary(int threads) {
  return std::make_unique<Cblas>(threads);
}

std::string GemmLibraryName() {
  if (openblas_get_config != nullptr) {
    // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
    const std::string config = openblas_get_config();
    return config.substr(0, config.find(' ', config.find(' ') + 1));
  }
  if (bli_info_get_version_str != nullptr) {
    return std::string("BLIS ") + bli_info_get_version_str();
  }
  return "CBLAS";
}

bool LibraryHasBF16() { return false; }
bool LibraryHasBF16Tiles() { return false; }

}  // namespace sandglass::cpu
