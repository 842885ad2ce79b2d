/* The operations of reference.c, each in plain loops over float64 as its contract in kernels/ops_*.go says. */
#include <math.h>

enum { MOST = 12 }; /* operands that a call may have */
typedef struct {
  uint32_t op, nin;
  int64_t i[4];
  double f[2];
  lfx_tensor in[MOST], out[MOST]; /* rank 0 and mem 0: absent */
} call_copy;

static float of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static void *at(const lfx_tensor *t) { return (void *)(uintptr_t)t->mem; }
static double ld(const lfx_tensor *t, int64_t i) {
  switch (t->dtype) {
  case LFX_F32: return ((float *)at(t))[i];
  case LFX_F64: return ((double *)at(t))[i];
  case LFX_BF16: return of_bits((uint32_t)((uint16_t *)at(t))[i] << 16);
  case LFX_I32: return ((int32_t *)at(t))[i];
  }
  return NAN; /* refused before */
}
static void st(const lfx_tensor *t, int64_t i, double v) {
  float f = (float)v;
  uint32_t u = bits_of(f);
  switch (t->dtype) {
  case LFX_F32: ((float *)at(t))[i] = f; break;
  case LFX_F64: ((double *)at(t))[i] = v; break;
  case LFX_BF16: ((uint16_t *)at(t))[i] = f != f ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); break;
  }
}
static int64_t count(const lfx_tensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; i++) n *= t->dim[i];
  return n;
}
static int64_t width(const lfx_tensor *t) { return t->dim[t->rank - 1]; }
static int64_t rows(const lfx_tensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i + 1 < t->rank; i++) n *= t->dim[i];
  return n;
}
static double kept(const lfx_tensor *t, int64_t i, int64_t mode) { return mode == 1 ? ld(t, i) : 0; } /* Accumulate */
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Of the floating-point types, those that ld and st know; all operands are looked at. */
static int refuses_types(const call_copy *c) {
  for (int i = 0; i < MOST; i++) {
    if (c->in[i].dtype == LFX_F16 || c->out[i].dtype == LFX_F16 || c->in[i].dtype > LFX_I32 || c->out[i].dtype > LFX_F64) return 1;
  }
  return 0;
}

