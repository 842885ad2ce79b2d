#include "lf.cuh"

// Linear attention by the gated delta rule, and the short convolution before it.
struct Conv {
  const void *x, *dy, *w;
  const i32* cu;
  void* y;
  float* dw;
  i64 t, cols, taps, c, way, add; // way is -1 for rows before a row, 1 for those behind it
};

LF_DEV bool in_sequence(const i32* cu, i64 c, i64 row, i64* from, i64* to) {
  *from = *to = 0;
  if (c == 0 || row < cu[0] || row >= cu[c]) return false;
  i64 s = sequence_of(cu, c, row);
  *from = cu[s];
  *to = cu[s + 1];
  return true;
}

template <class T> LF_DEV void causal_conv(const Conv& a) {
  LF_EACH(e, a.t * a.cols) {
    i64 row = e / a.cols, col = e % a.cols, from, to;
    float s = 0;
    if (in_sequence(a.cu, a.c, row, &from, &to)) {
      for (i64 j = 0; j < a.taps; j++) {
        i64 at = row + a.way * (a.taps - 1 - j);
        if (at >= from && at < to) s = fmaf(ld<T>(a.w, col * a.taps + j), ld<T>(a.x, at * a.cols + col), s);
      }
    }
    st<T>(a.y, e, s);
  }
}
LF_TYPED(causal_conv, Conv)

// A block has one weight.
template <class T> LF_DEV void causal_conv_dw(const Conv& a) {
  i64 col = blockIdx.x / a.taps, j = blockIdx.x % a.taps, from, to;
  float s = 0;
  LF_ROW(row, a.t) {
    i64 at = row - (a.taps - 1 - j);
    if (in_sequence(a.cu, a.c, row, &from, &to) && at >= from) s = fmaf(ld<T>(a.dy, row * a.cols + col), ld<T>(a.x, at * a.cols + col), s);
  }
  s = block_sum(s);
  if (threadIdx.x == 0) a.dw[blockIdx.x] = a.add ? a.dw[blockIdx.x] + s : s;
}
LF_TYPED(causal_conv_dw, Conv)

struct Gates {
  const float *dg, *dbeta;
  const void *a, *b, *decay, *bias;
  void *y0, *y1; // g and beta, or da and db
  i64 len, n;
};

template <class T> LF_DEV void delta_gates(const Gates& p) {
  LF_EACH(i, p.len) {
    float x = ld<T>(p.a, i) + ld<T>(p.bias, i % p.n), soft = (x > 0 ? x : x != x ? x : 0) + log1pf(expf(-fabsf(x)));
    ((float*)p.y0)[i] = -expf(ld<T>(p.decay, i % p.n)) * soft;
    ((float*)p.y1)[i] = sigmoid(ld<T>(p.b, i));
  }
}
LF_TYPED(delta_gates, Gates)

template <class T> LF_DEV void delta_gates_bwd(const Gates& p) {
  LF_EACH(i, p.len) {
    float s = sigmoid(ld<T>(p.b, i));
    st<T>(p.y0, i, -p.dg[i] * expf(ld<T>(p.decay, i % p.n)) * sigmoid(ld<T>(p.a, i) + ld<T>(p.bias, i % p.n)));
    st<T>(p.y1, i, p.dbeta[i] * s * (1 - s));
  }
}
LF_TYPED(delta_gates_bwd, Gates)

// A block has one value head of one sequence. A thread has whole columns of the state [d, e], which lies in shared memory.
struct Delta {
  const void *q, *k, *v, *dout;
  const float *g, *beta;
  const i32* cu;
  void *o, *dv;
  float *start, *old; // states before chunks of tokens, and decayed ones of the tokens of a block's chunk
  float *dq, *dk, *dg, *dbeta; // dq and dk [t, n, d]: of value heads
  i64 h, n, d, e, first;       // first is the sequence of block 0
  double eps;
};

enum { kTokens = 64 }; // of a chunk

// x over its length, times scale; the result is one over the length. Every thread of the block takes part.
template <class T> LF_DEV float unit_of(float* to, const void* x, i64 at, i64 d, float eps, float scale) {
  float s = 0;
  LF_ROW(i, d) s = fmaf(ld<T>(x, at + i), ld<T>(x, at + i), s);
  float r = 1 / sqrtf(block_sum(s) + eps);
  LF_ROW(i, d) to[i] = ld<T>(x, at + i) * r * scale;
  return r;
}

