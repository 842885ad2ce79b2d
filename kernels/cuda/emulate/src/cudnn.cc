// The part of cuDNN's backend interface that lfactor uses for attention: descriptors are bags of attributes that are checked when they are
// finalized, and a plan is carried out in plain loops from what the graph says of its operands. The first engine that is proposed for a
// forward has other bits in other runs, by its notes; a backward has an order of its sums only with stages = 4.
#include "driver.h"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

namespace {

enum { kOK = 0, kBadParam = 2000, kNotFinal = 2007, kUnsupported = 3000 };
enum { kEngine = 2, kConfig = 3, kHeuristic = 4, kPlan = 5, kKnob = 7, kGraph = 15, kPack = 16, kTensor = 17, kDevice = 38,
  kForward = 41, kBackward = 43, kBand = 44, kSoftmax = 45 };
enum { kFloat = 0, kHalf = 2, kInt32 = 4, kBF16 = 9 };
const char* why = "";

struct Descriptor {
  int kind;
  bool final = false;
  std::map<int, std::vector<char>> at;
  bool has(int a) const { return at.count(a) != 0; }
  template <class T> T one(int a) const {
    T v{};
    auto i = at.find(a);
    if (i != at.end()) memcpy(&v, i->second.data(), i->second.size() < sizeof v ? i->second.size() : sizeof v);
    return v;
  }
  template <class T> std::vector<T> all(int a) const {
    auto i = at.find(a);
    if (i == at.end()) return {};
    const T* p = (const T*)i->second.data();
    return std::vector<T>(p, p + i->second.size() / sizeof(T));
  }
  Descriptor* to(int a) const { return one<Descriptor*>(a); }
};

size_t size_of(int type) {
  switch (type) {
  case 2: case 24: return 1;
  case 1: case 4: case 8: case 9: case 11: case 14: return 4;
  }
  return 8;
}
int fail(int code, const char* text) {
  why = text;
  return code;
}

// What each kind needs before it is finalized.
const std::map<int, std::vector<int>> needs = {{kTensor, {900, 901, 902, 903, 906}}, {kForward, {2800, 2801, 2802, 2803, 2805, 2814}},
  {kBackward, {2851, 2852, 2853, 2854, 2855, 2856, 2859, 2860, 2861, 2862}}, {kBand, {3000, 3005, 3006, 3007}}, {kSoftmax, {3100, 3101, 3102}},
  {kGraph, {801}}, {kHeuristic, {200, 201, 204}}, {kEngine, {1300, 1301}}, {kConfig, {300}}, {kKnob, {600, 601}}, {kPlan, {401, 407}},
  {kPack, {1000, 1001, 1003}}, {kDevice, {}}};

struct Value { // an operand as its descriptor and its address say
  const Descriptor* d = nullptr;
  char* p = nullptr;
  std::vector<int64_t> dim, step;
  const int* ragged = nullptr;
  int64_t row = 0;
  int64_t index(int64_t b, int64_t h, int64_t i, int64_t e) const {
    return (ragged ? ragged[b] * row : b * step[0]) + h * step[1] + i * step[2] + e * step[3];
  }
  float get(int64_t b, int64_t h, int64_t i, int64_t e) const {
    int64_t n = index(b, h, i, e);
    int type = d->one<int>(901);
    if (type == kFloat) return ((float*)p)[n];
    if (type == kHalf) {
      _Float16 x;
      memcpy(&x, (uint16_t*)p + n, 2);
      return (float)x;
    }
    uint32_t u = (uint32_t)((uint16_t*)p)[n] << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
  void put(int64_t b, int64_t h, int64_t i, int64_t e, float f) const {
    int64_t n = index(b, h, i, e);
    int type = d->one<int>(901);
    uint32_t u;
    memcpy(&u, &f, 4);
    if (type == kFloat) ((float*)p)[n] = f;
    else if (type == kBF16) ((uint16_t*)p)[n] = f != f ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    else {
      _Float16 x = (_Float16)f;
      memcpy((uint16_t*)p + n, &x, 2);
    }
  }
};

struct Run {
  std::map<int64_t, char*> where;
  bool backwards; // sums over keys from the last on: another engine's bits

