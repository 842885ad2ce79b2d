#include "lf.cuh"

// Elementwise operations. d is the length of a row where one matters.
struct Map {
  const void *x0, *x1, *x2;
  void *y0, *y1;
  i64 n, d, kind;
  double f;
};

// y = f(x) of each element, of in operands and out results; eight of a thread at a time where all lie on multiples of 16 bytes.
template <class T, int in, int out, class F> LF_DEV void map_all(const Map& a, F f) {
  const T* x[3] = {(const T*)a.x0, (const T*)a.x1, (const T*)a.x2};
  T* y[2] = {(T*)a.y0, (T*)a.y1};
  u64 all = 0;
#pragma unroll
  for (int k = 0; k < in; k++) all |= (u64)x[k];
#pragma unroll
  for (int k = 0; k < out; k++) all |= (u64)y[k];
  i64 eights = all % 16 == 0 ? a.n / 8 : 0;
  float one[in], to[out];
  LF_EACH(e, eights) {
    float u[in][8], v[out][8];
#pragma unroll
    for (int k = 0; k < in; k++) load_eight(u[k], x[k] + e * 8, true);
#pragma unroll
    for (int c = 0; c < 8; c++) {
#pragma unroll
      for (int k = 0; k < in; k++) one[k] = u[k][c];
      f(one, to);
#pragma unroll
      for (int k = 0; k < out; k++) v[k][c] = to[k];
    }
#pragma unroll
    for (int k = 0; k < out; k++) store_eight(y[k] + e * 8, v[k], true);
  }
  LF_EACH(r, a.n - eights * 8) {
    i64 i = eights * 8 + r;
#pragma unroll
    for (int k = 0; k < in; k++) one[k] = widen(x[k][i]);
    f(one, to);
#pragma unroll
    for (int k = 0; k < out; k++) narrow(y[k] + i, to[k]);
  }
}

template <class T> LF_DEV void swiglu(const Map& a) {
  map_all<T, 2, 1>(a, [](const float* x, float* y) { y[0] = x[0] * sigmoid(x[0]) * x[1]; });
}
LF_TYPED(swiglu, Map)

template <class T> LF_DEV void swiglu_bwd(const Map& a) {
  map_all<T, 3, 2>(a, [](const float* x, float* y) {
    float dy = x[0], g = x[1], u = x[2], s = sigmoid(g);
    y[0] = dy * u * s * (1 + g * (1 - s));
    y[1] = dy * g * s;
  });
}
LF_TYPED(swiglu_bwd, Map)

enum { kGELU, kGELUTanh, kQuickGELU, kSiLU, kReLU, kTanh, kMish, kExp };

// x, as far as a gate's slope knows it: beyond, the gate is 0 or 1, and so is what x makes of it. A NaN stays one.
LF_DEV float gate_bounded(float x) { return x > 1e4f ? 1e4f : x < -1e4f ? -1e4f : x; }

// f(x), and f'(x) in slope.
LF_DEV float activation(i64 kind, float x, float* slope) {
  const float k = 0.7978845608028654f; // √(2/π)
  switch (kind) {
  case kGELU: {
    float phi = 0.5f * erfcf(-x * 0.7071067811865476f);
    *slope = phi + x * expf(-x * x / 2) * 0.3989422804014327f;
    return x * phi;
  }
  case kGELUTanh: {
    float t = tanhf(k * (x + 0.044715f * x * x * x)), c = gate_bounded(x);
    *slope = 0.5f * (1 + t) + 0.5f * c * (1 - t * t) * k * (1 + 0.134145f * c * c);
    return 0.5f * x * (1 + t);
  }
  case kTanh: {
    float t = tanhf(x);
    *slope = 1 - t * t;
    return t;
  }
  case kMish: {
    float t = tanhf(x > 20 ? x : log1pf(expf(x)));
    *slope = t + x * sigmoid(x) * (1 - t * t);
    return x * t;
  }
  case kExp:
    return *slope = expf(x);
  case kReLU:
    *slope = x > 0 || x != x;
    return x < 0 ? 0 : x;
  }
  float a = kind == kQuickGELU ? 1.702f : 1, s = sigmoid(a * x);
  *slope = s * (1 + a * gate_bounded(x) * (1 - s));
  return x * s;
}

template <class T> LF_DEV void act(const Map& a) {
  map_all<T, 1, 1>(a, [&](const float* x, float* y) {
    float slope;
    y[0] = activation(a.kind, x[0], &slope);
  });
}
LF_TYPED(act, Map)

template <class T> LF_DEV void act_bwd(const Map& a) {
  map_all<T, 2, 1>(a, [&](const float* x, float* y) {
    float slope;
    activation(a.kind, x[1], &slope);
    y[0] = a.kind == kReLU && x[1] <= 0 ? 0 : x[0] * slope;
  });
}
LF_TYPED(act_bwd, Map)

template <class T> LF_DEV void mul(const Map& a) {
  map_all<T, 2, 1>(a, [](const float* x, float* y) { y[0] = x[0] * x[1]; });
}
LF_TYPED(mul, Map)

template <class T> LF_DEV void scale(const Map& a) {
  float f = (float)a.f;
  map_all<T, 1, 1>(a, [&](const float* x, float* y) { y[0] = f * x[0]; });
}
LF_TYPED(scale, Map)

template <class T> LF_DEV void mul_cols(const Map& a) {
  LF_EACH(i, a.n) st<T>(a.y0, i, ld<T>(a.x0, i) * ld<T>(a.x1, i % a.d));
}
LF_TYPED(mul_cols, Map)

template <class T> LF_DEV void scale_rows(const Map& a) {
  LF_EACH(i, a.n) st<T>(a.y0, i, ld<T>(a.x0, i) * ((const float*)a.x1)[i / a.d]);
}
LF_TYPED(scale_rows, Map)

