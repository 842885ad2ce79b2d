#include "lf.cuh"

// Convolutions over one to three axes of space, as three: axes that a tensor lacks have one place. Rows are samples and places, of channels
// side by side; every sum is one thread's, or of dw one warp's, in one order.
struct Space {
  const void *x, *w, *bias; // of conv_dx, x is dy; of conv_dw, w is dy
  void* y;
  i64 n, c, f, each, per_group; // samples, channels of inputs and of outputs, and of each group
  i64 in[3], out[3], size[3], stride[3], dilation[3], before[3];
  i64 add;
};

struct Place {
  i64 p[3];
};
LF_DEV Place place_of(const i64* size, i64 i) {
  return {{i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]}};
}
LF_DEV i64 places(const i64* size) { return size[0] * size[1] * size[2]; }

// The input that an output meets at a tap; -1 for none.
LF_DEV i64 input_of(const Space& a, const Place& o, const Place& k) {
  i64 i = 0;
#pragma unroll
  for (int d = 0; d < 3; d++) {
    i64 p = o.p[d] * a.stride[d] - a.before[d] + k.p[d] * a.dilation[d];
    if (p < 0 || p >= a.in[d]) return -1;
    i = i * a.in[d] + p;
  }
  return i;
}

template <class T> LF_DEV void conv(const Space& a) {
  i64 outs = places(a.out), ins = places(a.in), taps = places(a.size);
  LF_EACH(e, a.n * outs * a.f) {
    i64 j = e % a.f, o = e / a.f % outs, n = e / (a.f * outs), first = j / a.per_group * a.each;
    Place at = place_of(a.out, o);
    float s = 0;
    for (i64 k = 0; k < taps; k++) {
      i64 i = input_of(a, at, place_of(a.size, k));
      if (i < 0) continue;
      for (i64 q = 0; q < a.each; q++) s = fmaf(ld<T>(a.x, (n * ins + i) * a.c + first + q), ld<T>(a.w, (j * a.each + q) * taps + k), s);
    }
    if (a.bias) s += ld<T>(a.bias, j);
    st<T>(a.y, e, s);
  }
}
LF_TYPED(conv, Space)

template <class T> LF_DEV void conv_dx(const Space& a) {
  i64 outs = places(a.out), ins = places(a.in), taps = places(a.size);
  LF_EACH(e, a.n * ins * a.c) {
    i64 ch = e % a.c, i = e / a.c % ins, n = e / (a.c * ins), group = ch / a.each, q = ch % a.each;
    Place at = place_of(a.in, i);
    float s = 0;
    for (i64 k = 0; k < taps; k++) {
      Place tap = place_of(a.size, k);
      i64 o = 0;
#pragma unroll
      for (int d = 0; d < 3; d++) {
        i64 p = at.p[d] + a.before[d] - tap.p[d] * a.dilation[d];
        if (o < 0 || p < 0 || p % a.stride[d] != 0 || p / a.stride[d] >= a.out[d]) o = -1;
        else o = o * a.out[d] + p / a.stride[d];
      }
      if (o < 0) continue;
      for (i64 j = group * a.per_group; j < (group + 1) * a.per_group && j < a.f; j++) {
        s = fmaf(ld<T>(a.x, (n * outs + o) * a.f + j), ld<T>(a.w, (j * a.each + q) * taps + k), s);
      }
    }
    if (a.bias) s += ld<T>(a.bias, ch);
    st<T>(a.y, e, s);
  }
}
LF_TYPED(conv_dx, Space)

// A warp for each weight.
template <class T> LF_DEV void conv_dw(const Space& a) {
  i64 outs = places(a.out), ins = places(a.in), taps = places(a.size), me = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (me >= a.f * a.each * taps) return; // the whole warp
  i64 k = me % taps, q = me / taps % a.each, j = me / (taps * a.each), ch = j / a.per_group * a.each + q;
  Place tap = place_of(a.size, k);
  float s = 0;
  for (i64 m = threadIdx.x % 32; m < a.n * outs; m += 32) {
    i64 i = input_of(a, place_of(a.out, m % outs), tap);
    if (i >= 0) s = fmaf(ld<T>(a.w, m * a.f + j), ld<T>(a.x, (m / outs * ins + i) * a.c + ch), s);
  }
  s = warp_sum(s);
  float* y = (float*)a.y;
  if (threadIdx.x % 32 == 0) y[me] = a.add ? y[me] + s : s;
}
LF_TYPED(conv_dw, Space)

// Elements by their places: y at (i0, i1, …) is x where each axis is i less shift, in steps of its own, and zeros where that lies outside of x.
struct Places {
  const void* x;
  void* y;
  i64 n, rank, bytes; // bytes of an element: 1, 2, 4 or 8
  i64 size[8], shift[8], limit[8], step[8];
};

template <class W> LF_DEV void places_as(const Places& a) {
  LF_EACH(e, a.n) {
    i64 rest = e, from = 0;
    bool inside = true;
    for (i64 d = a.rank - 1; d >= 0; d--) {
      i64 p = rest % a.size[d] - a.shift[d];
      rest /= a.size[d];
      inside = inside && p >= 0 && p < a.limit[d];
      from += p * a.step[d];
    }
    ((W*)a.y)[e] = inside ? ((const W*)a.x)[from] : 0;
  }
}
LF_DEV void by_places(const Places& a) {
  switch (a.bytes) {
  case 1: places_as<u8>(a); break;
  case 2: places_as<u16>(a); break;
  case 4: places_as<u32>(a); break;
  default: places_as<u64>(a);
  }
}
LF_ONE(places, by_places, Places)