  char* at(const Descriptor* t) const {
    auto i = where.find(t->one<int64_t>(906));
    return i == where.end() ? nullptr : i->second;
  }
  Value value(const Descriptor* t) const {
    Value v;
    v.d = t, v.p = at(t), v.dim = t->all<int64_t>(902), v.step = t->all<int64_t>(903), v.row = t->one<int64_t>(914);
    if (t->has(913)) v.ragged = (const int*)at(t->to(913));
    return v;
  }
  template <class T> T scalar(const Descriptor* t) const {
    T v{};
    if (t && at(t)) memcpy(&v, at(t), sizeof v);
    return v;
  }
  // Whether the masks of a graph leave a score.
  bool sees(const Descriptor* graph, int64_t lq, int64_t lk, bool packed, int64_t i, int64_t j) const {
    if (!graph) return true;
    for (Descriptor* op : graph->all<Descriptor*>(801)) {
      bool left = op->has(3003);
      if (!packed && !left) lq = scalar<int>(op->to(3002)), lk = scalar<int>(op->to(3001));
      if (!left && !(i + lk - lq >= j)) return false;
      if (left && packed && !(j + scalar<int>(op->to(3003)) - (lk - lq) > i)) return false;
      if (left && !packed && !((float)j + scalar<float>(op->to(3003)) > (float)i)) return false;
    }
    return true;
  }
  void attention(const Descriptor* op) const {
    bool back = op->kind == kBackward;
    int first = back ? 2851 : 2800;
    Value q = value(op->to(first)), k = value(op->to(first + 1)), v = value(op->to(first + 2)), o = value(op->to(first + 3));
    Value stats = value(back ? op->to(2855) : op->to(2814)->to(3102)), dq, dk, dv, dout;
    if (back) dq = value(op->to(2859)), dk = value(op->to(2860)), dv = value(op->to(2861)), dout = value(op->to(2862));
    float scale = scalar<float>(op->to(back ? 2856 : 2805));
    const Descriptor* graph = op->to(back ? 2867 : 2811);
    const Descriptor* borders = op->to(back ? 2870 : 2820);
    const int *cq = borders ? (const int*)at(borders) : nullptr, *ck = borders ? (const int*)at(op->to(back ? 2871 : 2821)) : nullptr;
    int64_t heads = q.dim[1], shared = heads / k.dim[1], width = q.dim[3];
    for (int64_t b = 0; b < q.dim[0]; b++) {
      int64_t lq = cq ? cq[b + 1] - cq[b] : q.dim[2], lk = ck ? ck[b + 1] - ck[b] : k.dim[2];
      for (int64_t g = 0; back && g < k.dim[1]; g++)
        for (int64_t j = 0; j < lk; j++)
          for (int64_t e = 0; e < width; e++) dk.put(b, g, j, e, 0), dv.put(b, g, j, e, 0);
      for (int64_t g = 0; g < k.dim[1]; g++) {
        std::vector<float> sk(back ? lk * width : 0), sv(back ? lk * width : 0);
        for (int64_t h = g * shared; h < (g + 1) * shared; h++)
          for (int64_t i = 0; i < lq; i++) {
            std::vector<float> s(lk);
            float top = -INFINITY, sum = 0, delta = 0;
            for (int64_t j = 0; j < lk; j++) {
              s[j] = -INFINITY;
              if (!sees(graph, lq, lk, cq != nullptr, i, j)) continue;
              float dot = 0;
              for (int64_t e = 0; e < width; e++) dot += q.get(b, h, i, e) * k.get(b, g, j, e);
              s[j] = scale * dot;
              top = fmaxf(top, s[j]);
            }
            if (!back) {
              for (int64_t n = 0; n < lk; n++) sum += expf(s[backwards ? lk - 1 - n : n] - top);
              stats.put(b, h, i, 0, top + logf(sum));
              for (int64_t e = 0; e < width; e++) {
                float a = 0;
                for (int64_t n = 0; n < lk; n++) {
                  int64_t j = backwards ? lk - 1 - n : n;
                  a += expf(s[j] - top) / sum * v.get(b, g, j, e);
                }
                o.put(b, h, i, e, a);
              }
              continue;
            }
            float lse = stats.get(b, h, i, 0);
            for (int64_t e = 0; e < width; e++) delta += dout.get(b, h, i, e) * o.get(b, h, i, e);
            std::vector<float> mine(width);
            for (int64_t j = 0; j < lk; j++) {
              float p = expf(s[j] - lse), dp = 0;
              for (int64_t e = 0; e < width; e++) dp += dout.get(b, h, i, e) * v.get(b, g, j, e);
              float ds = scale * p * (dp - delta);
              for (int64_t e = 0; e < width; e++) {
                mine[e] += ds * k.get(b, g, j, e);
                sk[j * width + e] += ds * q.get(b, h, i, e);
                sv[j * width + e] += p * dout.get(b, h, i, e);
              }
            }
            for (int64_t e = 0; e < width; e++) dq.put(b, h, i, e, mine[e]);
          }
        for (int64_t j = 0; back && j < lk; j++)
          for (int64_t e = 0; e < width; e++) dk.put(b, g, j, e, sk[j * width + e]), dv.put(b, g, j, e, sv[j * width + e]);
      }
    }
  }
};

Descriptor* knob(int type, int64_t v) {
  Descriptor* k = new Descriptor{kKnob, true};
  k->at[600].assign((char*)&type, (char*)&type + 4);
  k->at[601].assign((char*)&v, (char*)&v + 8);
  return k;
}

} // namespace

#define API extern "C" int
struct Handle { void* stream = nullptr; };

extern "C" size_t cudnnGetVersion() { return (size_t)lf_setting("cudnn"); }
extern "C" const char* cudnnGetErrorString(int e) { return e == kUnsupported ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM"; }
extern "C" void cudnnGetLastErrorString(char* text, size_t n) { snprintf(text, n, "%s", why); }
API cudnnCreate(Handle** h) { *h = new Handle; return kOK; }
API cudnnDestroy(Handle* h) { delete h; return kOK; }
API cudnnSetStream(Handle* h, void* s) { h->stream = s; return kOK; }
API cudnnBackendCreateDescriptor(int kind, Descriptor** d) {
  if (!needs.count(kind)) return fail(kBadParam, "no such descriptor");
  *d = new Descriptor{kind};
  return kOK;
}
API cudnnBackendDestroyDescriptor(Descriptor* d) { delete d; return kOK; }
API cudnnBackendSetAttribute(Descriptor* d, int a, int type, int64_t n, const void* p) {
  if (d->final) return fail(kBadParam, "the descriptor is finalized");
  if (type == 15)
    for (int64_t i = 0; i < n; i++)
      if (!((Descriptor* const*)p)[i]->final) return fail(kNotFinal, "a descriptor is not finalized");
  d->at[a].assign((const char*)p, (const char*)p + n * size_of(type));
  return kOK;
}
API cudnnBackendFinalize(Descriptor* d) {
  for (int a : needs.at(d->kind))
    if (!d->has(a)) return fail(kBadParam, "an attribute is missing");
  if (d->kind == kTensor && d->one<int64_t>(900) != 16) return fail(kBadParam, "operands are aligned to 16 bytes");
  if (d->kind == kTensor && d->has(913) && d->to(913)->one<int>(901) != kInt32) return fail(kBadParam, "borders are 32-bit integers");
  if (d->kind == kPlan) {
    Descriptor* e = d->to(401)->to(300);
    bool ordered = false;
    for (Descriptor* k : d->to(401)->all<Descriptor*>(302)) ordered |= k->one<int>(600) == 14 && k->one<int64_t>(601) == 4;
    bool back = e->to(1300)->all<Descriptor*>(801)[0]->kind == kBackward;
    if (back && !ordered) return fail(kUnsupported, "the stand-in adds up in one order alone");
    if (lf_setting("no attention")) return fail(kUnsupported, "the stand-in was told to have no engine");
  }
  d->final = true;
  return kOK;
}
API cudnnBackendGetAttribute(Descriptor* d, int a, int type, int64_t most, int64_t* n, void* p) {
  if (d->kind == kHeuristic && a == 202) {
    Descriptor* op = d->to(201)->all<Descriptor*>(801)[0];
    bool back = op->kind == kBackward;
    *n = 0;
    for (int64_t index : {(int64_t)7, 9 + lf_setting("algorithm")}) {
      if ((back && index == 7) || *n == most) continue;
      Descriptor *config = ((Descriptor**)p)[(*n)++], *engine = new Descriptor{kEngine, true}, *cfg = knob(24, 2), *graph = d->to(201);
      engine->at[1300].assign((char*)&graph, (char*)&graph + 8);
      engine->at[1301].assign((char*)&index, (char*)&index + 8);
      int note = index == 7 ? 4 : 0;
      engine->at[1303].assign((char*)&note, (char*)&note + 4);
      config->at[300].assign((char*)&engine, (char*)&engine + 8);
      config->at[302].assign((char*)&cfg, (char*)&cfg + 8);
      config->final = true;
    }
    return kOK;
  }
  if (d->kind == kPlan && a == 402) {
    *(int64_t*)p = 256;
    *n = 1;
    return kOK;
  }
  auto i = d->at.find(a);
  *n = i == d->at.end() ? 0 : (int64_t)(i->second.size() / size_of(type));
  if (*n > most) return fail(kBadParam, "too many values");
  if (*n && type == 15) { // what the caller gave is a copy, and destroyed with its own
    for (int64_t j = 0; j < *n; j++) *((Descriptor**)p)[j] = *((Descriptor**)i->second.data())[j];
  } else if (*n) {
    memcpy(p, i->second.data(), i->second.size());
  }
  return kOK;
}
API cudnnBackendExecute(Handle* h, Descriptor* plan, Descriptor* pack) {
  if (!plan->final || !pack->final) return fail(kNotFinal, "the plan or the pack is not finalized");
  Descriptor* op = plan->to(401)->to(300)->to(1300)->all<Descriptor*>(801)[0];
  Run run;
  run.backwards = plan->to(401)->to(300)->one<int64_t>(1301) % 2 == 0;
  auto ids = pack->all<int64_t>(1000);
  auto at = pack->all<uint64_t>(1001);
  std::map<int64_t, uint32_t> values;
  for (size_t i = 0; i < ids.size(); i++) {
    if (ids[i] >= 12) memcpy(&values[ids[i]], (void*)at[i], 4); // scalars of the host: read now
    else if (at[i] % 16) return fail(kBadParam, "an operand is not aligned");
    else run.where[ids[i]] = lf_bytes_at(at[i]);
  }
  if (!pack->one<uint64_t>(1003)) return fail(kBadParam, "no workspace");
  return lf_push(h->stream, [=]() mutable {
    for (auto& v : values) run.where[v.first] = (char*)&v.second;
    run.attention(op);
    return 0;
  });
}
