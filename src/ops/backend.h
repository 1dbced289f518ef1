// The operations a model is made of. One virtual call is one coarse op: the call costs nanoseconds,
// the op micro- to milliseconds. Model code never knows which backend runs.
//
// Conventions: outputs come first; a gradient is `d` + the name of what it belongs to; axes are
// B batch, T time, M = B*T tokens, D d_model, H query heads, KV key-value heads, E head width,
// F FFN width, V vocabulary.
//
// Element types: parameters, their gradients, the residual stream, statistics and logits have the
// backend's own type, dtype(). Activations, which are what matrix products read and write, have
// that type too, or all of them are bf16 where the backend's is f32; then products accumulate in
// f32, and every op computes in f32 and rounds once, at the end. Each op says which of its views
// are activations; the others have type dtype().
//
// Ops never throw on well-formed views; malformed ones are bugs and fail a check.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/view.h"

namespace sandglass {

// What an op does with what its output already holds.
enum class Into { kOverwrite, kAccumulate };

enum class Transpose { kNo, kYes };

// c = op(a) op(b), or c += op(a) op(b).
struct MatmulSpec {
  Transpose a = Transpose::kNo;
  Transpose b = Transpose::kNo;
  Into into = Into::kOverwrite;
};
// The sizes of op(x), where op transposes or does nothing.
constexpr int64_t RowsOf(const auto& x, Transpose transpose) {
  return transpose == Transpose::kYes ? x.cols : x.rows;
}
constexpr int64_t ColumnsOf(const auto& x, Transpose transpose) {
  return transpose == Transpose::kYes ? x.rows : x.cols;
}

// y = scale * gain * x / rms(x), with rms(x) = sqrt(mean(x^2) + epsilon) taken over each of
// `groups` equal segments of a row. `gain` has the width of a segment (shared by the segments) or
// of the row.
struct RmsNormSpec {
  double epsilon = 1e-5;
  double scale = 1.0;
  int groups = 1;
  Into into = Into::kOverwrite;
};

// Causal grouped-query attention. Query row b*query_length + i stands at absolute position
// kv_length - query_length + i and sees keys 0 .. that position. In k and v the rows of batch
// element b start at b*kv_stride (a cache has room for more rows than are filled).
//
// With first_keys, query row r sees keys first_keys[r] .. its position: attention within documents
// that stand one after another in a sequence. Within a batch element the values never fall.
struct AttentionSpec {
  int batch = 1;
  int query_length = 0;
  int kv_length = 0;
  int kv_stride = 0;  // rows per batch element in k and v, >= kv_length
  int heads = 0;
  int kv_heads = 0;  // divides heads; query head h reads key-value head h / (heads / kv_heads)
  int head_width = 0;
  double scale = 0.0;                        // of the scores, usually 1/sqrt(head_width)
  std::span<const int32_t> first_keys = {};  // [B*query_length]; empty: every row sees key 0
};

// Whether first_keys, if there are any, are as said above: for checks.
bool ValidFirstKeys(const AttentionSpec& spec);

// Rotary position embedding of the rotate-half kind: in a head of width E the pair (i, i + E/2)
// turns by position * theta^(-2i/E).
enum class RopeDirection { kForward, kBackward };
struct RopeSpec {
  int heads = 0;  // head_width = x.cols / heads, even
  RopeDirection direction = RopeDirection::kForward;
};

// A target of kIgnoredTarget is not scored and has no gradient.
inline constexpr int32_t kIgnoredTarget = -1;

struct CrossEntropySpec {
  int64_t vocabulary = 0;   // columns beyond it are padding: not part of the softmax
  double z_loss = 0.0;      // weight of (log sum exp)^2
  double grad_scale = 0.0;  // gradient of the total loss with respect to one token's loss
};

// Sums over the scored tokens, in double whatever the element type.
struct LossSums {
  double cross_entropy = 0.0;  // nats
  double z_loss = 0.0;         // sum of (log sum exp)^2, without its weight
  int64_t tokens = 0;

  LossSums& operator+=(const LossSums& other) {
    cross_entropy += other.cross_entropy;
    z_loss += other.z_loss;
    tokens += other.tokens;
    return *this;
  }
};

// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101) on a range of the slabs:
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2      with g = grad_scale * grad
//   w = w - lr * ( (m / correction1) / (sqrt(v / correction2) + epsilon) + weight_decay * w )
struct AdamWSpec {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double correction1 = 1.0;  // 1 - beta1^step
  double correction2 = 1.0;  // 1 - beta2^step
  double grad_scale = 1.0;   // clipping factor
};

struct BlendSpec {
  double y = 0.0;
  double x = 0.0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string Name() const = 0;
  // One line for the start-up banner: instruction set, who multiplies matrices, threads.
  virtual std::string Description() const = 0;
  virtual DType dtype() const = 0;

