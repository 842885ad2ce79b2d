#include "lf.cuh"

// Operations on rows, a block each. A thread has the same elements wherever a row lies.
struct Norm {
  const void *dy, *x, *w, *b;
  const float *mean, *rstd;
  void* y;
  float *mean_out, *rstd_out;
  i64 d;
  double eps, plus;
};

// The operands of a row, of which a thread has eights.
template <class T> struct NormRow {
  const T *dy, *x, *w, *b;
  T* y;
  bool whole;
};
template <class T> LF_DEV NormRow<T> row_of(const Norm& a) {
  i64 at = (i64)blockIdx.x * a.d;
  u64 all = (u64)a.dy | (u64)a.x | (u64)a.w | (u64)a.b | (u64)a.y;
  return {(const T*)a.dy + at, (const T*)a.x + at, (const T*)a.w, (const T*)a.b, (T*)a.y + at,
          all % 16 == 0 && a.d * sizeof(T) % 16 == 0};
}

template <class T> LF_DEV void rmsnorm(const Norm& a) {
  NormRow<T> o = row_of<T>(a);
  float s = 0, x[8], w[8];
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(x, o.x + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) s += x[c] * x[c];
  }
  float r = 1 / sqrtf(block_sum(s) / a.d + (float)a.eps);
  if (threadIdx.x == 0) a.rstd_out[blockIdx.x] = r;
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(x, o.x + i, o.whole, n);
    load_eight(w, o.w + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) x[c] = x[c] * r * (w[c] + (float)a.plus);
    store_eight(o.y + i, x, o.whole, n);
  }
}
LF_TYPED(rmsnorm, Norm)

template <class T> LF_DEV void rmsnorm_dx(const Norm& a) {
  NormRow<T> o = row_of<T>(a);
  float r = a.rstd[blockIdx.x], s = 0, dy[8], x[8], w[8];
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(dy, o.dy + i, o.whole, n);
    load_eight(x, o.x + i, o.whole, n);
    load_eight(w, o.w + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++)
      if (c < n) s += dy[c] * (w[c] + (float)a.plus) * x[c];
  }
  float k = r * r * block_sum(s) / a.d;
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(dy, o.dy + i, o.whole, n);
    load_eight(x, o.x + i, o.whole, n);
    load_eight(w, o.w + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      float g = dy[c] * (w[c] + (float)a.plus);
      x[c] = r * (g - x[c] * k);
    }
    store_eight(o.y + i, x, o.whole, n);
  }
}
LF_TYPED(rmsnorm_dx, Norm)

template <class T> LF_DEV void layernorm(const Norm& a) {
  NormRow<T> o = row_of<T>(a);
  float s = 0, q = 0, x[8], w[8], b[8] = {};
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(x, o.x + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) s += x[c];
  }
  float m = block_sum(s) / a.d;
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(x, o.x + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++)
      if (c < n) q += (x[c] - m) * (x[c] - m);
  }
  float r = 1 / sqrtf(block_sum(q) / a.d + (float)a.eps);
  if (threadIdx.x == 0) {
    a.mean_out[blockIdx.x] = m;
    a.rstd_out[blockIdx.x] = r;
  }
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(x, o.x + i, o.whole, n);
    load_eight(w, o.w + i, o.whole, n);
    if (o.b) load_eight(b, o.b + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) x[c] = (x[c] - m) * r * w[c] + b[c];
    store_eight(o.y + i, x, o.whole, n);
  }
}
LF_TYPED(layernorm, Norm)

