#include "lf.cuh"
#include "dynamic.cuh"

// Optimizers beside AdamW: Muon, Adafactor, without a schedule, and AdamW with moments in few bits. Hyper-parameters lie as optim.cu has
// them; what they mean here is said by kernels/ops_optim.go and its neighbours.
struct Further {
  const void* g;
  const double *hyper, *clip;
  const void* more; // squares of parameters, peaks of heads
  float* p;
  void *m, *v, *x, *s; // state, as each has it
  void* q;
  double* part;
  i64 n, type, flag, rows, width, matrices, chunks, first, group, whole, heads;
  double f0, f1;
};

enum { kRate, kFirst, kSecond, kEpsilon, kDecays, kOne, kTwo, kMean, kScaled, kDraw, kFirstOf, kRun, kPitch };
enum { kClipFactor = 1, kClipOverflow };

LF_DEV void store_copy(const Further& a, i64 i, float p) {
  switch (a.q ? a.type : -1) {
  case kF32: ((float*)a.q)[i] = p; break;
  case kBF16: st<bf16>(a.q, i, p); break;
  case kF16: st<f16>(a.q, i, p); break;
  }
}

// kernels.HyperNoise and StochasticRound16.
LF_DEV u32 hyper_noise(const double* h, i64 i) {
  i64 run = (i64)h[kRun];
  if (run > 0) i = i / run * (i64)h[kPitch] + i % run;
  return noise_at((u32)h[kDraw], (u64)((i64)h[kFirstOf] + i));
}
LF_DEV void by_chance(bf16* y, float x, u32 noise) {
  u32 up = bits_of(x) + (noise & 0xffff);
  if ((up & 0x7f800000) == 0x7f800000) narrow(y, x); // no number becomes an infinity
  else y->b = (u16)(up >> 16);
}

// The scalars of AdamW in float32.
struct Rates {
  float factor, decay, b1, b2, c2, rate, root, eps;
};
LF_DEV Rates rates_of(const Further& a) {
  const double* h = a.hyper;
  return {(float)a.clip[kClipFactor], a.flag ? 0 : (float)(h[kRate] * h[kDecays]), (float)(1 - h[kFirst]), (float)h[kSecond],
          (float)(1 - h[kSecond]), (float)(h[kRate] / h[kOne]), (float)(1 / sqrt(h[kTwo])), (float)h[kEpsilon]};
}

LF_DEV void adamw_narrow_all(const Further& a) {
  if (a.clip[kClipOverflow] == 1) return;
  Rates r = rates_of(a);
  const float* g = (const float*)a.g;
  bf16 *ms = (bf16*)a.m, *vs = (bf16*)a.v;
  LF_EACH(i, a.n) {
    float x = g[i] * r.factor, p = a.p[i], m = widen(ms[i]), v = widen(vs[i]);
    p -= r.decay * p;
    m += r.b1 * (x - m);
    v = r.b2 * v + r.c2 * x * x;
    p -= r.rate * m / (sqrtf(v) * r.root + r.eps);
    a.p[i] = p;
    u32 noise = hyper_noise(a.hyper, i);
    by_chance(ms + i, m, noise);
    by_chance(vs + i, v, noise >> 16);
    store_copy(a, i, p);
  }
}
LF_ONE(adamw_narrow, adamw_narrow_all, Further)

// The place of the nearest number of a map, the upper one of two as near, as kernels.DynamicMap's.
LF_DEV u8 place_of(const float* map, float x) {
  if (!(x >= -LF_MOST_F32)) return 255;
  int lo = 0, hi = 256; // map[lo] <= x, or lo is 0; map[hi] > x
  while (lo + 1 < hi) {
    int mid = (lo + hi) / 2;
    if (map[mid] <= x) lo = mid;
    else hi = mid;
  }
  if (lo == 255 || x < map[0]) return (u8)lo;
  return (u8)(x - map[lo] >= (map[lo + 1] - map[lo]) * 0.5f ? lo + 1 : lo);
}

// The greatest over a block, or what is no number where one is none.
LF_DEV float block_most(float v) {
  __shared__ float part[32];
  for (int o = 16; o > 0; o >>= 1) v = most_of(v, __shfl_xor_sync(FULL, v, o));
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (u32 i = 1; i < blockDim.x / 32; i++) v = most_of(v, part[i]);
  return v;
}