// A token's update of the column c of a state: decays, then adds what is written, which is the result.
LF_DEV float write_column(const Delta& a, float* s, const float* k, i64 c, float decay, float beta, float v) {
  float seen = 0;
  for (i64 i = 0; i < a.d; i++) {
    float x = decay * s[i * a.e + c];
    s[i * a.e + c] = x;
    seen = fmaf(k[i], x, seen);
  }
  return beta * (v - seen);
}

template <class T> LF_DEV void delta_rule(const Delta& a) {
  LF_SHARED(float, s);
  float *q = s + a.d * a.e, *k = q + a.d, scale = 1 / sqrtf((float)a.d);
  i64 head = blockIdx.y, key = head * a.h / a.n, seq = a.first + blockIdx.x, from = a.cu[seq], to = a.cu[seq + 1];
  LF_ROW(c, a.e) for (i64 i = 0; i < a.d; i++) s[i * a.e + c] = 0;
  for (i64 row = from; row < to; row++) {
    __syncthreads();
    unit_of<T>(q, a.q, (row * a.h + key) * a.d, a.d, (float)a.eps, scale);
    unit_of<T>(k, a.k, (row * a.h + key) * a.d, a.d, (float)a.eps, 1);
    __syncthreads();
    i64 at = row * a.n + head;
    float decay = expf(a.g[at]), beta = a.beta[at];
    LF_ROW(c, a.e) {
      float u = write_column(a, s, k, c, decay, beta, ld<T>(a.v, at * a.e + c)), o = 0;
      for (i64 i = 0; i < a.d; i++) {
        float x = fmaf(k[i], u, s[i * a.e + c]);
        s[i * a.e + c] = x;
        o = fmaf(x, q[i], o);
      }
      st<T>(a.o, at * a.e + c, o);
    }
  }
}
LF_TYPED(delta_rule, Delta)

// Keeps the states before chunks, on the way forward.
template <class T> LF_DEV void keep_starts(const Delta& a, float* s, float* k, i64 seq, i64 head, i64 key) {
  i64 from = a.cu[seq], to = a.cu[seq + 1];
  LF_ROW(c, a.e) for (i64 i = 0; i < a.d; i++) s[i * a.e + c] = 0;
  for (i64 row = from; row < to; row++) {
    i64 at = row * a.n + head;
    if ((row - from) % kTokens == 0) {
      float* start = a.start + ((from / kTokens + seq + (row - from) / kTokens) * a.n + head) * a.d * a.e;
      LF_ROW(c, a.e) for (i64 i = 0; i < a.d; i++) start[i * a.e + c] = s[i * a.e + c];
    }
    __syncthreads();
    unit_of<T>(k, a.k, (row * a.h + key) * a.d, a.d, (float)a.eps, 1);
    __syncthreads();
    LF_ROW(c, a.e) {
      float u = write_column(a, s, k, c, expf(a.g[at]), a.beta[at], ld<T>(a.v, at * a.e + c));
      for (i64 i = 0; i < a.d; i++) s[i * a.e + c] = fmaf(k[i], u, s[i * a.e + c]);
    }
  }
}

// The gradient of x from that of its unit vector, dy: written as float32.
template <class T> LF_DEV void unit_bwd(float* dx, const float* dy, const void* x, i64 at, i64 d, float r, float scale) {
  float s = 0;
  LF_ROW(i, d) s = fmaf(ld<T>(x, at + i), dy[i], s);
  s = block_sum(s);
  LF_ROW(i, d) dx[i] = scale * r * (dy[i] - r * r * s * ld<T>(x, at + i));
}