  // c [R, C] (+)= op(a) [R, N] op(b) [N, C]. Activations: a and b alike; if they are bf16, c is of
  // either type.
  virtual void Matmul(View c, ConstView a, ConstView b, const MatmulSpec& spec) = 0;

  // x [M, D] = table rows [V, D] of ids [M].
  virtual void Embed(View x, ConstView table, std::span<const int32_t> ids) = 0;
  // dtable [V, D] += dx [M, D] at rows ids [M]; ids may repeat.
  virtual void EmbedBackward(View dtable, ConstView dx, std::span<const int32_t> ids) = 0;

  // y = x, rounded if need be. Each of either type.
  virtual void Copy(View y, ConstView x) = 0;

  // y [M, D] (+)= norm(x [M, D]); inverse_rms [M, groups] is written for the backward pass. y may
  // be x itself when spec.into is kOverwrite. x and y: each of either type.
  virtual void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain,
                       const RmsNormSpec& spec) = 0;
  // dx [M, D] (+)= gradient (spec.into); dgain += gradient, always, summed in an order that does
  // not depend on the number of threads. dx may be dy itself when spec.into is kOverwrite. x, dx
  // and dy: each of either type.
  virtual void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x,
                               ConstView inverse_rms, ConstView gain, const RmsNormSpec& spec) = 0;

  // Turns x [M, H*E] in place. cosines, sines [positions, E/2]; row m of x stands at
  // positions[m]. kBackward turns by the opposite angle, which is the gradient. Activation: x.
  virtual void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
                    const RopeSpec& spec) = 0;

  // out [B*Tq, H*E] = softmax(q k^T * scale, causal) v; q [B*Tq, H*E], k, v [B*kv_stride, KV*E];
  // log_sum_exp [B*Tq, H] is written for the backward pass. Never stores Tq x Tk scores.
  // Activations: out, q, k, v.
  virtual void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
                         const AttentionSpec& spec) = 0;
  // dq, dk, dv overwritten. For query_length == kv_length == kv_stride only (training).
  // Activations: all but log_sum_exp.
  virtual void AttentionBackward(View dq, View dk, View dv, ConstView dout, ConstView out,
                                 ConstView log_sum_exp, ConstView q, ConstView k, ConstView v,
                                 const AttentionSpec& spec) = 0;

  // h [M, F] = silu(gate) * up, gate_up [M, 2F] = gate | up. Activations: all.
  virtual void SwiGlu(View h, ConstView gate_up) = 0;
  // dgate_up [M, 2F] from dh [M, F]; dgate_up may be gate_up itself. h [M, F] is written again if
  // it is not empty (when the forward pass did not keep it). Activations: all.
  virtual void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) = 0;

  // logits [M, V'] (V' >= vocabulary), targets [M]. Returns the sums over scored tokens. If
  // token_loss is not empty, token_loss[m] gets the cross-entropy in nats (0 where ignored).
  virtual LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                                std::span<const int32_t> targets, const CrossEntropySpec& spec) = 0;
  // The same sums, and the gradient of the logits:
  //   grad_scale * (softmax - onehot + 2 z_loss lse softmax), 0 in padding and ignored rows.
  // dlogits [M, V'] may be logits itself; otherwise what logits hold is lost. Activation: dlogits.
  virtual LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                                        const CrossEntropySpec& spec) = 0;

  virtual void Zero(View x) = 0;
  // y = spec.y y + spec.x x, each element computed in double and rounded once. y is not read if
  // spec.y is 0. y may be x itself.
  virtual void Blend(View y, ConstView x, const BlendSpec& spec) = 0;
  // Sum of squares of all elements, in double, added up in an order that does not depend on the
  // number of threads.
  virtual double SquaredNorm(ConstView x) = 0;
  // All views [1, N]: the same range of the four slabs.
  virtual void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) = 0;
};

// Scalar loops, written to be obviously right; f32 or f64 (for gradient checks).
std::unique_ptr<Backend> MakeReferenceBackend(DType dtype);

// Why bf16 activations would be no faster than f32 on this machine; empty if they are faster. They
// are computed right in any case.
std::string WhyBF16IsNoFaster();

// Who multiplies matrices on the cpu backend. kAuto is the backend's own kernels, but the library
// for bf16 where that uses AMX, which they do not.
enum class Products { kAuto, kOwn, kLibrary };
// Whether the program was built with a library of matrix products.
bool HasProductLibrary();

// Highway kernels on `threads` threads, and a library's matrix products where `products` asks for
// them (there must be one); f32, with activations in f32 or bf16.
std::unique_ptr<Backend> MakeCpuBackend(int threads, Products products = Products::kAuto);

}  // namespace sandglass