// kernels.AdamW8Block, a block of threads for a block of numbers. Moments are computed twice: to find their scales, and to be stored.
LF_DEV void eight_of(const Further& a, const float* g, float scale_m, float scale_v, float m1, float beta2, float m2, i64 i, float* m, float* v) {
  *m = lf_signed[((const u8*)a.m)[i]] * scale_m;
  *v = lf_unsigned[((const u8*)a.v)[i]] * scale_v;
  *m += m1 * (*g - *m);
  *v = beta2 * *v + m2 * *g * *g;
}
LF_DEV void adamw_eight(const Further& a) {
  if (a.clip[kClipOverflow] == 1) return;
  const double* h = a.hyper;
  float keep = (float)(1 - h[kRate] * (a.flag ? 0 : h[kDecays])), eps = (float)h[kEpsilon], step = (float)(h[kRate] / h[kOne]);
  float root = (float)(1 / sqrt(h[kTwo])), beta2 = (float)h[kSecond], m1 = (float)(1 - h[kFirst]), m2 = (float)(1 - h[kSecond]);
  float factor = (float)a.clip[kClipFactor];
  float *sm = (float*)a.x + blockIdx.x, *sv = (float*)a.s + blockIdx.x;
  float scale_m = *sm, scale_v = *sv, most_m = 1e-12f, most_v = 1e-12f, m, v;
  i64 from = (i64)blockIdx.x * a.width;
  LF_ROW(j, a.width) {
    i64 i = from + j;
    float g = ((const float*)a.g)[i] * factor;
    eight_of(a, &g, scale_m, scale_v, m1, beta2, m2, i, &m, &v);
    float p = a.p[i] * keep - step * m / (sqrtf(v) * root + eps);
    a.p[i] = p;
    store_copy(a, i, p);
    most_m = most_of(most_m, fabsf(m));
    most_v = most_of(most_v, v);
  }
  most_m = block_most(most_m);
  most_v = block_most(most_v);
  if (most_m > LF_MOST_F32) most_m = LF_MOST_F32;
  if (most_v > LF_MOST_F32) most_v = LF_MOST_F32;
  LF_ROW(j, a.width) {
    i64 i = from + j;
    float g = ((const float*)a.g)[i] * factor;
    eight_of(a, &g, scale_m, scale_v, m1, beta2, m2, i, &m, &v);
    ((u8*)a.m)[i] = place_of(lf_signed, m / most_m);
    ((u8*)a.v)[i] = place_of(lf_unsigned, v / most_v);
  }
  if (threadIdx.x == 0) *sm = most_m, *sv = most_v;
}
LF_ONE(adamw_8bit, adamw_eight, Further)

LF_DEV void schedule_free_all(const Further& a) {
  if (a.clip[kClipOverflow] == 1) return;
  const double* h = a.hyper;
  float factor = (float)a.clip[kClipFactor], decay = a.flag ? 0 : (float)h[kDecays], b2 = (float)h[kSecond], c2 = (float)(1 - h[kSecond]);
  float rate = (float)h[kRate], eps = (float)h[kEpsilon], correction = (float)h[kTwo], share = (float)h[kMean];
  float to_z = (float)(1 - h[kFirst]), to_x = (float)h[kFirst];
  bool begins = h[kOne] == 1;
  float *zs = (float*)a.m, *vs = (float*)a.v, *xs = (float*)a.x;
  LF_EACH(i, a.n) {
    float d = ((const float*)a.g)[i] * factor, p = a.p[i], z = begins ? p : zs[i], x = begins ? p : xs[i];
    float v = b2 * vs[i] + c2 * d * d;
    z -= rate * (d / (sqrtf(v / correction) + eps) + decay * p);
    x += share * (z - x);
    p = to_z * z + to_x * x;
    a.p[i] = p;
    zs[i] = z;
    vs[i] = v;
    xs[i] = x;
    store_copy(a, i, p);
  }
}
LF_ONE(schedule_free, schedule_free_all, Further)