template <class T> LF_DEV void layernorm_dx(const Norm& a) {
  NormRow<T> o = row_of<T>(a);
  float r = a.rstd[blockIdx.x], m = a.mean[blockIdx.x], s = 0, q = 0, dy[8], x[8], w[8];
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(dy, o.dy + i, o.whole, n);
    load_eight(x, o.x + i, o.whole, n);
    load_eight(w, o.w + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      if (c >= n) continue;
      float g = dy[c] * w[c];
      s += g;
      q += g * ((x[c] - m) * r);
    }
  }
  float m1 = block_sum(s) / a.d, m2 = block_sum(q) / a.d;
  LF_ROW_EIGHTS(i, n, a.d) {
    load_eight(dy, o.dy + i, o.whole, n);
    load_eight(x, o.x + i, o.whole, n);
    load_eight(w, o.w + i, o.whole, n);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      float g = dy[c] * w[c], z = (x[c] - m) * r;
      x[c] = r * (g - m1 - z * m2);
    }
    store_eight(o.y + i, x, o.whole, n);
  }
}
LF_TYPED(layernorm_dx, Norm)

// Two passes over columns: sums of chunks of kChunk rows, then the chunks in order.
enum { kChunk = 64 };
struct Columns {
  const void *dy, *x;
  const float *mean, *rstd;
  float* part; // [chunks, d]
  float* y;
  i64 rows, d, add;
};

template <class T, class F> LF_DEV void chunk_sums(const Columns& a, F term) {
  i64 from = (i64)blockIdx.x * kChunk, to = from + kChunk < a.rows ? from + kChunk : a.rows;
  i64 j = (i64)blockIdx.y * blockDim.x + threadIdx.x;
  if (j >= a.d) return;
  float s = 0;
  for (i64 i = from; i < to; i++) s += term(i, i * a.d + j);
  a.part[(i64)blockIdx.x * a.d + j] = s;
}

template <class T> LF_DEV void col_sum(const Columns& a) {
  chunk_sums<T>(a, [&](i64, i64 at) { return ld<T>(a.dy, at); });
}
LF_TYPED(col_sum, Columns)

template <class T> LF_DEV void mul_cols_dw(const Columns& a) {
  chunk_sums<T>(a, [&](i64, i64 at) { return ld<T>(a.dy, at) * ld<T>(a.x, at); });
}
LF_TYPED(mul_cols_dw, Columns)

template <class T> LF_DEV void rmsnorm_dw(const Columns& a) {
  chunk_sums<T>(a, [&](i64 i, i64 at) { return ld<T>(a.dy, at) * ld<T>(a.x, at) * a.rstd[i]; });
}
LF_TYPED(rmsnorm_dw, Columns)

template <class T> LF_DEV void layernorm_dw(const Columns& a) {
  chunk_sums<T>(a, [&](i64 i, i64 at) { return ld<T>(a.dy, at) * ((ld<T>(a.x, at) - a.mean[i]) * a.rstd[i]); });
}
LF_TYPED(layernorm_dw, Columns)

// The second pass; rows are chunks.
LF_DEV void join_chunks(const Columns& a) {
  LF_EACH(j, a.d) {
    float s = 0;
    for (i64 i = 0; i < a.rows; i++) s += a.part[i * a.d + j];
    a.y[j] = a.add ? a.y[j] + s : s;
  }
}
LF_ONE(columns, join_chunks, Columns)

// The sigmoid of z gates a row: gradients to the row and to z.
struct Gate {
  const void *dy, *x;
  const float* z;
  void* dx;
  float* dz;
  i64 d;
};

template <class T> LF_DEV void gate_rows_bwd(const Gate& a) {
  i64 row = blockIdx.x, at = row * a.d;
  float g = sigmoid(a.z[row]), s = 0;
  LF_ROW(i, a.d) s += ld<T>(a.dy, at + i) * ld<T>(a.x, at + i);
  s = block_sum(s);
  if (threadIdx.x == 0) a.dz[row] = g * (1 - g) * s;
  LF_ROW(i, a.d) st<T>(a.dx, at + i, ld<T>(a.dy, at + i) * g);
}
LF_TYPED(gate_rows_bwd, Gate)

// Rotary embedding and its kin. A thread has a pair of a head, or an element behind the pairs.
struct Turns {
  const void *x, *dy, *angle;
  const float *cos, *sin;
  const i32 *mark, *pos, *axis;
  void* y;
  float *cos_out, *sin_out, *part;
  i64 t, h, d, r, way, pairs, axes;
  double f;
};

