#include "lf.cuh"

// Elementwise operations. d is the length of a row where one matters.
struct Map {
  const void *x0, *x1, *x2;
  void *y0, *y1;
  i64 n, d, kind;
  double f;
};

template <class T> LF_DEV void swiglu(const Map& a) {
  LF_EACH(i, a.n) {
    float g = ld<T>(a.x0, i);
    st<T>(a.y0, i, g * sigmoid(g) * ld<T>(a.x1, i));
  }
}
LF_TYPED(swiglu, Map)

template <class T> LF_DEV void swiglu_bwd(const Map& a) {
  LF_EACH(i, a.n) {
    float dy = ld<T>(a.x0, i), g = ld<T>(a.x1, i), u = ld<T>(a.x2, i), s = sigmoid(g);
    st<T>(a.y0, i, dy * u * s * (1 + g * (1 - s)));
    st<T>(a.y1, i, dy * g * s);
  }
}
LF_TYPED(swiglu_bwd, Map)

enum { kGELU, kGELUTanh, kQuickGELU, kSiLU, kReLU, kTanh, kMish, kExp };

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
    float t = tanhf(k * (x + 0.044715f * x * x * x));
    *slope = 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * k * (1 + 0.134145f * x * x);
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
  *slope = s * (1 + a * x * (1 - s));
  return x * s;
}

template <class T> LF_DEV void act(const Map& a) {
  float slope;
  LF_EACH(i, a.n) st<T>(a.y0, i, activation(a.kind, ld<T>(a.x0, i), &slope));
}
LF_TYPED(act, Map)

template <class T> LF_DEV void act_bwd(const Map& a) {
  LF_EACH(i, a.n) {
    float x = ld<T>(a.x1, i), slope;
    activation(a.kind, x, &slope);
    st<T>(a.y0, i, a.kind == kReLU && x <= 0 ? 0 : ld<T>(a.x0, i) * slope);
  }
}
LF_TYPED(act_bwd, Map)

template <class T> LF_DEV void mul(const Map& a) {
  LF_EACH(i, a.n) st<T>(a.y0, i, ld<T>(a.x0, i) * ld<T>(a.x1, i));
}
LF_TYPED(mul, Map)

template <class T> LF_DEV void scale(const Map& a) {
  float f = (float)a.f;
  LF_EACH(i, a.n) st<T>(a.y0, i, f * ld<T>(a.x0, i));
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
  LF_EACH(i, a.n) {
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
  LF_EACH(i, a.n) ((float*)a.y)[i] = ld<T>(a.x, i);
}
LF_TYPED(widen_all, Convert)

template <class T> LF_DEV void narrow_all(const Convert& a) {
  LF_EACH(i, a.n) st<T>(a.y, i, ((const float*)a.x)[i]);
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
