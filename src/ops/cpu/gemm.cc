#include "ops/cpu/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

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

}  // namespace

std::string GemmLibrary() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

void Gemm(View c, ConstView a, ConstView b, const MatmulSpec& spec, int threads) {
  const int64_t inner = spec.a == Transpose::kYes ? a.rows : a.cols;
  SANDGLASS_CHECK(c.rows == (spec.a == Transpose::kYes ? a.cols : a.rows), "matmul rows");
  SANDGLASS_CHECK(c.cols == (spec.b == Transpose::kYes ? b.rows : b.cols), "matmul columns");
  SANDGLASS_CHECK(inner == (spec.b == Transpose::kYes ? b.cols : b.rows), "matmul inner size");
  if (c.elements() == 0) return;
  if (inner == 0) {
    if (spec.into == Into::kOverwrite) {
      for (int64_t row = 0; row < c.rows; ++row) std::fill_n(c.Row<float>(row), c.cols, 0.0f);
    }
    return;
  }
  const OmpThreads scope(threads);
  const dnnl_status_t status =
      dnnl_sgemm(Letter(spec.a), Letter(spec.b), c.rows, c.cols, inner, 1.0f, a.Row<float>(),
                 LeadingDimension(a), b.Row<float>(), LeadingDimension(b),
                 spec.into == Into::kAccumulate ? 1.0f : 0.0f, c.Row<float>(), LeadingDimension(c));
  SANDGLASS_CHECK(status == dnnl_success, "dnnl_sgemm failed");
}

}  // namespace sandglass::cpu
