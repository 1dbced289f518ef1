#include "bench/op_bench.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "base/random.h"
#include "bench/measure.h"

namespace sandglass {
namespace {

// The matrices of an op, made when they are first asked for. Two benches give a name equal values,
// as near as their types hold them.
class Bench {
 public:
  Bench(Backend& backend, DType activations) : ops_(backend), activations_(activations) {}

  Backend& ops() const { return ops_; }
  // Of the backend's own type, or an activation.
  View Own(const std::string& name, int64_t rows, int64_t cols) {
    return Get(name, rows, cols, ops_.dtype());
  }
  View Activation(const std::string& name, int64_t rows, int64_t cols) {
    return Get(name, rows, cols, activations_);
  }
  const std::map<std::string, Matrix>& matrices() const { return matrices_; }
  int64_t size_bytes() const {
    int64_t bytes = 0;
    for (const auto& [name, matrix] : matrices_) {
      bytes += matrix.view.elements() * SizeOf(matrix.view.dtype);
    }
    return bytes;
  }

 private:
  View Get(const std::string& name, int64_t rows, int64_t cols, DType dtype) {
    const auto found = matrices_.find(name);
    if (found != matrices_.end()) return found->second.view;
    const View view = matrices_.emplace(name, Matrix(rows, cols, dtype)).first->second.view;
    RandomStream random(1, name);
    for (int64_t i = 0; i < rows * cols; ++i) {
      // Both benches start from numbers that bf16 holds.
      const BF16 value = ToBF16(static_cast<float>(random.NextNormal()));
      if (dtype == DType::kBF16) {
        view.Row<BF16>()[i] = value;
      } else if (dtype == DType::kF32) {
        view.Row<float>()[i] = ToFloat(value);
      } else {
        view.Row<double>()[i] = ToFloat(value);
      }
    }
    return view;
  }

  Backend& ops_;
  DType activations_;
  std::map<std::string, Matrix> matrices_;
};

struct OpCase {
  std::string name;
  // Runs on the first `batch` sequences of `length` tokens. Names of what it only reads or writes.
  std::function<void(Bench& bench, int batch, int length)> run;
  std::string sizes;
  double flops = 0.0;  // at the full size; 0 where bytes are what counts
};

double ElementAt(View view, int64_t i) {
  switch (view.dtype) {
    case DType::kF32:
      return view.Row<float>()[i];
    case DType::kF64:
      return view.Row<double>()[i];
    case DType::kBF16:
      return ToFloat(view.Row<BF16>()[i]);
    case DType::kF16:
      break;
  }
  SANDGLASS_CHECK(false, "no op computes in this type");
}

// Of matrices that an op leaves in any state.
constexpr std::string_view kLost = "lost ";

// Largest difference over all matrices, as a fraction of the largest element of each.
double LargestError(const Bench& got, const Bench& wanted) {
  double error = 0.0;
  for (const auto& [name, matrix] : wanted.matrices()) {
    if (name.starts_with(kLost)) continue;
    const View view = got.matrices().at(name).view;
    double largest = 0.0, difference = 0.0;
    for (int64_t i = 0; i < matrix.view.elements(); ++i) {
      const double want = ElementAt(matrix.view, i);
      largest = std::max(largest, std::abs(want));
      // A NaN on one side is an infinite difference.
      const double apart = std::abs(ElementAt(view, i) - want);
      difference = std::isnan(apart) ? HUGE_VAL : std::max(difference, apart);
    }
    error = std::max(error, largest > 0 ? difference / largest : difference);
  }
  return error;
}

std::vector<int32_t> Cycle(int64_t count, int below) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(i * 7919 % below);
  return ids;
}
std::vector<int32_t> Positions(int batch, int length) {
  std::vector<int32_t> positions(int64_t{batch} * length);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i % length);
  return positions;
}

// Forward product y [M, out] = x [M, in] W^T, and the two of its backward pass.
void AddProducts(std::vector<OpCase>& cases, const std::string& name, int64_t tokens, int64_t in,
                 int64_t out) {
  const double flops = 2.0 * tokens * in * out;
  const std::string sizes = fmt::format("{} x {} x {}", tokens, out, in);
  cases.push_back({name,
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().Matmul(bench.Activation("y", m, out), bench.Activation("x", m, in),
                                        bench.Activation("w", out, in), {.b = Transpose::kYes});
                   },
                   sizes, flops});
  cases.push_back({name + ", gradient of input",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().Matmul(bench.Activation("dx", m, in),
                                        bench.Activation("dy", m, out),
                                        bench.Activation("w", out, in), {});
                   },
                   sizes, flops});
  cases.push_back({name + ", gradient of weight",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().Matmul(bench.Own("dw", out, in), bench.Activation("dy", m, out),
                                        bench.Activation("x", m, in),
                                        {.a = Transpose::kYes, .into = Into::kAccumulate});
                   },
                   sizes, flops});
}