// p is the direction, and may be g.
LF_DEV void muon_momentum_all(const Further& a) {
  bool over = a.clip[kClipOverflow] == 1;
  float factor = (float)a.clip[kClipFactor], beta = (float)a.hyper[kFirst], less = (float)(1 - a.hyper[kFirst]);
  LF_EACH(i, a.n) {
    if (over) {
      a.p[i] = 0;
      continue;
    }
    float x = ((const float*)a.g)[i] * factor, m = ((float*)a.m)[i];
    m += less * (x - m);
    ((float*)a.m)[i] = m;
    a.p[i] = a.flag ? m : x + beta * (m - x);
  }
}
LF_ONE(muon_momentum, muon_momentum_all, Further)

LF_DEV void muon_step_all(const Further& a) {
  if (a.clip[kClipOverflow] == 1) return;
  const double* h = a.hyper;
  float decay = a.flag ? 0 : (float)(h[kRate] * h[kDecays]), by = (float)(h[kRate] * h[kScaled]);
  LF_EACH(i, a.n) {
    float p = a.p[i];
    p -= decay * p;
    p -= by * ((const float*)a.g)[i];
    a.p[i] = p;
    store_copy(a, i, p);
  }
}
LF_ONE(muon_step, muon_step_all, Further)

// Rows of queries and keys by their group's greatest score.
LF_DEV void peak_clip_all(const Further& a) {
  if (a.clip[kClipOverflow] != 0) return;
  const float* peak = (const float*)a.more;
  LF_EACH(i, a.n) {
    i64 at = i / a.width + a.first;
    float most = 0;
    for (i64 h = 0; h < a.heads; h++) most = most_of(most, peak[at / a.group * a.heads + h]);
    float f = (double)most > a.f0 ? (float)pow(a.f0 / (double)most, at % a.group < a.whole ? 1.0 : a.f1) : 1;
    float p = a.p[i] * f;
    a.p[i] = p;
    store_copy(a, i, p);
  }
}
LF_ONE(peak_clip, peak_clip_all, Further)

// Sums of squares of matrices in float64: blocks of 4096 elements of each, then whoever needs them adds the blocks up in order.
enum { kShare = 4096 };
LF_DEV double parts_of(const Further& a) {
  double s = 0;
  LF_ROW(i, a.chunks) s += a.part[blockIdx.y * a.chunks + i];
  return block_sum(s);
}
LF_DEV void squares_by_matrix(const Further& a) {
  const float* x = (const float*)a.g + (i64)blockIdx.y * a.n;
  i64 from = (i64)blockIdx.x * kShare, to = from + kShare < a.n ? from + kShare : a.n;
  double s = 0;
  for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) s += (double)x[i] * x[i];
  s = block_sum(s);
  if (threadIdx.x == 0) a.part[blockIdx.y * a.chunks + blockIdx.x] = s;
}
LF_ONE(squares_matrices, squares_by_matrix, Further)

// y = x over its norm, f0 at least; y, in p, may be x.
LF_DEV void unit_matrices(const Further& a) {
  double norm = sqrt(parts_of(a));
  float by = (float)(1 / (norm > a.f0 || norm != norm ? norm : a.f0));
  i64 at = (i64)blockIdx.y * a.n, from = (i64)blockIdx.x * kShare, to = from + kShare < a.n ? from + kShare : a.n;
  for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) a.p[at + i] = ((const float*)a.g)[at + i] * by;
}
LF_ONE(orthogonal_unit, unit_matrices, Further)

// p = f0·g + f1·p.
LF_DEV void blend_all(const Further& a) {
  float u = (float)a.f0, v = (float)a.f1;
  LF_EACH(i, a.n) a.p[i] = u * ((const float*)a.g)[i] + (v != 0 ? v * a.p[i] : 0);
}
LF_ONE(orthogonal_blend, blend_all, Further)

// Adafactor. Mean squares of rows, a block each.
LF_DEV void factor_rows(const Further& a) {
  if (a.clip[kClipOverflow] != 0) return;
  i64 row = (i64)blockIdx.y * a.rows + blockIdx.x;
  double s = 0, factor = a.clip[kClipFactor];
  LF_ROW(j, a.width) {
    double x = ((const float*)a.g)[row * a.width + j] * factor;
    s += x * x;
  }
  s = block_sum(s);
  float* r = (float*)a.m + row;
  if (threadIdx.x == 0) *r = (float)(*r + a.hyper[kSecond] * (s / (double)a.width - *r));
}
LF_ONE(adafactor_rows, factor_rows, Further)

