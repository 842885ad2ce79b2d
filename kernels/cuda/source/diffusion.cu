#include "lf.cuh"

// Operations of models of diffusion on rows: modulation with its norms, gates, features of times, losses of numbers.
struct Mod {
  const void *x, *dy, *s, *b;
  const i32* at;
  const float *rstd, *mean;
  void *y, *y2;
  float *rstd_out, *mean_out, *part; // part [chunks, 2, groups, d]
  i64 rows, d, run, groups, kind, wide, chunks;
  double eps, plus;
};

enum { kPlainRows, kLayerRows, kRMSRows };

// What a row is scaled or shifted by, of a table that is float32 or as its rows are; rows outside it are zeros.
template <class T> LF_DEV float of_table(const void* p, i64 wide, i64 groups, i64 g, i64 d, i64 j) {
  if (!p || g < 0 || g >= groups) return 0;
  return wide ? ((const float*)p)[g * d + j] : ld<T>(p, g * d + j);
}

template <class T> LF_DEV void modulate(const Mod& a) {
  i64 row = blockIdx.x, at = row * a.d, g = a.at[row / a.run];
  float m = 0, r = 1, s = 0;
  if (a.kind == kLayerRows) {
    LF_ROW(i, a.d) s += ld<T>(a.x, at + i);
    m = block_sum(s) / a.d;
  }
  if (a.kind != kPlainRows) {
    s = 0;
    LF_ROW(i, a.d) {
      float x = ld<T>(a.x, at + i) - m;
      s += x * x;
    }
    r = 1 / sqrtf(block_sum(s) / a.d + (float)a.eps);
    if (threadIdx.x == 0) {
      a.rstd_out[row] = r;
      if (a.kind == kLayerRows) a.mean_out[row] = m;
    }
  }
  LF_ROW(i, a.d) {
    float scale = (float)a.plus + of_table<T>(a.s, a.wide & 1, a.groups, g, a.d, i);
    st<T>(a.y, at + i, (ld<T>(a.x, at + i) - m) * r * scale + of_table<T>(a.b, a.wide & 2, a.groups, g, a.d, i));
  }
}
LF_TYPED(modulate, Mod)

template <class T> LF_DEV void modulate_dx(const Mod& a) {
  i64 row = blockIdx.x, at = row * a.d, g = a.at[row / a.run];
  float m = a.mean ? a.mean[row] : 0, r = a.rstd ? a.rstd[row] : 1, m1 = 0, m2 = 0;
  if (a.rstd) {
    float s = 0, q = 0;
    LF_ROW(i, a.d) {
      float e = ld<T>(a.dy, at + i) * ((float)a.plus + of_table<T>(a.s, a.wide & 1, a.groups, g, a.d, i));
      s += e;
      q += e * ((ld<T>(a.x, at + i) - m) * r);
    }
    m1 = block_sum(s) / a.d;
    m2 = block_sum(q) / a.d;
    if (!a.mean) m1 = 0;
  }
  LF_ROW(i, a.d) {
    float e = ld<T>(a.dy, at + i) * ((float)a.plus + of_table<T>(a.s, a.wide & 1, a.groups, g, a.d, i));
    st<T>(a.y, at + i, a.rstd ? r * (e - m1 - (ld<T>(a.x, at + i) - m) * r * m2) : e);
  }
}
LF_TYPED(modulate_dx, Mod)

// Sums over chunks of rows; a thread has a column, and adds up the rows of a modulation that follow one another before it writes.
template <class T> LF_DEV void modulate_dw(const Mod& a) {
  i64 each = (a.rows + a.chunks - 1) / a.chunks, from = blockIdx.x * each, to = from + each < a.rows ? from + each : a.rows;
  i64 j = (i64)blockIdx.y * blockDim.x + threadIdx.x;
  if (j >= a.d) return;
  float* ds = a.part + (i64)blockIdx.x * 2 * a.groups * a.d;
  float* db = ds + a.groups * a.d;
  for (i64 g = 0; g < a.groups; g++) ds[g * a.d + j] = db[g * a.d + j] = 0;
  for (i64 i = from; i < to;) {
    i64 g = a.at[i / a.run], end = (i / a.run + 1) * a.run;
    if (end > to) end = to;
    if (g < 0 || g >= a.groups) {
      i = end;
      continue;
    }
    float s = 0, q = 0;
    for (; i < end; i++) {
      float dy = ld<T>(a.dy, i * a.d + j), z = ld<T>(a.x, i * a.d + j);
      if (a.mean) z -= a.mean[i];
      if (a.rstd) z *= a.rstd[i];
      s += dy * z;
      q += dy;
    }
    ds[g * a.d + j] += s;
    db[g * a.d + j] += q;
  }
}
LF_TYPED(modulate_dw, Mod)