std::vector<OpCase> CasesOf(const ModelConfig& config, int batch, int length) {
  const Shape& shape = config.shape;
  const int64_t tokens = int64_t{batch} * length;
  const int64_t d = shape.d_model;
  const int64_t q_width = shape.attention_width(), kv_width = shape.kv_width();
  std::vector<OpCase> cases;

  AddProducts(cases, "matmul qkv", tokens, d, q_width + 2 * kv_width);
  AddProducts(cases, "matmul out", tokens, q_width, d);
  if (!shape.ffn.empty()) {
    const int64_t f = shape.ffn.front();
    AddProducts(cases, "matmul gate|up", tokens, d, 2 * f);
    AddProducts(cases, "matmul down", tokens, f, d);
    cases.push_back({"swiglu",
                     [=](Bench& bench, int batch, int length) {
                       const int64_t m = int64_t{batch} * length;
                       bench.ops().SwiGlu(bench.Activation("h", m, f),
                                          bench.Activation("gate_up", m, 2 * f));
                     },
                     fmt::format("{} x {}", tokens, f)});
    cases.push_back({"swiglu backward",
                     [=](Bench& bench, int batch, int length) {
                       const int64_t m = int64_t{batch} * length;
                       bench.ops().SwiGluBackward(
                           bench.Activation("dgate_up", m, 2 * f), bench.Activation("h", m, f),
                           bench.Activation("dh", m, f), bench.Activation("gate_up", m, 2 * f));
                     },
                     fmt::format("{} x {}", tokens, f)});
  }
  cases.push_back({"rmsnorm",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().RmsNorm(bench.Activation("n", m, d), bench.Own("inverse", m, 1),
                                         bench.Own("x", m, d), bench.Own("gain", 1, d), {});
                   },
                   fmt::format("{} x {}", tokens, d)});
  cases.push_back({"rmsnorm backward",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     const View inverse = bench.Own("inverse", m, 1),
                                x = bench.Activation("x", m, d);
                     bench.ops().RmsNormBackward(bench.Own("dx", m, d), bench.Own("dgain", 1, d),
                                                 bench.Activation("dn", m, d), x, inverse,
                                                 bench.Own("gain", 1, d), {});
                   },
                   fmt::format("{} x {}", tokens, d)});
  const int64_t half = shape.head_width / 2;
  cases.push_back({"rope",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().Rope(bench.Activation("q", m, q_width),
                                      bench.Own("cosines", length, half),
                                      bench.Own("sines", length, half), Positions(batch, length),
                                      {.heads = shape.heads});
                   },
                   fmt::format("{} x {}", tokens, q_width)});

  const auto attention_spec = [shape](int batch, int length) {
    return AttentionSpec{.batch = batch,
                         .query_length = length,
                         .kv_length = length,
                         .kv_stride = length,
                         .heads = shape.heads,
                         .kv_heads = shape.kv_heads,
                         .head_width = shape.head_width,
                         .scale = 1.0 / std::sqrt(static_cast<double>(shape.head_width))};
  };
  const auto attend = [=](Bench& bench, int batch, int length) {
    const int64_t m = int64_t{batch} * length;
    bench.ops().Attention(bench.Activation("out", m, q_width), bench.Own("lse", m, shape.heads),
                          bench.Activation("q", m, q_width), bench.Activation("k", m, kv_width),
                          bench.Activation("v", m, kv_width), attention_spec(batch, length));
  };
  const double attention_flops = 2.0 * q_width * tokens * (length + 1.0);
  const std::string attention_sizes = fmt::format("B{} T{} a{}x{}-kv{}", batch, length, shape.heads,
                                                  shape.head_width, shape.kv_heads);
  cases.push_back({"attention", attend, attention_sizes, attention_flops});
  cases.push_back({"attention with backward",
                   [=](Bench& bench, int batch, int length) {
                     attend(bench, batch, length);
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().AttentionBackward(
                         bench.Activation("dq", m, q_width), bench.Activation("dk", m, kv_width),
                         bench.Activation("dv", m, kv_width), bench.Activation("dout", m, q_width),
                         bench.Activation("out", m, q_width), bench.Own("lse", m, shape.heads),
                         bench.Activation("q", m, q_width), bench.Activation("k", m, kv_width),
                         bench.Activation("v", m, kv_width), attention_spec(batch, length));
                   },
                   attention_sizes, 3.5 * attention_flops});

  const int vocabulary = config.vocabulary;
  const int64_t padded = config.padded_vocabulary();
  // As many rows as the model computes at a time is its own affair; 256 are at most that.
  const auto loss_rows = [](int batch, int length) {
    return std::min<int64_t>(256, int64_t{batch} * length);
  };
  cases.push_back({"cross-entropy backward",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = loss_rows(batch, length);
                     bench.ops().CrossEntropyBackward(
                         bench.Activation("dlogits", m, padded),
                         bench.Own(std::string(kLost) + "logits", m, padded), Cycle(m, vocabulary),
                         {.vocabulary = vocabulary, .grad_scale = 1.0});
                   },
                   fmt::format("{} x {}", loss_rows(batch, length), padded)});
  cases.push_back({"embedding",
                   [=](Bench& bench, int batch, int length) {
                     const int64_t m = int64_t{batch} * length;
                     bench.ops().Embed(bench.Own("x", m, d), bench.Own("table", 512, d),
                                       Cycle(m, 512));
                   },
                   fmt::format("{} x {}", tokens, d)});
  constexpr int64_t kSlabPerToken = 2048;
  cases.push_back(
      {"adamw",
       [=](Bench& bench, int batch, int length) {
         const int64_t slab = kSlabPerToken * batch * length;
         // The second moment is a mean of squares.
         const View v = bench.Own("v", 1, slab);
         bench.ops().Zero(v);
         bench.ops().AdamW(
             bench.Own("values", 1, slab), bench.Own("m", 1, slab), v, bench.Own("grads", 1, slab),
             {.learning_rate = 1e-3, .weight_decay = 0.1, .correction1 = 0.1, .correction2 = 0.05});
       },
       fmt::format("{}", kSlabPerToken * tokens)});
  return cases;
}

}  // namespace

