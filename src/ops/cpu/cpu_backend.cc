// The cpu backend: divides each op among threads and calls the kernels on the parts.
#include <algorithm>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/element.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/team.h"
#include "ops/cpu/workspace.h"
#include "tensor/memory_plan.h"

namespace sandglass {
namespace {

// A thread gets at least this many elements: fewer take less time than waking it.
constexpr int64_t kMinimumElements = 8192;
// Sums over many rows are made of at most this many parts, cut by the size of the problem alone, so
// that rounding does not depend on the number of threads. More parts than threads, few enough that
// adding them up costs nothing.
constexpr int64_t kMostParts = 64;
// Floats of a cache line: two threads never write to the same one.
constexpr int64_t kLineFloats = kAlignmentBytes / 4;

cpu::Split RowSplit(ConstView view) {
  return {.count = view.rows, .minimum = kMinimumElements / std::max<int64_t>(1, view.cols) + 1};
}
cpu::Split ColumnSplit(ConstView view) {
  return {.count = view.cols,
          .minimum = kMinimumElements / std::max<int64_t>(1, view.rows) + 1,
          .multiple = kLineFloats};
}

// Rows in parts of equal size, the last one shorter.
struct Parts {
  int64_t rows = 0;
  int64_t part_rows = 0;

  explicit Parts(ConstView view)
      : rows(view.rows),
        part_rows(std::max(kMinimumElements / std::max<int64_t>(1, view.cols) + 1,
                           (view.rows + kMostParts - 1) / kMostParts)) {}
  int64_t count() const { return (rows + part_rows - 1) / part_rows; }
  int64_t begin(int64_t part) const { return part * part_rows; }
  int64_t size(int64_t part) const { return std::min(part_rows, rows - begin(part)); }
};

// Packed rows as one long row, so that work can be cut anywhere.
template <class AnyView>
AnyView Flat(AnyView view) {
  if (!view.contiguous()) return view;
  const int64_t elements = view.elements();
  return {view.data, view.dtype, 1, elements, elements};
}

template <class AnyView>
AnyView OrEmpty(AnyView view, int64_t begin, int64_t count) {
  return view ? view.Rows(begin, count) : view;
}

bool SameShape(ConstView a, ConstView b) { return a.rows == b.rows && a.cols == b.cols; }

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, Products products)
      : team_(threads), gemm_(team_, products), workspaces_(threads) {}

  std::string Name() const override { return "cpu"; }
  std::string Description() const override {
    const int threads = team_.threads();
    return std::string("cpu: ") + cpu::TargetName() + ", " + gemm_.Description() + ", " +
           std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }
  DType dtype() const override { return DType::kF32; }

  void Matmul(View c, ConstView a, ConstView b, const MatmulSpec& spec) override {
    gemm_.Multiply(c, a, b, spec);
  }

