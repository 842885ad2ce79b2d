#include "lf.cuh"

// The optimizers: float32 state, hyper-parameters and clip in float64 as kernels.Hyper and kernels.Clip lay them out.
struct Update {
  const float* g;
  const double *hyper, *clip;
  float *p, *m, *v;
  void* q;
  i64 n, type, no_decay;
  double rate;
};

enum { kLR, kBeta1, kBeta2, kEps, kDecay, kCorrection1, kCorrection2, kAverage };
enum { kNorm, kFactor, kOverflow };

LF_DEV void store_model(const Update& a, i64 i, float p) {
  switch (a.q ? a.type : -1) {
  case kF32: ((float*)a.q)[i] = p; break;
  case kBF16: st<bf16>(a.q, i, p); break;
  case kF16: st<f16>(a.q, i, p); break;
  }
}

LF_DEV void adamw_all(const Update& a) {
  if (a.clip[kOverflow] == 1) return;
  const double* h = a.hyper;
  float factor = (float)a.clip[kFactor], decay = a.no_decay ? 0 : (float)(h[kLR] * h[kDecay]);
  float b1 = (float)(1 - h[kBeta1]), b2 = (float)h[kBeta2], c2 = (float)(1 - h[kBeta2]);
  float rate = (float)(h[kLR] / h[kCorrection1]), root = (float)(1 / sqrt(h[kCorrection2])), eps = (float)h[kEps];
  LF_EACH(i, a.n) {
    float x = a.g[i] * factor, p = a.p[i], m = a.m[i], v;
    p -= decay * p;
    m += b1 * (x - m);
    v = b2 * a.v[i] + c2 * x * x;
    p -= rate * m / (sqrtf(v) * root + eps);
    a.p[i] = p;
    a.m[i] = m;
    a.v[i] = v;
    store_model(a, i, p);
  }
}
LF_ONE(adamw, adamw_all, Update)

LF_DEV void sgd_all(const Update& a) {
  if (a.clip[kOverflow] == 1) return;
  const double* h = a.hyper;
  float factor = (float)a.clip[kFactor], decay = a.no_decay ? 0 : (float)h[kDecay], momentum = (float)h[kBeta1], rate = (float)h[kLR];
  LF_EACH(i, a.n) {
    float p = a.p[i], m = momentum * a.m[i] + a.g[i] * factor + decay * p;
    p -= rate * m;
    a.p[i] = p;
    a.m[i] = m;
    store_model(a, i, p);
  }
}
LF_ONE(sgd, sgd_all, Update)

LF_DEV void sign_step_all(const Update& a) {
  if (a.clip[kOverflow] == 1) return;
  float by = (float)a.rate;
  LF_EACH(i, a.n) {
    float x = a.g[i];
    if (x > 0) a.p[i] -= by;
    else if (x < 0) a.p[i] += by;
    else if (x != x) a.p[i] = x;
  }
}
LF_ONE(sign_step, sign_step_all, Update)

LF_DEV void lion_all(const Update& a) {
  if (a.clip[kOverflow] == 1) return;
  const double* h = a.hyper;
  double decay = a.no_decay ? 0 : h[kDecay], b1 = h[kBeta1], b2 = h[kBeta2];
  LF_EACH(i, a.n) { // in float64: the sign must not depend on a rounding
    double x = a.g[i] * a.clip[kFactor], m = a.m[i], c = b1 * m + (1 - b1) * x, way = c > 0 ? 1 : c < 0 ? -1 : c;
    float p = (float)(a.p[i] - h[kLR] * (way + decay * a.p[i]));
    a.p[i] = p;
    a.m[i] = (float)(b2 * m + (1 - b2) * x);
    store_model(a, i, p);
  }
}
LF_ONE(lion, lion_all, Update)

// An average of weights, in p, moves towards g.
LF_DEV void average_all(const Update& a) {
  if (a.clip[kOverflow] == 1) return;
  double by = a.hyper[kAverage];
  LF_EACH(i, a.n) a.p[i] = (float)(a.p[i] - by * ((double)a.p[i] - a.g[i]));
}
LF_ONE(average, average_all, Update)

// Float64 sums: blocks of 4096 elements, then the blocks.
struct Total {
  const void* x;
  double* part;
  void* y;
  i64 n, add;
};

LF_DEV void squares_of_block(const Total& a) {
  i64 from = (i64)blockIdx.x * 4096, to = from + 4096 < a.n ? from + 4096 : a.n;
  double s = 0;
  for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) {
    double x = ((const float*)a.x)[i];
    s += x * x;
  }
  s = block_sum(s);
  if (threadIdx.x == 0) a.part[blockIdx.x] = s;
}
LF_ONE(squares, squares_of_block, Total)

LF_DEV void total_double(const Total& a) {
  double s = 0;
  LF_ROW(i, a.n) s += a.part[i];
  s = block_sum(s);
  double* y = (double*)a.y;
  if (threadIdx.x == 0) *y = a.add ? *y + s : s;
}
LF_ONE(total, total_double, Total)