OpBenchResult BenchOps(const OpBenchOptions& options) {
  const auto backend = options.system.MakeBackend();
  const auto reference = MakeReferenceBackend(DType::kF64);
  const DType activations = ActivationType(options.precision);
  OpBenchResult result{.shape = options.model.shape.ToString(),
                       .backend = backend->Description(),
                       .precision = EnumName(options.precision),
                       .peak_gflop_per_s = PeakFlopsPerSecond(*backend, activations) / 1e9,
                       .bandwidth_bytes_per_s = CopyBytesPerSecond(*backend)};
  // Checked on one sequence of up to 32 tokens.
  constexpr int kCheckedLength = 32;
  const int checked_length = std::min(kCheckedLength, options.length);
  for (const OpCase& op : CasesOf(options.model, options.batch, options.length)) {
    Bench checked(*backend, activations), wanted(*reference, DType::kF64);
    op.run(checked, 1, checked_length);
    op.run(wanted, 1, checked_length);
    OpResult line{.op = op.name, .sizes = op.sizes};
    line.largest_error = LargestError(checked, wanted);
    // Sums of a few thousand terms in f32; in bf16 one rounding to 8 bits, and where an op reads
    // what another one rounded, or rounds within, two.
    line.tolerance = activations == DType::kBF16 ? 3.0 / 256 : 1e-4;
    if (line.largest_error > line.tolerance) {
      throw Error({.what = fmt::format("{} is off by {:.2e} of its largest element", op.name,
                                       line.largest_error),
                   .where = result.backend,
                   .expected = fmt::format("at most {:.1e} from the reference", line.tolerance),
                   .remedy = "do not trust this build on this machine; report it with this line"});
    }
    Bench bench(*backend, activations);
    line.seconds = TimeAlone([&] { op.run(bench, options.batch, options.length); });
    line.gflop_per_s = op.flops / line.seconds / 1e9;
    line.gbyte_per_s = static_cast<double>(bench.size_bytes()) / line.seconds / 1e9;
    line.share_of_roof = op.flops > 0 ? line.gflop_per_s / result.peak_gflop_per_s
                                      : line.gbyte_per_s * 1e9 / result.bandwidth_bytes_per_s;
    result.ops.push_back(std::move(line));
  }
  return result;
}

}  // namespace sandglass