template <class T> LF_DEV void delta_rule_bwd(const Delta& a) {
  LF_SHARED(float, ds); // the gradient of the state, from the last token on
  float *q = ds + a.d * a.e, *k = q + a.d, *gq = k + a.d, *gk = gq + a.d, *us = gk + a.d, *outs = us + a.e, *dus = outs + a.e;
  float scale = 1 / sqrtf((float)a.d), eps = (float)a.eps;
  i64 head = blockIdx.y, key = head * a.h / a.n, seq = a.first + blockIdx.x, from = a.cu[seq], to = a.cu[seq + 1], size = a.d * a.e;
  float* old = a.old + ((i64)blockIdx.x * a.n + head) * kTokens * size;
  keep_starts<T>(a, ds, k, seq, head, key);
  LF_ROW(c, a.e) for (i64 i = 0; i < a.d; i++) ds[i * a.e + c] = 0;
  for (i64 chunk = (to - from + kTokens - 1) / kTokens - 1; chunk >= 0; chunk--) {
    i64 row0 = from + chunk * kTokens, row1 = row0 + kTokens < to ? row0 + kTokens : to;
    const float* state = a.start + ((from / kTokens + seq + chunk) * a.n + head) * size; // before the next token, less what was written
    float *now = k, *last = gk;                                                          // keys of this token and of the one before
    for (i64 row = row0; row < row1; row++) {
      i64 at = row * a.n + head;
      __syncthreads();
      unit_of<T>(now, a.k, (row * a.h + key) * a.d, a.d, eps, 1);
      __syncthreads();
      float *to_old = old + (row - row0) * size, decay = expf(a.g[at]), beta = a.beta[at];
      LF_ROW(c, a.e) {
        float seen = 0;
        for (i64 i = 0; i < a.d; i++) {
          float x = decay * (row == row0 ? state[i * a.e + c] : fmaf(last[i], us[c], state[i * a.e + c]));
          to_old[i * a.e + c] = x;
          seen = fmaf(now[i], x, seen);
        }
        us[c] = beta * (ld<T>(a.v, at * a.e + c) - seen);
      }
      state = to_old;
      float* other = now;
      now = last;
      last = other;
    }
    for (i64 row = row1 - 1; row >= row0; row--) {
      i64 at = row * a.n + head, x = (row * a.h + key) * a.d;
      const float* o = old + (row - row0) * size;
      __syncthreads();
      float rq = unit_of<T>(q, a.q, x, a.d, eps, scale), rk = unit_of<T>(k, a.k, x, a.d, eps, 1);
      __syncthreads();
      float decay = expf(a.g[at]), beta = a.beta[at], dbeta = 0, dg = 0;
      LF_ROW(c, a.e) {
        float out = ld<T>(a.dout, at * a.e + c), seen = 0, du = 0;
        for (i64 i = 0; i < a.d; i++) {
          float y = fmaf(q[i], out, ds[i * a.e + c]);
          ds[i * a.e + c] = y;
          seen = fmaf(k[i], o[i * a.e + c], seen);
          du = fmaf(k[i], y, du);
        }
        float left = ld<T>(a.v, at * a.e + c) - seen;
        us[c] = beta * left;
        outs[c] = out;
        dus[c] = du;
        dbeta = fmaf(du, left, dbeta);
        st<T>(a.dv, at * a.e + c, beta * du);
      }
      __syncthreads();
      LF_ROW(i, a.d) { // a thread has rows of the state
        float y = 0, z = 0;
        for (i64 c = 0; c < a.e; c++) {
          float was = o[i * a.e + c];
          y = fmaf(fmaf(k[i], us[c], was), outs[c], y);
          z = fmaf(ds[i * a.e + c], us[c], z) - beta * was * dus[c];
        }
        gq[i] = y;
        gk[i] = z;
      }
      __syncthreads();
      LF_ROW(c, a.e) {
        for (i64 i = 0; i < a.d; i++) {
          float y = ds[i * a.e + c] - beta * k[i] * dus[c];
          dg = fmaf(y, o[i * a.e + c], dg);
          ds[i * a.e + c] = y * decay;
        }
      }
      dbeta = block_sum(dbeta);
      dg = block_sum(dg);
      if (threadIdx.x == 0) {
        a.dbeta[at] = dbeta;
        a.dg[at] = dg;
      }
      unit_bwd<T>(a.dq + at * a.d, gq, a.q, x, a.d, rq, scale);
      unit_bwd<T>(a.dk + at * a.d, gk, a.k, x, a.d, rk, 1);
    }
  }
}
LF_TYPED(delta_rule_bwd, Delta)

// Sums over the value heads of a key head, in their order; zeros outside all sequences.
struct DeltaHeads {
  const float *dq, *dk; // [t, n, d]
  const i32* cu;
  void *to_q, *to_k; // [t, h, d]
  i64 len, c, h, n, d;
};

template <class T> LF_DEV void delta_heads(const DeltaHeads& a) {
  i64 each = a.n / a.h;
  LF_EACH(i, a.len) {
    i64 row = i / (a.h * a.d), key = i / a.d % a.h, j = i % a.d;
    bool inside = row >= a.cu[0] && row < a.cu[a.c];
    float q = 0, k = 0;
    for (i64 n = key * each; inside && n < (key + 1) * each; n++) {
      q += a.dq[(row * a.n + n) * a.d + j];
      k += a.dk[(row * a.n + n) * a.d + j];
    }
    st<T>(a.to_q, i, q);
    st<T>(a.to_k, i, k);
  }
}
LF_TYPED(delta_heads, DeltaHeads)
