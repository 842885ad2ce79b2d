#include "lf.cuh"

// Updates and sums of squares of many tensors in one launch: blocks go over all of them, each tensor's from its field from on.
enum { kManyShare = 4096, kManyUpdates = 40, kManySums = 80 };

struct ManyUpdates {
  struct {
    const float* g;
    float *p, *m, *v;
    void* q;
    i64 n, type, no_decay, from;
    double rate, decay;
  } of[kManyUpdates];
  double beta1, beta2, eps, correction1, correction2, factor;
  i64 count;
};

// The last tensor whose blocks begin at or before this one.
template <class A> LF_DEV int many_at(const A& a) {
  int lo = 0, hi = (int)a.count;
  while (lo + 1 < hi) {
    int mid = (lo + hi) / 2;
    if (a.of[mid].from <= (i64)blockIdx.x) lo = mid;
    else hi = mid;
  }
  return lo;
}

// Four numbers side by side, in one access where all lie on multiples of 16 bytes; of n < 4 the others are zeros.
LF_DEV void load_four(float* f, const float* p, bool whole, int n) {
  Sixteen s = {};
  if (whole && n == 4) s = *(const Sixteen*)p;
#pragma unroll
  for (int c = 0; c < 4; c++) f[c] = whole && n == 4 ? of_bits(s.w[c]) : c < n ? p[c] : 0;
}
LF_DEV void store_four(float* p, const float* f, bool whole, int n) {
  if (whole && n == 4) *(Sixteen*)p = {bits_of(f[0]), bits_of(f[1]), bits_of(f[2]), bits_of(f[3])};
  else
    for (int c = 0; c < n; c++) p[c] = f[c];
}
template <class T> LF_DEV void store_pairs(T* p, const float* f, bool whole, int n) {
  if (whole && n == 4) *(u64*)p = pair_of<T>(f[0], f[1]) | (u64)pair_of<T>(f[2], f[3]) << 32;
  else
    for (int c = 0; c < n; c++) narrow(p + c, f[c]);
}

// The same arithmetic as adamw's.
LF_DEV void adamw_of_many(const ManyUpdates& a) {
  int k = many_at(a);
  float factor = (float)a.factor, decay = a.of[k].no_decay ? 0 : (float)(a.of[k].rate * a.of[k].decay);
  float b1 = (float)(1 - a.beta1), b2 = (float)a.beta2, c2 = (float)(1 - a.beta2);
  float rate = (float)(a.of[k].rate / a.correction1), root = (float)(1 / sqrt(a.correction2)), eps = (float)a.eps;
  const float* g = a.of[k].g;
  float *ps = a.of[k].p, *ms = a.of[k].m, *vs = a.of[k].v;
  i64 from = ((i64)blockIdx.x - a.of[k].from) * kManyShare, to = from + kManyShare < a.of[k].n ? from + kManyShare : a.of[k].n;
  i64 type = a.of[k].q ? a.of[k].type : -1;
  void* q = a.of[k].q;
  bool whole = ((u64)g | (u64)ps | (u64)ms | (u64)vs | (u64)q) % 16 == 0;
  for (i64 i = from + threadIdx.x * 4; i < to; i += blockDim.x * 4) {
    int n = to - i < 4 ? (int)(to - i) : 4;
    float x[4], p[4], m[4], v[4];
    load_four(x, g + i, whole, n);
    load_four(p, ps + i, whole, n);
    load_four(m, ms + i, whole, n);
    load_four(v, vs + i, whole, n);
#pragma unroll
    for (int c = 0; c < 4; c++) {
      x[c] *= factor;
      p[c] -= decay * p[c];
      m[c] += b1 * (x[c] - m[c]);
      v[c] = b2 * v[c] + c2 * x[c] * x[c];
      p[c] -= rate * m[c] / (sqrtf(v[c]) * root + eps);
    }
    store_four(ps + i, p, whole, n);
    store_four(ms + i, m, whole, n);
    store_four(vs + i, v, whole, n);
    switch (type) {
    case kF32: store_four((float*)q + i, p, whole, n); break;
    case kBF16: store_pairs((bf16*)q + i, p, whole, n); break;
    case kF16: store_pairs((f16*)q + i, p, whole, n); break;
    }
  }
}
LF_ONE(adamw_many, adamw_of_many, ManyUpdates)

struct ManySums {
  struct {
    const float* x;
    double* y;
    i64 n, from, add;
  } of[kManySums];
  double* part; // of each block
  i64 count;
};

// As squares and total: blocks of 4096 elements, then the blocks of a tensor.
LF_DEV void squares_of_many(const ManySums& a) {
  int k = many_at(a);
  const float* x = a.of[k].x;
  i64 from = ((i64)blockIdx.x - a.of[k].from) * kManyShare, to = from + kManyShare < a.of[k].n ? from + kManyShare : a.of[k].n;
  double s = 0;
  for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) {
    double v = x[i];
    s += v * v;
  }
  s = block_sum(s);
  if (threadIdx.x == 0) a.part[blockIdx.x] = s;
}
LF_ONE(squares_many, squares_of_many, ManySums)

LF_DEV void totals_of_many(const ManySums& a) {
  int k = (int)blockIdx.x;
  i64 n = (a.of[k].n + kManyShare - 1) / kManyShare;
  double s = 0;
  LF_ROW(i, n) s += a.part[a.of[k].from + i];
  s = block_sum(s);
  if (threadIdx.x == 0) *a.of[k].y = a.of[k].add ? *a.of[k].y + s : s;
}
LF_ONE(totals_many, totals_of_many, ManySums)
