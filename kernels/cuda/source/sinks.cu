#include "lf.cuh"

// Attention with a further logit for each head. A thread has an element; y and all may be 0.
struct Sink {
  const void *o, *dy, *y, *sink;
  const float* lse;
  void* out;
  float *all, *dsink;
  i64 rows, h, e, add; // rows of tokens and heads
};

template <class T> LF_DEV void attention_sink(const Sink& a) {
  LF_EACH(i, a.rows * a.e) {
    i64 row = i / a.e;
    float l = a.lse[row], s = ld<T>(a.sink, row % a.h), top = fmaxf(l, s), all = top;
    if (l != l || s != s) all = NAN;
    else if (top != -INFINITY) all = top + logf(expf(l - top) + expf(s - top));
    st<T>(a.out, i, (all == all && l == -INFINITY ? 0 : expf(l - all)) * ld<T>(a.o, i));
    if (i % a.e == 0) a.all[row] = all;
  }
}
LF_TYPED(attention_sink, Sink)

// A block has a head; its threads have rows in turns, whose sums block_sum adds in one order.
template <class T> LF_DEV void attention_sink_bwd(const Sink& a) {
  i64 head = blockIdx.x;
  float sink = ld<T>(a.sink, head), sum = 0;
  LF_ROW(t, a.rows / a.h) {
    i64 row = t * a.h + head;
    float dot = 0;
    for (i64 j = 0; j < a.e; j++) dot += ld<T>(a.dy, row * a.e + j) * ld<T>(a.y, row * a.e + j);
    sum -= expf(sink - a.lse[row]) * dot;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) a.dsink[head] = a.add ? a.dsink[head] + sum : sum;
}
LF_TYPED(attention_sink_bwd, Sink)

// A gate with bounds.
struct Bounded {
  const void *x0, *x1, *x2;
  void *y0, *y1;
  i64 n;
  double most, slope;
};

template <class T> LF_DEV void bounded_glu(const Bounded& a) {
  float most = (float)a.most, f = (float)a.slope;
  LF_EACH(i, a.n) {
    float g = ld<T>(a.x0, i), u = ld<T>(a.x1, i);
    if (g > most) g = most;
    if (u > most) u = most;
    if (u < -most) u = -most;
    st<T>(a.y0, i, g * sigmoid(f * g) * (u + 1));
  }
}
LF_TYPED(bounded_glu, Bounded)

template <class T> LF_DEV void bounded_glu_bwd(const Bounded& a) {
  float most = (float)a.most, f = (float)a.slope;
  LF_EACH(i, a.n) {
    float dy = ld<T>(a.x0, i), g0 = ld<T>(a.x1, i), u0 = ld<T>(a.x2, i), g = g0, u = u0;
    if (g > most) g = most;
    if (u > most) u = most;
    if (u < -most) u = -most;
    float s = sigmoid(f * g);
    st<T>(a.y0, i, g0 > most ? 0 : dy * (u + 1) * s * (1 + f * g * (1 - s)));
    st<T>(a.y1, i, u0 > most || u0 < -most ? 0 : dy * g * s);
  }
}
LF_TYPED(bounded_glu_bwd, Bounded)

// The group of each row.
struct Groups {
  const i32* off;
  i32* ids;
  i64 groups, n;
};

LF_DEV void group_of(const Groups& a) {
  LF_EACH(i, a.n) {
    i32 id = -1;
    for (i64 g = 0; g < a.groups; g++)
      if (a.off[g] <= i && i < a.off[g + 1]) id = (i32)g;
    a.ids[i] = id;
  }
}
LF_ONE(group_ids, group_of, Groups)
