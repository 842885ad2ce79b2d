#include "lf.cuh"

// Heads of which a part is shared, and attention to parts of the keys.
struct Joined {
  const void *shared, *each, *dy;
  void *y, *dshared, *deach;
  i64 t, h, r, n; // r numbers are shared, n are each head's own
};

template <class T> LF_DEV void join_heads(const Joined& a) {
  i64 d = a.r + a.n;
  LF_EACH(e, a.t * a.h * d) {
    i64 head = e / d, j = e % d;
    ((T*)a.y)[e] = j < a.r ? ((const T*)a.shared)[head / a.h * a.r + j] : ((const T*)a.each)[head * a.n + j - a.r];
  }
}
LF_TYPED(join_heads, Joined)

// A thread has a number of the shared part, over heads in order, or one of a head's own.
template <class T> LF_DEV void join_heads_bwd(const Joined& a) {
  i64 d = a.r + a.n, both = a.r + a.h * a.n;
  LF_EACH(e, a.t * both) {
    i64 row = e / both, j = e % both;
    if (j < a.r) {
      float s = 0;
      for (i64 h = 0; h < a.h; h++) s += ld<T>(a.dy, (row * a.h + h) * d + j);
      st<T>(a.dshared, row * a.r + j, s);
      continue;
    }
    j -= a.r;
    i64 head = row * a.h + j / a.n;
    ((T*)a.deach)[head * a.n + j % a.n] = ((const T*)a.dy)[head * d + a.r + j % a.n];
  }
}
LF_TYPED(join_heads_bwd, Joined)

// Two parts of attention in one; the types of o and of oa may be float32 beside that of ob.
struct Merge {
  const void *oa, *ob;
  const float *la, *lb;
  void* o;
  float* lse;
  i64 rows, e, type_a, type_b, type; // rows of tokens and heads
};

LF_DEV void merge_parts(const Merge& a) {
  LF_EACH(i, a.rows * a.e) {
    i64 row = i / a.e;
    float la = a.la[row], lb = a.lb[row], top = fmaxf(la, lb), lse = top, o = 0;
    if (la != la || lb != lb) lse = NAN;
    else if (top != -INFINITY) lse = top + logf(expf(la - top) + expf(lb - top));
    if (la != -INFINITY) o += expf(la - lse) * (float)ld_any(a.oa, i, a.type_a);
    if (lb != -INFINITY) o += expf(lb - lse) * (float)ld_any(a.ob, i, a.type_b);
    st_any(a.o, i, o, a.type);
    if (i % a.e == 0) a.lse[row] = lse;
  }
}
LF_ONE(attention_merge, merge_parts, Merge)

// The borders of queries and of keys that lie in parts of their rows, and where queries are among keys.
struct Parts {
  const i32 *cu_q, *cu_k;
  i32 *q, *k, *place;
  i64 c, from_q, to_q, from_k, to_k;
};

LF_DEV void borders_of_parts(const Parts& a) {
  LF_EACH(s, a.c + 1) {
    i64 q = clamp(a.cu_q[s], a.from_q, a.to_q), k = clamp(a.cu_k[s], a.from_k, a.to_k);
    a.q[s] = (i32)(q - a.from_q);
    a.k[s] = (i32)(k - a.from_k);
    if (s == a.c) continue;
    i64 ahead = (i64)(a.cu_k[s + 1] - a.cu_k[s]) - (a.cu_q[s + 1] - a.cu_q[s]);
    a.place[s] = (i32)(ahead + (q - a.cu_q[s]) - (k - a.cu_k[s]));
  }
}
LF_ONE(cut_parts, borders_of_parts, Parts)
