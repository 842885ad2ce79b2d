#include "lf.cuh"

// Indices in order of the rows that they name, and for one row in order of their places: a key has the row in its upper half and the place
// in its lower, so that no two are the same. Blocks of 512 keys are sorted, then runs are merged in pairs. What names no row lies behind.
struct Sort {
  const i32* idx;
  const u64* from;
  u64* to;
  i64 n, first, rows, run, padded; // run and padded are multiples of 512
};

enum { kSorted = 512 };
#define LF_NO_ROW 0xffffffffull

LF_DEV void sort_of_block(const Sort& a) {
  __shared__ u64 k[kSorted];
  for (int i = threadIdx.x; i < kSorted; i += blockDim.x) {
    i64 at = (i64)blockIdx.x * kSorted + i, r = at < a.n ? (i64)a.idx[at] - a.first : -1;
    k[i] = (r >= 0 && r < a.rows ? (u64)r : LF_NO_ROW) << 32 | (u64)at;
  }
  int t = threadIdx.x;
  for (int size = 2; size <= kSorted; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      int lo = 2 * t - (t & (step - 1)), hi = lo + step;
      u64 x = k[lo], y = k[hi];
      if ((x > y) == ((lo & size) == 0)) {
        k[lo] = y;
        k[hi] = x;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kSorted; i += blockDim.x) a.to[(i64)blockIdx.x * kSorted + i] = k[i];
}
LF_ONE(sort_blocks, sort_of_block, Sort)

// Each key's place is its own in its run and how many of the other run are less.
LF_DEV void merge_runs(const Sort& a) {
  LF_EACH(i, a.padded) {
    i64 run = i / a.run, other = (run ^ 1) * a.run, lo = 0, hi = a.padded - other < a.run ? a.padded - other : a.run;
    u64 key = a.from[i];
    while (lo < hi) {
      i64 mid = (lo + hi) / 2;
      if (a.from[other + mid] < key) lo = mid + 1;
      else hi = mid;
    }
    i64 before = other < run * a.run ? other : run * a.run;
    a.to[before + i - run * a.run + (lo > 0 ? lo : 0)] = key;
  }
}
LF_ONE(sort_merge, merge_runs, Sort)

// Rows that the same index names, added up in order: a block for each key, of which the first of a row does the work. What no index
// names, the caller has cleared.
struct Segments {
  const u64* keys;
  const void* dy;
  void* y;
  i64 n, d, add;
};

template <class T, class U> LF_DEV void segment(const Segments& a) {
  i64 me = blockIdx.x;
  u64 row = a.keys[me] >> 32;
  if (row == LF_NO_ROW || (me > 0 && a.keys[me - 1] >> 32 == row)) return; // the whole block
  i64 end = me + 1;
  while (end < a.n && a.keys[end] >> 32 == row) end++;
  LF_ROW(c, a.d) {
    i64 to = (i64)row * a.d + c;
    float s = a.add ? ld<U>(a.y, to) : 0;
    for (i64 i = me; i < end; i++) s += ld<T>(a.dy, (i64)(a.keys[i] & 0xffffffffu) * a.d + c);
    st<U>(a.y, to, s);
  }
}
template <class T> LF_DEV void embed_dw(const Segments& a) { segment<T, float>(a); }
LF_TYPED(embed_dw, Segments)
template <class T> LF_DEV void take_bwd(const Segments& a) { segment<T, T>(a); }
LF_TYPED(take_bwd, Segments)