static void linear(const call_copy *c) {
  const lfx_tensor *x = &c->in[0], *w = &c->in[1], *bias = &c->in[2], *y = &c->out[0];
  int64_t n = w->dim[0], k = w->dim[1], t = rows(x);
  for (int64_t i = 0; i < t; i++)
    for (int64_t j = 0; j < n; j++) {
      double s = bias->mem ? ld(bias, j) : 0;
      for (int64_t l = 0; l < k; l++) s += ld(x, i * k + l) * ld(w, j * k + l);
      st(y, i * n + j, s);
    }
}
static void linear_dx(const call_copy *c) {
  const lfx_tensor *dy = &c->in[0], *w = &c->in[1];
  int64_t n = w->dim[0], k = w->dim[1], t = rows(dy);
  for (int64_t i = 0; i < t; i++)
    for (int64_t l = 0; l < k; l++) {
      double s = 0;
      for (int64_t j = 0; j < n; j++) s += ld(dy, i * n + j) * ld(w, j * k + l);
      st(&c->out[0], i * k + l, s);
    }
}
static void linear_dw(const call_copy *c) {
  const lfx_tensor *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
  int64_t n = width(dy), k = width(x), t = rows(x);
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < k; l++) {
      double s = kept(dw, j * k + l, c->i[0]);
      for (int64_t i = 0; i < t; i++) s += ld(dy, i * n + j) * ld(x, i * k + l);
      st(dw, j * k + l, s);
    }
}
static void rmsnorm(const call_copy *c) {
  const lfx_tensor *x = &c->in[0];
  int64_t d = width(x), t = rows(x);
  for (int64_t i = 0; i < t; i++) {
    double s = 0;
    for (int64_t j = 0; j < d; j++) s += ld(x, i * d + j) * ld(x, i * d + j);
    double r = 1 / sqrt(s / d + c->f[0]);
    st(&c->out[1], i, r);
    for (int64_t j = 0; j < d; j++) st(&c->out[0], i * d + j, ld(x, i * d + j) * r * (ld(&c->in[1], j) + c->f[1]));
  }
}
static void rmsnorm_dx(const call_copy *c) {
  const lfx_tensor *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2];
  int64_t d = width(x), t = rows(x);
  for (int64_t i = 0; i < t; i++) {
    double r = ld(&c->in[3], i), s = 0;
    for (int64_t j = 0; j < d; j++) s += ld(dy, i * d + j) * (ld(w, j) + c->f[1]) * ld(x, i * d + j);
    for (int64_t j = 0; j < d; j++)
      st(&c->out[0], i * d + j, r * (ld(dy, i * d + j) * (ld(w, j) + c->f[1]) - ld(x, i * d + j) * r * r * s / d));
  }
}
static void rmsnorm_dw(const call_copy *c) {
  const lfx_tensor *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
  int64_t d = width(x), t = rows(x);
  for (int64_t j = 0; j < d; j++) {
    double s = kept(dw, j, c->i[0]);
    for (int64_t i = 0; i < t; i++) s += ld(dy, i * d + j) * ld(x, i * d + j) * ld(&c->in[2], i);
    st(dw, j, s);
  }
}
static void rope_table(const call_copy *c) {
  int64_t t = c->in[0].dim[0], r = c->in[1].dim[0];
  for (int64_t i = 0; i < t; i++)
    for (int64_t j = 0; j < r; j++) {
      float angle = (float)ld(&c->in[0], i) * (float)ld(&c->in[1], j);
      st(&c->out[0], i * r + j, cos(angle) * c->f[0]);
      st(&c->out[1], i * r + j, sin(angle) * c->f[0]);
    }
}
static void rope(const call_copy *c) {
  const lfx_tensor *x = &c->in[0], *y = &c->out[0];
  int64_t t = x->dim[0], h = x->dim[1], d = x->dim[2], r = width(&c->in[1]);
  for (int64_t i = 0; i < t * h; i++) {
    for (int64_t j = 2 * r; j < d; j++) st(y, i * d + j, ld(x, i * d + j));
    for (int64_t j = 0; j < r; j++) {
      int64_t p = i * d + (c->i[1] ? 2 * j : j), q = p + (c->i[1] ? 1 : r), m = i / h * r + j;
      double u = ld(x, p), v = ld(x, q), co = ld(&c->in[1], m), si = ld(&c->in[2], m) * c->i[0];
      st(y, p, u * co - v * si);
      st(y, q, v * co + u * si);
    }
  }
}
static void swiglu(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) {
    double g = ld(&c->in[0], i);
    st(&c->out[0], i, g * sigmoid(g) * ld(&c->in[1], i));
  }
}
static void swiglu_bwd(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) {
    double dy = ld(&c->in[0], i), g = ld(&c->in[1], i), u = ld(&c->in[2], i), s = sigmoid(g);
    st(&c->out[0], i, dy * u * s * (1 + g * (1 - s)));
    st(&c->out[1], i, dy * g * s);
  }
}
static void embed(const call_copy *c) {
  const lfx_tensor *w = &c->in[1];
  int64_t t = c->in[0].dim[0], d = w->dim[1];
  for (int64_t i = 0; i < t; i++) {
    int64_t r = (int64_t)ld(&c->in[0], i) - c->i[0];
    for (int64_t j = 0; j < d; j++) st(&c->out[0], i * d + j, r >= 0 && r < w->dim[0] ? ld(w, r * d + j) : 0);
  }
}
static void embed_dw(const call_copy *c) {
  const lfx_tensor *dw = &c->out[0];
  int64_t t = c->in[1].dim[0], d = dw->dim[1];
  for (int64_t i = 0; c->i[0] != 1 && i < count(dw); i++) st(dw, i, 0);
  for (int64_t i = 0; i < t; i++) {
    int64_t r = (int64_t)ld(&c->in[1], i) - c->i[1];
    for (int64_t j = 0; r >= 0 && r < dw->dim[0] && j < d; j++) st(dw, r * d + j, ld(dw, r * d + j) + ld(&c->in[0], i * d + j));
  }
}
static void sum(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) {
    double s = ld(&c->in[0], i);
    for (uint32_t j = 1; j < c->nin; j++) {
      s += ld(&c->in[j], i);
      if (c->out[0].dtype != LFX_F64) s = (float)s;
    }
    st(&c->out[0], i, s);
  }
}
static int refuses_sum(const call_copy *c) { return c->nin == 1 || refuses_types(c); }
static void scale(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) st(&c->out[0], i, (float)c->f[0] * ld(&c->in[0], i));
}
static void cast(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) st(&c->out[0], i, ld(&c->in[0], i));
}
/* float64 to bfloat16 would be rounded twice here, and copies of other types are not numbers */
static int refuses_cast(const call_copy *c) { return refuses_types(c) || c->in[0].dtype > LFX_BF16 || c->out[0].dtype > LFX_BF16 || c->in[0].dtype == c->out[0].dtype; }
static void fill(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) st(&c->out[0], i, c->f[0]);
}
static void add_to(const call_copy *c) {
  int64_t n = count(&c->out[0]);
  for (int64_t i = 0; i < n; i++) st(&c->out[0], i, kept(&c->out[0], i, c->i[0]) + ld(&c->in[0], i));
}
static void sum_squares(const call_copy *c) {
  int64_t n = count(&c->in[0]);
  double all = kept(&c->out[0], 0, c->i[0]);
  for (int64_t i = 0; i < n; i += 4096) {
    double s = 0;
    for (int64_t j = i; j < n && j < i + 4096; j++) s += ld(&c->in[0], j) * ld(&c->in[0], j);
    all += s;
  }
  st(&c->out[0], 0, all);
}
static void adamw(const call_copy *c) {
  const double *h = at(&c->in[1]), *clip = at(&c->in[2]);
  const lfx_tensor *p = &c->out[0], *m = &c->out[1], *v = &c->out[2], *q = &c->out[3];
  int64_t n = count(p);
  if (clip[2] == 1) return; /* the norm is not finite */
  double decay = c->i[0] == 1 ? 0 : h[0] * h[4];
  for (int64_t i = 0; i < n; i++) {
    double g = ld(&c->in[0], i) * clip[1], a = ld(p, i), b = ld(m, i), s = ld(v, i);
    a -= decay * a;
    b += (1 - h[1]) * (g - b);
    s = h[2] * s + (1 - h[2]) * g * g;
    a -= h[0] / h[5] * b / (sqrt(s) / sqrt(h[6]) + h[3]);
    st(p, i, a);
    st(m, i, b);
    st(v, i, s);
    if (q->mem) st(q, i, ld(p, i));
  }
}