  void Embed(View x, ConstView table, std::span<const int32_t> ids) override {
    CheckIds(x, table, ids);
    team_.Ranges(RowSplit(x), [&](int, int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        std::copy_n(table.Row<float>(ids[m]), x.cols, x.Row<float>(m));
      }
    });
  }

  // Each thread has columns of its own and takes the tokens in order: ids that repeat are summed
  // in the same order whatever the number of threads.
  void EmbedBackward(View dtable, ConstView dx, std::span<const int32_t> ids) override {
    CheckIds(dx, dtable, ids);
    team_.Ranges(ColumnSplit(dx), [&](int, int64_t begin, int64_t end) {
      const View dtable_columns = dtable.Columns(begin, end - begin);
      const ConstView dx_columns = dx.Columns(begin, end - begin);
      for (int64_t m = 0; m < dx.rows; ++m) {
        cpu::Add(dtable_columns.Rows(ids[m], 1), dx_columns.Rows(m, 1));
      }
    });
  }

  void Copy(View y, ConstView x) override {
    SANDGLASS_CHECK(SameShape(y, x), "copy sizes");
    if (y.contiguous() && x.contiguous()) {
      y = Flat(y);
      x = Flat(x);
      team_.Ranges(ColumnSplit(x), [&](int, int64_t begin, int64_t end) {
        cpu::Copy(y.Columns(begin, end - begin), x.Columns(begin, end - begin));
      });
      return;
    }
    team_.Ranges(RowSplit(x), [&](int, int64_t begin, int64_t end) {
      cpu::Copy(y.Rows(begin, end - begin), x.Rows(begin, end - begin));
    });
  }

  void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain,
               const RmsNormSpec& spec) override {
    SANDGLASS_CHECK(SameShape(y, x), "norm sizes");
    CheckNorm(inverse_rms, x, gain, spec);
    team_.Ranges(RowSplit(x), [&](int, int64_t begin, int64_t end) {
      const int64_t rows = end - begin;
      cpu::RmsNorm(y.Rows(begin, rows), inverse_rms.Rows(begin, rows), x.Rows(begin, rows), gain,
                   spec);
    });
  }

  // Every part of the rows sums its dgain apart; the parts are then added in order.
  void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                       ConstView gain, const RmsNormSpec& spec) override {
    SANDGLASS_CHECK(SameShape(dx, x) && SameShape(dy, x), "norm gradient sizes");
    SANDGLASS_CHECK(SameShape(dgain, gain), "gain gradient sizes");
    CheckNorm(inverse_rms, x, gain, spec);
    const Parts parts(x);
    const int64_t stride = cpu::RoundUp(gain.cols, kLineFloats);
    cpu::Reserve(partial_gains_, parts.count() * stride);
    const auto dgain_of = [&](int64_t part) {
      return ViewOf(reinterpret_cast<float*>(partial_gains_.data()) + part * stride, 1, gain.cols);
    };
    ForEachPart(parts, [&](int64_t part, int64_t begin, int64_t rows) {
      const View dgain_part = dgain_of(part);
      std::fill_n(dgain_part.Row<float>(), gain.cols, 0.0f);
      cpu::RmsNormBackward(dx.Rows(begin, rows), dgain_part, dy.Rows(begin, rows),
                           x.Rows(begin, rows), inverse_rms.Rows(begin, rows), gain, spec);
    });
    for (int64_t part = 0; part < parts.count(); ++part) cpu::Add(dgain, dgain_of(part));
  }

  void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
            const RopeSpec& spec) override {
    SANDGLASS_CHECK(std::ssize(positions) == x.rows, "one position per row");
    SANDGLASS_CHECK(SameShape(cosines, sines) && 2 * spec.heads * cosines.cols == x.cols,
                    "rotary table sizes");
    team_.Ranges(RowSplit(x), [&](int, int64_t begin, int64_t end) {
      cpu::Rope(x.Rows(begin, end - begin), cosines, sines, positions.subspan(begin, end - begin),
                spec);
    });
  }

  void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
                 const AttentionSpec& spec) override {
    CheckAttention(q, k, v, spec);
    SANDGLASS_CHECK(SameShape(out, q), "attention output sizes");
    SANDGLASS_CHECK(log_sum_exp.rows == q.rows && log_sum_exp.cols == spec.heads,
                    "log_sum_exp sizes");
    // Few heads are cut into slices, interleaved because later rows see more keys. Enough items
    // that no thread waits long for the last.
    const int64_t heads = int64_t{spec.batch} * spec.kv_heads;
    const int64_t wanted = 4 * team_.threads();
    const int64_t slices =
        team_.threads() == 1 || heads >= wanted
            ? 1
            : std::min(cpu::AttentionRowBlocks(spec), (wanted + heads - 1) / heads);
    ReserveWorkspaces(cpu::AttentionWorkspace(spec));
    team_.Items(heads * slices, [&](int thread, int64_t item) {
      const int64_t head = item / slices;
      const cpu::AttentionSlice slice = {.batch = static_cast<int>(head / spec.kv_heads),
                                         .kv_head = static_cast<int>(head % spec.kv_heads),
                                         .first = static_cast<int>(item % slices),
                                         .stride = static_cast<int>(slices)};
      cpu::Attention(out, log_sum_exp, q, k, v, spec, slice, Workspace(thread));
    });
  }

  void AttentionBackward(View dq, View dk, View dv, ConstView dout, ConstView out,
                         ConstView log_sum_exp, ConstView q, ConstView k, ConstView v,
                         const AttentionSpec& spec) override {
    CheckAttention(q, k, v, spec);
    SANDGLASS_CHECK(spec.query_length == spec.kv_length && spec.kv_length == spec.kv_stride,
                    "the backward pass is for training, without a cache");
    SANDGLASS_CHECK(SameShape(dq, q) && SameShape(dk, k) && SameShape(dv, v) &&
                        SameShape(dout, q) && SameShape(out, q),
                    "attention gradient sizes");
    const cpu::AttentionGradients gradients = {dq, dk, dv};
    const cpu::AttentionSaved saved = {dout, out, log_sum_exp, q, k, v};
    ReserveWorkspaces(cpu::AttentionBackwardWorkspace(spec));
    team_.Items(int64_t{spec.batch} * spec.kv_heads, [&](int thread, int64_t item) {
      cpu::AttentionBackward(gradients, saved, spec, static_cast<int>(item / spec.kv_heads),
                             static_cast<int>(item % spec.kv_heads), Workspace(thread));
    });
  }

  void SwiGlu(View h, ConstView gate_up) override {
    SANDGLASS_CHECK(h.rows == gate_up.rows && 2 * h.cols == gate_up.cols, "SwiGLU sizes");
    team_.Ranges(RowSplit(h), [&](int, int64_t begin, int64_t end) {
      cpu::SwiGlu(h.Rows(begin, end - begin), gate_up.Rows(begin, end - begin));
    });
  }

  void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) override {
    SANDGLASS_CHECK(SameShape(dgate_up, gate_up), "SwiGLU gradient sizes");
    SANDGLASS_CHECK(dh.rows == gate_up.rows && 2 * dh.cols == gate_up.cols, "SwiGLU sizes");
    SANDGLASS_CHECK(!h || SameShape(h, dh), "SwiGLU output sizes");
    team_.Ranges(RowSplit(dh), [&](int, int64_t begin, int64_t end) {
      const int64_t rows = end - begin;
      cpu::SwiGluBackward(dgate_up.Rows(begin, rows), OrEmpty(h, begin, rows), dh.Rows(begin, rows),
                          gate_up.Rows(begin, rows));
    });
  }

  LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                        std::span<const int32_t> targets, const CrossEntropySpec& spec) override {
    CheckTargets(logits, targets, spec);
    SANDGLASS_CHECK(token_loss.empty() || std::ssize(token_loss) == logits.rows, "token_loss size");
    return SumOverRows(logits, [&](int64_t begin, int64_t rows) {
      const auto losses = token_loss.empty() ? token_loss : token_loss.subspan(begin, rows);
      return cpu::CrossEntropy(losses, logits.Rows(begin, rows), targets.subspan(begin, rows),
                               spec);
    });
  }

  LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                                const CrossEntropySpec& spec) override {
    CheckTargets(logits, targets, spec);
    SANDGLASS_CHECK(SameShape(dlogits, logits), "logits gradient sizes");
    return SumOverRows(logits, [&](int64_t begin, int64_t rows) {
      return cpu::CrossEntropyBackward(dlogits.Rows(begin, rows), logits.Rows(begin, rows),
                                       targets.subspan(begin, rows), spec);
    });
  }

  void Zero(View x) override {
    x = Flat(x);
    if (x.rows == 1) {
      team_.Ranges(ColumnSplit(x), [&](int, int64_t begin, int64_t end) {
        std::fill(x.Row<float>() + begin, x.Row<float>() + end, 0.0f);
      });
      return;
    }
    team_.Ranges(RowSplit(x), [&](int, int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) std::fill_n(x.Row<float>(m), x.cols, 0.0f);
    });
  }

  void Blend(View y, ConstView x, const BlendSpec& spec) override {
    SANDGLASS_CHECK(SameShape(y, x), "blend sizes");
    if (y.contiguous() && x.contiguous()) {
      y = Flat(y);
      x = Flat(x);
      team_.Ranges(ColumnSplit(y), [&](int, int64_t begin, int64_t end) {
        cpu::Blend(y.Columns(begin, end - begin), x.Columns(begin, end - begin), spec);
      });
      return;
    }
    team_.Ranges(RowSplit(y), [&](int, int64_t begin, int64_t end) {
      cpu::Blend(y.Rows(begin, end - begin), x.Rows(begin, end - begin), spec);
    });
  }

  double SquaredNorm(ConstView x) override {
    if (x.contiguous()) {
      // As rows of one length and a rest.
      const int64_t rows = x.elements() / kMinimumElements;
      const int64_t rest = rows * kMinimumElements;
      const ConstView flat = Flat(x);
      return SquaredNormOfRows({x.data, x.dtype, rows, kMinimumElements, kMinimumElements}) +
             cpu::SquaredNorm(flat.Columns(rest, flat.cols - rest));
    }
    return SquaredNormOfRows(x);
  }

  void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) override {
    SANDGLASS_CHECK(values.rows == 1 && SameShape(m, values) && SameShape(v, values) &&
                        SameShape(grads, values),
                    "optimizer views are single rows of one length");
    team_.Ranges(ColumnSplit(values), [&](int, int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      cpu::AdamW(values.Columns(begin, count), m.Columns(begin, count), v.Columns(begin, count),
                 grads.Columns(begin, count), spec);
    });
  }

 private:
  static void CheckIds(ConstView x, ConstView table, std::span<const int32_t> ids) {
    SANDGLASS_CHECK(std::ssize(ids) == x.rows && x.cols == table.cols, "embedding sizes");
    for (const int32_t id : ids) {
      SANDGLASS_CHECK(id >= 0 && id < table.rows, "token id out of range");
    }
  }

  static void CheckNorm(ConstView inverse_rms, ConstView x, ConstView gain,
                        const RmsNormSpec& spec) {
    SANDGLASS_CHECK(spec.groups > 0 && x.cols % spec.groups == 0, "norm groups");
    SANDGLASS_CHECK(gain.rows == 1 && (gain.cols == x.cols || gain.cols == x.cols / spec.groups),
                    "gain sizes");
    SANDGLASS_CHECK(inverse_rms.rows == x.rows && inverse_rms.cols == spec.groups,
                    "inverse_rms sizes");
  }

  static void CheckAttention(ConstView q, ConstView k, ConstView v, const AttentionSpec& spec) {
    SANDGLASS_CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0, "attention heads");
    SANDGLASS_CHECK(spec.query_length <= spec.kv_length && spec.kv_length <= spec.kv_stride,
                    "attention lengths");
    SANDGLASS_CHECK(ValidFirstKeys(spec), "first keys");
    SANDGLASS_CHECK(spec.scale > 0, "attention scale");
    SANDGLASS_CHECK(q.rows == int64_t{spec.batch} * spec.query_length &&
                        q.cols == int64_t{spec.heads} * spec.head_width,
                    "query sizes");
    SANDGLASS_CHECK(SameShape(k, v) && k.rows == int64_t{spec.batch} * spec.kv_stride &&
                        k.cols == int64_t{spec.kv_heads} * spec.head_width,
                    "key and value sizes");
  }

  static void CheckTargets(ConstView logits, std::span<const int32_t> targets,
                           const CrossEntropySpec& spec) {
    SANDGLASS_CHECK(std::ssize(targets) == logits.rows, "one target per row");
    SANDGLASS_CHECK(spec.vocabulary > 0 && spec.vocabulary <= logits.cols, "vocabulary size");
    for (const int32_t target : targets) {
      SANDGLASS_CHECK(target == kIgnoredTarget || (target >= 0 && target < spec.vocabulary),
                      "target out of range");
    }
  }

  // Calls body(part, begin, rows) for all parts, divided among the threads.
  template <class Body>
  void ForEachPart(const Parts& parts, const Body& body) {
    team_.Ranges({.count = parts.count()}, [&](int, int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        body(part, parts.begin(part), parts.size(part));
      }
    });
  }

  // Sums what kernel(begin, rows) returns for each part of the rows, in order.
  template <class Kernel>
  LossSums SumOverRows(ConstView view, const Kernel& kernel) {
    const Parts parts(view);
    partial_losses_.resize(kMostParts);
    ForEachPart(parts, [&](int64_t part, int64_t begin, int64_t rows) {
      partial_losses_[part] = kernel(begin, rows);
    });
    LossSums sums;
    for (int64_t part = 0; part < parts.count(); ++part) sums += partial_losses_[part];
    return sums;
  }

  double SquaredNormOfRows(ConstView x) {
    const Parts parts(x);
    partial_norms_.resize(kMostParts);
    ForEachPart(parts, [&](int64_t part, int64_t begin, int64_t rows) {
      partial_norms_[part] = cpu::SquaredNorm(x.Rows(begin, rows));
    });
    double sum = 0.0;
    for (int64_t part = 0; part < parts.count(); ++part) sum += partial_norms_[part];
    return sum;
  }

  // Gives every thread at least this much scratch memory of its own.
  void ReserveWorkspaces(int64_t floats) {
    for (AlignedBytes& bytes : workspaces_) cpu::Reserve(bytes, floats);
  }
  float* Workspace(int thread) { return reinterpret_cast<float*>(workspaces_[thread].data()); }

  cpu::Team team_;
  cpu::Gemm gemm_;
  std::vector<AlignedBytes> workspaces_;
  AlignedBytes partial_gains_;
  std::vector<LossSums> partial_losses_;
  std::vector<double> partial_norms_;
};

}  // namespace

std::string WhyBF16IsNoFaster() {
  return cpu::HasDotBF16() ? "" : "the processor has no AVX512_BF16 instructions";
}

bool HasProductLibrary() { return !cpu::GemmLibraryName().empty(); }

std::unique_ptr<Backend> MakeCpuBackend(int threads, Products products) {
  SANDGLASS_CHECK(threads >= 1, "a backend needs a thread");
  return std::make_unique<CpuBackend>(threads, products);
}

}  // namespace sandglass