template <class T> LF_DEV void rope(const Turns& a) {
  u64 all = (u64)a.x | (u64)a.y | (u64)a.cos | (u64)a.sin;
  if (!a.pairs && a.r % 8 == 0 && 2 * a.r == a.d && all % 16 == 0) { // a thread has eight pairs
    i64 eights = a.r / 8;
    LF_EACH(e, a.t * a.h * eights) {
      i64 head = e / eights, j = e % eights * 8, p = head * a.d + j, row = head / a.h * a.r + j;
      float u[8], v[8], c[8], s[8];
      load_eight(u, (const T*)a.x + p, true);
      load_eight(v, (const T*)a.x + p + a.r, true);
      load_eight(c, a.cos + row, true);
      load_eight(s, a.sin + row, true);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        float from = u[i], by = a.way < 0 ? -s[i] : s[i];
        u[i] = from * c[i] - v[i] * by;
        v[i] = v[i] * c[i] + from * by;
      }
      store_eight((T*)a.y + p, u, true);
      store_eight((T*)a.y + p + a.r, v, true);
    }
    return;
  }
  i64 each = a.d - a.r;
  LF_EACH(e, a.t * a.h * each) {
    i64 head = e / each, j = e % each, at = head * a.d;
    if (j >= a.r) {
      i64 i = at + a.r + j;
      if (a.y != a.x) ((T*)a.y)[i] = ((const T*)a.x)[i];
      continue;
    }
    i64 p = at + (a.pairs ? 2 * j : j), q = p + (a.pairs ? 1 : a.r), row = head / a.h * a.r + j;
    float u = ld<T>(a.x, p), v = ld<T>(a.x, q), c = a.cos[row], s = a.way < 0 ? -a.sin[row] : a.sin[row];
    st<T>(a.y, p, u * c - v * s);
    st<T>(a.y, q, v * c + u * s);
  }
}
LF_TYPED(rope, Turns)

// The angle is a float32 product, as transformers takes it; its cosine and sine are those of that number.
LF_DEV void rope_angles(const Turns& a) {
  LF_EACH(e, a.t * a.r) {
    i64 i = e / a.r, j = e % a.r;
    float angle = (float)a.pos[a.axes ? i * a.axes + a.axis[j] : i] * ((const float*)a.angle)[j];
    a.cos_out[e] = (float)(cos((double)angle) * a.f);
    a.sin_out[e] = (float)(sin((double)angle) * a.f);
  }
}
LF_ONE(rope_table, rope_angles, Turns)

template <class T> LF_DEV void turn(const Turns& a) {
  LF_EACH(e, a.t * a.h * a.r) {
    i64 head = e / a.r, j = e % a.r, p = head * a.d + j, q = p + a.r;
    if (a.mark[head / a.h] == 0) {
      ((T*)a.y)[p] = ((const T*)a.x)[p];
      ((T*)a.y)[q] = ((const T*)a.x)[q];
      continue;
    }
    float u = ld<T>(a.x, p), v = ld<T>(a.x, q), w = ld<T>(a.angle, j), c = cosf(w), s = (float)a.way * sinf(w);
    st<T>(a.y, p, u * c - v * s);
    st<T>(a.y, q, v * c + u * s);
  }
}
LF_TYPED(turn, Turns)

// Sums over chunks of rows and all their heads; d = 2r.
template <class T> LF_DEV void turn_dw(const Turns& a) {
  i64 from = (i64)blockIdx.x * kChunk, to = from + kChunk < a.t ? from + kChunk : a.t;
  LF_ROW(j, a.r) {
    float s = 0;
    for (i64 i = from; i < to; i++) {
      if (a.mark[i] == 0) continue;
      for (i64 h = 0; h < a.h; h++) {
        i64 p = (i * a.h + h) * a.d + j, q = p + a.r;
        s += ld<T>(a.dy, q) * ld<T>(a.x, p) - ld<T>(a.dy, p) * ld<T>(a.x, q);
      }
    }
    a.part[(i64)blockIdx.x * a.r + j] = s;
  }
}
LF_TYPED(turn_dw, Turns)