/* The operations and the contracts that they were written for. */
static const struct {
  const char *name, *signature;
  void (*run)(const call_copy *);
  int (*refuses)(const call_copy *);
} operations[] = {
  {"linear", "x[...,k]A w[n,k]A bias[n]A? -> y[...,n]A|f32", linear, refuses_types},
  {"linear_dx", "dy[...,n]A w[n,k]A -> dx[...,k]A", linear_dx, refuses_types},
  {"linear_dw", "dy[...,n]A x[...,k]A -> dw[n,k]f32", linear_dw, refuses_types},
  {"rmsnorm", "x[...,d]A w[d]A -> y[...,d]A rstd[...]f32", rmsnorm, refuses_types},
  {"rmsnorm_dx", "dy[...,d]A x[...,d]A w[d]A rstd[...]f32 -> dx[...,d]A", rmsnorm_dx, refuses_types},
  {"rmsnorm_dw", "dy[...,d]A x[...,d]A rstd[...]f32 -> dw[d]f32", rmsnorm_dw, refuses_types},
  {"rope_table", "pos[t]i32 inv[r]f32 -> cos[t,r]f32 sin[t,r]f32", rope_table, 0},
  {"rope", "x[t,h,d]A cos[t,r]f32 sin[t,r]f32 -> y[t,h,d]A", rope, refuses_types},
  {"swiglu", "g[...]A u[...]A -> y[...]A", swiglu, refuses_types},
  {"swiglu_bwd", "dy[...]A g[...]A u[...]A -> dg[...]A du[...]A", swiglu_bwd, refuses_types},
  {"embed", "ids[t]i32 w[v,d]A -> y[t,d]A", embed, refuses_types},
  {"embed_dw", "dy[t,d]A ids[t]i32 -> dw[v,d]f32", embed_dw, refuses_types},
  {"sum", "x0[...]T ... -> y[...]T", sum, refuses_sum},
  {"scale", "x[...]A -> y[...]A", scale, refuses_types},
  {"cast", "x[...]T -> y[...]U", cast, refuses_cast},
  {"fill", "-> y[...]T", fill, refuses_types},
  {"add_to", "x[...]A|f32|f64 -> y[...]f32|f64", add_to, refuses_types},
  {"sum_squares", "x[...]f32 -> y[1]f64", sum_squares, 0},
  {"adamw", "g[...]f32 hyper[7]f64 clip[3]f64 -> p[...]f32 m[...]f32 v[...]f32 q[...]A?", adamw, refuses_types},
};
