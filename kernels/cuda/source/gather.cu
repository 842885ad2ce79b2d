#include "lf.cuh"

// Rows by index: embed, take, spread, mix, and their gradients.
struct Rows {
  const void *x, *dy;
  const i32* idx;
  const float* w;
  void* y;
  i64 n, rows, d, k, first, add; // n indices into rows of width d
};

// Whether rows of both can be gone over by eights.
template <class T> LF_DEV bool by_eights(const Rows& a) { return ((u64)a.x | (u64)a.y) % 16 == 0 && a.d % 8 == 0; }

// Eight elements as they are, or zeros.
template <class T> LF_DEV void copy_eight(T* y, const T* x) {
#pragma unroll
  for (u64 h = 0; h < sizeof(T) / 2; h++) ((Sixteen*)y)[h] = x ? ((const Sixteen*)x)[h] : Sixteen{};
}

// y[i] = x[idx[i] - first], zeros where there is no such row.
template <class T> LF_DEV void take(const Rows& a) {
  if (by_eights<T>(a)) {
    i64 eights = a.d / 8;
    LF_EACH(e, a.n * eights) {
      i64 i = e / eights, r = (i64)a.idx[i] - a.first;
      copy_eight((T*)a.y + e * 8, r >= 0 && r < a.rows ? (const T*)a.x + r * a.d + e % eights * 8 : 0);
    }
    return;
  }
  LF_EACH(e, a.n * a.d) {
    i64 i = e / a.d, r = (i64)a.idx[i] - a.first;
    if (r >= 0 && r < a.rows) ((T*)a.y)[e] = ((const T*)a.x)[r * a.d + e % a.d];
    else st<T>(a.y, e, 0);
  }
}
LF_TYPED(take, Rows)

// y[i] = w[idx[i]]·x[idx[i]/k], zeros for a negative index.
template <class T> LF_DEV void spread(const Rows& a) {
  if (by_eights<T>(a)) {
    i64 eights = a.d / 8;
    LF_EACH(e, a.n * eights) {
      i64 p = a.idx[e / eights];
      const T* from = p < 0 ? 0 : (const T*)a.x + p / a.k * a.d + e % eights * 8;
      if (p >= 0 && a.w) {
        float f[8];
        load_eight(f, from, true);
#pragma unroll
        for (int c = 0; c < 8; c++) f[c] = a.w[p] * f[c];
        store_eight((T*)a.y + e * 8, f, true);
      } else copy_eight((T*)a.y + e * 8, from);
    }
    return;
  }
  LF_EACH(e, a.n * a.d) {
    i64 i = e / a.d, p = a.idx[i];
    if (p < 0) {
      st<T>(a.y, e, 0);
      continue;
    }
    i64 from = p / a.k * a.d + e % a.d;
    if (a.w) st<T>(a.y, e, a.w[p] * ld<T>(a.x, from));
    else ((T*)a.y)[e] = ((const T*)a.x)[from];
  }
}
LF_TYPED(spread, Rows)

// y[i] = Σ over j of w[i,j]·x[idx[i,j]]; n are tokens.
template <class T> LF_DEV void mix(const Rows& a) {
  if (by_eights<T>(a)) {
    i64 eights = a.d / 8;
    LF_EACH(e, a.n * eights) {
      i64 i = e / eights;
      float s[8] = {}, x[8];
      for (i64 j = i * a.k; j < (i + 1) * a.k; j++) {
        i64 r = a.idx[j];
        if (r < 0 || r >= a.rows) continue;
        load_eight(x, (const T*)a.x + r * a.d + e % eights * 8, true);
#pragma unroll
        for (int c = 0; c < 8; c++) s[c] += (a.w ? a.w[j] : 1) * x[c];
      }
      store_eight((T*)a.y + e * 8, s, true);
    }
    return;
  }
  LF_EACH(e, a.n * a.d) {
    i64 i = e / a.d;
    float s = 0;
    for (i64 j = i * a.k; j < (i + 1) * a.k; j++) {
      i64 r = a.idx[j];
      if (r >= 0 && r < a.rows) s += (a.w ? a.w[j] : 1) * ld<T>(a.x, r * a.d + e % a.d);
    }
    st<T>(a.y, e, s);
  }
}
LF_TYPED(mix, Rows)

// dw[i,j] = dy[i]·x[idx[i,j]], a block each.
template <class T> LF_DEV void mix_dw(const Rows& a) {
  i64 at = blockIdx.x, r = a.idx[at], i = at / a.k;
  float s = 0;
  if (r >= 0 && r < a.rows) {
    LF_ROW(c, a.d) s += ld<T>(a.dy, i * a.d + c) * ld<T>(a.x, r * a.d + c);
  }
  s = block_sum(s);
  if (threadIdx.x == 0) ((float*)a.y)[at] = s;
}
LF_TYPED(mix_dw, Rows)

// Zeros in the rows before the first offset and behind the last: those of no group.
struct Outside {
  const i32* off;
  void* y;
  i64 groups, rows, bytes; // bytes a row, a multiple of 2
};

LF_DEV void zero_outside(const Outside& a) {
  i64 from = a.off[0], to = a.off[a.groups], w = a.bytes / 2;
  LF_EACH(e, a.rows * w) {
    i64 i = e / w;
    if (i < from || i >= to) ((u16*)a.y)[e] = 0;
  }
}
LF_ONE(outside, zero_outside, Outside)

// The borders of those queries that lie in rows [from, to), and of the keys that they may see; one thread.
struct Cut {
  const i32 *cu_q, *cu_k;
  i32 *q, *k;
  i64 c, from, to; // c sequences
};

LF_DEV void cut_one(const Cut& a) {
  i64 first = -1, last = -1, behind = 0;
  i64 q = clamp(a.cu_q[0], a.from, a.to) - a.from;
  a.q[0] = (i32)q;
  for (i64 s = 0; s < a.c; s++) {
    i64 lo = clamp(a.cu_q[s], a.from, a.to), hi = clamp(a.cu_q[s + 1], a.from, a.to);
    q += hi - lo;
    a.q[s + 1] = (i32)q;
    if (hi > lo) {
      if (first < 0) first = s;
      last = s;
      behind = a.cu_q[s + 1] - hi;
    }
  }
  for (i64 s = 0; s <= a.c; s++) {
    if (first < 0) a.k[s] = a.cu_k[0];
    else if (s > last) a.k[s] = (i32)(a.cu_k[last + 1] - behind);
    else a.k[s] = a.cu_k[s > first ? s : first];
  }
}
LF_ONE(cut_sequences, cut_one, Cut)