// The chunks in order; bits of wide say which results are float32.
template <class T> LF_DEV void modulate_join(const Mod& a) {
  i64 n = a.groups * a.d;
  LF_EACH(e, 2 * n) {
    void* to = e < n ? a.y : a.y2;
    if (!to) continue;
    float s = 0;
    for (i64 c = 0; c < a.chunks; c++) s += a.part[c * 2 * n + e];
    if (a.wide & (e < n ? 1 : 2)) ((float*)to)[e % n] = s;
    else st<T>(to, e % n, s);
  }
}
LF_TYPED(modulate_join, Mod)

// z = x + g[at]·y; x is y, s the gates and b what is added.
template <class T> LF_DEV void gate(const Mod& a) {
  LF_EACH(e, a.rows * a.d) {
    i64 row = e / a.d;
    float y = ld<T>(a.x, e) * of_table<T>(a.s, a.wide & 1, a.groups, a.at[row / a.run], a.d, e % a.d);
    st<T>(a.y, e, a.b ? ld<T>(a.b, e) + y : y);
  }
}
LF_TYPED(gate, Mod)

// s are frequencies and x times; kind 1 has cosines first. The sine is that of the rounded angle.
template <class T> LF_DEV void sinusoids(const Mod& a) {
  LF_EACH(e, a.rows * a.d) {
    i64 i = e / a.d, j = e % a.d;
    float angle = (float)a.plus * (((const float*)a.x)[i] * ((const float*)a.s)[j]);
    float s = (float)sin((double)angle), c = (float)cos((double)angle);
    st<T>(a.y, i * 2 * a.d + j, a.kind ? c : s);
    st<T>(a.y, i * 2 * a.d + a.d + j, a.kind ? s : c);
  }
}
LF_TYPED(sinusoids, Mod)

struct Points {
  const void *x, *y, *mask;
  const float *weight, *seed;
  void* out;
  double* part;
  i64 n, d, run, kind, wide; // wide: 1 for y, 2 for the mask in float32
  double border;
};

enum { kSquared, kAbsolute, kHuber, kLogistic, kVariance };

LF_DEV float sign_of(float x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

// l(x, y), and its derivative to x in slope.
LF_DEV float point(i64 kind, float border, float x, float y, float* slope) {
  float e = x - y, size = fabsf(e);
  switch (kind) {
  case kSquared: *slope = 2 * e; return e * e;
  case kVariance: {
    float f = expm1f(e);
    *slope = f / 2;
    return (f - e) / 2;
  }
  case kLogistic:
    *slope = sigmoid(x) - y;
    return (x > 0 ? x : 0) - x * y + log1pf(expf(-fabsf(x)));
  case kHuber:
    if (size > border) {
      *slope = border * sign_of(e);
      return border * (size - border / 2);
    }
    *slope = e;
    return e * e / 2;
  }
  *slope = sign_of(e);
  return size;
}

// The weight of an element, 0 where it counts as nothing.
template <class T> LF_DEV float weight_of(const Points& a, i64 e) {
  float w = a.weight[e / a.d / a.run];
  if (w == 0 || !a.mask) return w;
  float m = a.wide & 2 ? ((const float*)a.mask)[e] : ld<T>(a.mask, e);
  return m == 0 ? 0 : w * m; // whatever w is
}

template <class T> LF_DEV float other_of(const Points& a, i64 e) { return a.wide & 1 ? ((const float*)a.y)[e] : ld<T>(a.y, e); }

template <class T> LF_DEV void point_loss(const Points& a) {
  i64 from = (i64)blockIdx.x * 4096, to = from + 4096 < a.n ? from + 4096 : a.n;
  double s = 0;
  for (i64 e = from + threadIdx.x; e < to; e += blockDim.x) {
    float w = weight_of<T>(a, e), slope;
    if (w != 0) s += (double)w * point(a.kind, (float)a.border, ld<T>(a.x, e), other_of<T>(a, e), &slope);
  }
  s = block_sum(s);
  if (threadIdx.x == 0) a.part[blockIdx.x] = s;
}
LF_TYPED(point_loss, Points)

LF_DEV void join_points(const Points& a) {
  double s = 0;
  LF_ROW(i, a.n) s += a.part[i];
  s = block_sum(s);
  if (threadIdx.x == 0) *(float*)a.out = (float)s;
}
LF_ONE(point_total, join_points, Points)

template <class T> LF_DEV void point_loss_dx(const Points& a) {
  LF_EACH(e, a.n) {
    float w = weight_of<T>(a, e), slope = 0;
    if (w != 0) point(a.kind, (float)a.border, ld<T>(a.x, e), other_of<T>(a, e), &slope);
    st<T>(a.out, e, w != 0 ? a.seed[0] * w * slope : 0);
  }
}
LF_TYPED(point_loss_dx, Points)