// Of columns: 64 rows at a time, then their sums in order. A block has 256 columns.
LF_DEV void factor_columns(const Further& a) {
  i64 j = (i64)blockIdx.x * blockDim.x + threadIdx.x, from = (i64)blockIdx.y * 64, to = from + 64 < a.rows ? from + 64 : a.rows;
  if (j >= a.width) return;
  const float* g = (const float*)a.g + (i64)blockIdx.z * a.rows * a.width;
  double s = 0, factor = a.clip[kClipFactor];
  for (i64 i = from; i < to; i++) {
    double x = g[i * a.width + j] * factor;
    s += x * x;
  }
  a.part[((i64)blockIdx.z * a.chunks + blockIdx.y) * a.width + j] = s;
}
LF_ONE(adafactor_columns, factor_columns, Further)
LF_DEV void factor_joined(const Further& a) {
  if (a.clip[kClipOverflow] != 0) return;
  LF_EACH(i, a.matrices * a.width) {
    double s = 0;
    for (i64 c = 0; c < a.chunks; c++) s += a.part[(i / a.width * a.chunks + c) * a.width + i % a.width];
    float* v = (float*)a.v + i;
    *v = (float)(*v + a.hyper[kSecond] * (s / (double)a.rows - *v));
  }
}
LF_ONE(adafactor_joined, factor_joined, Further)

// The mean of rows' moments, a block for each matrix.
LF_DEV void factor_mean(const Further& a) {
  double s = 0;
  LF_ROW(i, a.rows) s += ((const float*)a.m)[(i64)blockIdx.x * a.rows + i];
  s = block_sum(s);
  if (threadIdx.x == 0) a.part[blockIdx.x] = s / (double)a.rows;
}
LF_ONE(adafactor_mean, factor_mean, Further)

// Directions, in p, and the sums of their squares in blocks, in s; part are the means. f0 is the least mean.
LF_DEV void factor_directions(const Further& a) {
  bool over = a.clip[kClipOverflow] != 0;
  i64 at = (i64)blockIdx.y * a.n, from = (i64)blockIdx.x * kShare, to = from + kShare < a.n ? from + kShare : a.n;
  double s = 0, factor = a.clip[kClipFactor], least = a.f0 * a.f0, mean = a.v ? a.part[blockIdx.y] : 0;
  if (mean < a.f0) mean = a.f0;
  for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) {
    double x = ((const float*)a.g)[at + i] * factor, v;
    if (over) {
      a.p[at + i] = 0;
      continue;
    }
    if (a.v) v = (double)((const float*)a.m)[blockIdx.y * a.rows + i / a.width] * ((const float*)a.v)[blockIdx.y * a.width + i % a.width] / mean;
    else {
      float* m = (float*)a.m + at + i;
      v = *m + a.hyper[kSecond] * (x * x - *m);
      *m = (float)v;
    }
    x /= sqrt(v < least ? least : v);
    s += x * x;
    a.p[at + i] = (float)x;
  }
  s = block_sum(s);
  if (threadIdx.x == 0) ((double*)a.s)[blockIdx.y * a.chunks + blockIdx.x] = s;
}
LF_ONE(adafactor_directions, factor_directions, Further)

// Brought to their lengths; more are the squares of parameters.
LF_DEV void factor_lengths(const Further& a) {
  if (a.clip[kClipOverflow] != 0) return;
  const double* h = a.hyper;
  double n = (double)a.n, rms = sqrt(parts_of(a) / n) / h[kOne], by = 1 / (rms < 1 ? 1 : rms);
  if (h[kTwo] == 1) {
    by *= most_of(sqrt(((const double*)a.more)[blockIdx.y] / n), h[kEpsilon]);
  }
  i64 at = (i64)blockIdx.y * a.n, from = (i64)blockIdx.x * kShare, to = from + kShare < a.n ? from + kShare : a.n;
  for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) a.p[at + i] = (float)(a.p[at + i] * by);
}
LF_ONE(adafactor_lengths, factor_lengths, Further)