template <class T> LF_DEV void gate_rows(const Map& a) {
  LF_EACH(i, a.n) st<T>(a.y0, i, ld<T>(a.x0, i) * sigmoid(((const float*)a.x1)[i / a.d]));
}
LF_TYPED(gate_rows, Map)

// kind is the number of the draw, f the share that is dropped.
template <class T> LF_DEV void dropout(const Map& a) {
  float by = (float)(1 / (1 - a.f));
  LF_EACH(i, a.n) {
    bool keep = uniform(((const u64*)a.x1)[i / a.d], a.kind, i % a.d) >= a.f;
    st<T>(a.y0, i, keep ? ld<T>(a.x0, i) * by : 0);
  }
}
LF_TYPED(dropout, Map)

template <class T> LF_DEV void jitter(const Map& a) {
  LF_EACH(i, a.n) {
    double u = uniform(((const u64*)a.x1)[i / a.d], a.kind, i % a.d);
    st<T>(a.y0, i, ld<T>(a.x0, i) * (float)(1 + a.f * (2 * u - 1)));
  }
}
LF_TYPED(jitter, Map)

// Sums of many operands in order; begin and end are float32 sums of those before and after these, where one launch does not have all.
struct Sum {
  const void* x[48];
  const float* begin;
  float* end;
  void* y;
  i64 n, count;
};

template <class T> LF_DEV void sum(const Sum& a) {
  u64 all = (u64)a.begin | (u64)a.end | (u64)a.y;
  for (i64 j = 0; j < a.count; j++) all |= (u64)a.x[j];
  i64 eights = all % 16 == 0 ? a.n / 8 : 0;
  LF_EACH(e, eights) {
    float s[8], x[8];
    if (a.begin) load_eight(s, a.begin + e * 8, true);
    else load_eight(s, (const T*)a.x[0] + e * 8, true);
    for (i64 j = a.begin ? 0 : 1; j < a.count; j++) {
      load_eight(x, (const T*)a.x[j] + e * 8, true);
#pragma unroll
      for (int c = 0; c < 8; c++) s[c] += x[c];
    }
    if (a.end) store_eight(a.end + e * 8, s, true);
    else store_eight((T*)a.y + e * 8, s, true);
  }
  LF_EACH(r, a.n - eights * 8) {
    i64 i = eights * 8 + r;
    float s = a.begin ? a.begin[i] : ld<T>(a.x[0], i);
    for (i64 j = a.begin ? 0 : 1; j < a.count; j++) s += ld<T>(a.x[j], i);
    if (a.end) a.end[i] = s;
    else st<T>(a.y, i, s);
  }
}
LF_TYPED(sum, Sum)

LF_DEV void sum_double(const Sum& a) {
  LF_EACH(i, a.n) {
    double s = ((const double*)a.x[0])[i];
    for (i64 j = 1; j < a.count; j++) s += ((const double*)a.x[j])[i];
    ((double*)a.y)[i] = s;
  }
}
LF_ONE(sum_f64, sum_double, Sum)

// Operations between dtypes, given by their codes.
struct Convert {
  const void* x;
  void* y;
  i64 n, from, to;
  double f;
};

LF_DEV void cast_any(const Convert& a) {
  LF_EACH(i, a.n) st_any(a.y, i, ld_any(a.x, i, a.from), a.to);
}
LF_ONE(cast, cast_any, Convert)

template <class T> LF_DEV void widen_all(const Convert& a) {
  i64 eights = ((u64)a.x | (u64)a.y) % 16 == 0 ? a.n / 8 : 0;
  LF_EACH(e, eights) {
    float f[8];
    load_eight(f, (const T*)a.x + e * 8, true);
    store_eight((float*)a.y + e * 8, f, true);
  }
  LF_EACH(r, a.n - eights * 8) ((float*)a.y)[eights * 8 + r] = ld<T>(a.x, eights * 8 + r);
}
LF_TYPED(widen_all, Convert)

template <class T> LF_DEV void narrow_all(const Convert& a) {
  i64 eights = ((u64)a.x | (u64)a.y) % 16 == 0 ? a.n / 8 : 0;
  LF_EACH(e, eights) {
    float f[8];
    load_eight(f, (const float*)a.x + e * 8, true);
    store_eight((T*)a.y + e * 8, f, true);
  }
  LF_EACH(r, a.n - eights * 8) st<T>(a.y, eights * 8 + r, ((const float*)a.x)[eights * 8 + r]);
}
LF_TYPED(narrow_all, Convert)

LF_DEV void fill_any(const Convert& a) {
  LF_EACH(i, a.n) st_any(a.y, i, a.f, a.to);
}
LF_ONE(fill, fill_any, Convert)

LF_DEV void add_to_any(const Convert& a) {
  LF_EACH(i, a.n) st_any(a.y, i, ld_any(a.y, i, a.to) + ld_any(a.x, i, a.from), a.to);
}
LF_ONE(add_to, add_to_any, Convert)

// Rows of bytes between two arrays of different row length: slice and concat.
struct Window {
  const u8* x;
  u8* y;
  i64 rows, len, from, to; // bytes that are copied a row, and bytes from row to row of x and y
};

template <class W> LF_DEV void window(const Window& a) {
  i64 len = a.len / sizeof(W);
  LF_EACH(i, a.rows * len) {
    ((W*)(a.y + i / len * a.to))[i % len] = ((const W*)(a.x + i / len * a.from))[i % len];
  }
}
LF_ONE(window_1, window<u8>, Window)
LF_ONE(window_2, window<u16>, Window)
LF_ONE(window_4, window<u32>, Window)
LF_ONE(window_8, window<u64>, Window)
