#include "fibers.h"
#include "shim.h"
#include <vector>

// A switch of stacks for System V on amd64: what callees keep, no signal masks, no system call.
extern "C" void lf_switch(void** save, void* to);
#if defined(__x86_64__)
asm(R"(
.globl lf_switch
.hidden lf_switch
.type lf_switch,@function
lf_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

#else
#error "the emulator has no switch of stacks for this processor"
#endif

thread_local lf_thread* lf_current;

namespace {

enum State { kRuns, kAtBarrier, kAtExchange, kEnded };
// Stacks lie no power of two apart: they would share few sets of a cache.
enum { kStack = 24 << 10, kApart = kStack + 1088 };

struct Fiber {
  lf_thread at;
  void* sp;
  State state;
  int barriers; // so far
  int turn; // which half of the places of a warp its next exchange uses
  std::vector<std::pair<void*, const void*>> copies; // 16 bytes each, that were not waited for
  std::vector<size_t> groups; // how many copies each closed group has
  size_t open = 0; // copies of the group that is not closed
};

struct World {
  std::vector<Fiber> fibers;
  char* stacks = nullptr;
  size_t have = 0;
  std::vector<char> places, shared;
  void* home = nullptr;
  Fiber* now = nullptr;
  lf_kernel kernel = nullptr;
  const void* args = nullptr;
  int order = 0, skip = 0;
  uint64_t chance = 0;
};
thread_local World* world;

void leave(State s) {
  World* w = world;
  w->now->state = s;
  lf_switch(&w->now->sp, w->home);
}

void entry() {
  world->kernel(world->args);
  leave(kEnded);
  abort();
}

// The i-th of n in the order that chance gives; for a random one n is a power of two, or they ascend from somewhere.
unsigned pick(int order, uint64_t chance, unsigned i, unsigned n) {
  switch (order) {
  case lf_descending: return n - 1 - i;
  case lf_random: return (n & (n - 1)) == 0 ? ((i * (2 * (chance >> 33) + 1) + (chance >> 13)) & (n - 1)) : (i + (chance >> 33)) % n;
  }
  return i;
}

uint64_t draw(World& w) { return w.chance = w.chance * 6364136223846793005ull + 1442695040888963407ull; }

// Runs the lanes of a warp until all are at a barrier or at their end; false for an exchange that some lanes do not take part in.
bool run_warp(World& w, unsigned first) {
  Fiber* f = &w.fibers[first];
  for (;;) {
    bool ran = false;
    uint64_t chance = draw(w);
    for (unsigned j = 0; j < 32; j++) {
      Fiber& x = f[pick(w.order, chance, j, 32)];
      if (x.state != kRuns) continue;
      ran = true;
      w.now = &x;
      lf_current = &x.at;
      lf_switch(&w.home, x.sp);
    }
    unsigned exchange = 0;
    for (unsigned j = 0; j < 32; j++) exchange += f[j].state == kAtExchange;
    if (exchange == 32) {
      for (unsigned j = 0; j < 32; j++) f[j].state = kRuns;
    } else if (exchange > 0) {
      return false;
    } else if (!ran) {
      return true;
    }
  }
}

std::string run_block(World& w, unsigned threads) {
  for (unsigned live = threads; live > 0;) {
    uint64_t chance = draw(w);
    for (unsigned i = 0; i < threads / 32; i++) {
      if (!run_warp(w, 32 * pick(w.order, chance, i, threads / 32))) return "an exchange of a warp in divergent code: not all 32 lanes take part";
    }
    unsigned barrier = 0;
    live = 0;
    for (Fiber& f : w.fibers) {
      live += f.state != kEnded;
      barrier += f.state == kAtBarrier;
    }
    if (barrier != 0 && barrier != threads) return "__syncthreads in divergent code: some threads of the block have ended";
    for (Fiber& f : w.fibers) {
      if (f.state == kAtBarrier) f.state = kRuns;
    }
  }
  return "";
}

} // namespace

void __syncthreads() {
  if (++world->now->barriers != world->skip) leave(kAtBarrier);
}
void* lf_shared_memory() { return (void*)(((uintptr_t)world->shared.data() + 15) & ~(uintptr_t)15); }

void lf_copy_async(void* to, const void* from) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16) abort(); // as the device would
  world->now->copies.push_back({to, from});
  world->now->open++;
}
void lf_close_group() {
  world->now->groups.push_back(world->now->open);
  world->now->open = 0;
}
void lf_wait_groups(int left) {
  Fiber* f = world->now;
  size_t n = 0, groups = f->groups.size() > (size_t)left ? f->groups.size() - left : 0;
  for (size_t i = 0; i < groups; i++) n += f->groups[i];
  for (size_t i = 0; i < n; i++) memcpy(f->copies[i].first, f->copies[i].second, 16);
  f->copies.erase(f->copies.begin(), f->copies.begin() + n);
  f->groups.erase(f->groups.begin(), f->groups.begin() + groups);
}

char* lf_exchange(const void* v, size_t n) {
  World* w = world;
  if (n > lf_place) abort();
  Fiber* f = w->now;
  size_t lane = (size_t)(f - w->fibers.data()), half = (size_t)f->turn * w->fibers.size() * lf_place;
  f->turn ^= 1; // who is quick may be at the next exchange before others have read this one
  memcpy(&w->places[half + lane * lf_place], v, n);
  leave(kAtExchange);
  return &w->places[half + (lane & ~(size_t)31) * lf_place];
}

std::string lf_run(lf_kernel k, const void* args, lf_dim grid, unsigned threads, unsigned shared, int order, int skip) {
  static thread_local World mine;
  World& w = mine;
  world = &w;
  if (threads % 32 != 0) return "a block that is no whole number of warps: the project's kernels do not have them";
  if (w.have < threads) {
    free(w.stacks);
    w.stacks = (char*)malloc((size_t)threads * kApart + 64);
    w.have = threads;
  }
  w.kernel = k, w.args = args, w.order = order, w.skip = skip, w.chance = 12345;
  w.fibers.resize(threads);
  w.places.resize((size_t)threads * 2 * lf_place);
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        w.shared.assign(shared + 16, (char)0xff);
        for (unsigned i = 0; i < threads; i++) {
          Fiber& f = w.fibers[i];
          f.at = {{i, 0, 0}, {x, y, z}, {threads, 1, 1}, {grid.x, grid.y, grid.z}};
          void** top = (void**)(((uintptr_t)w.stacks + (size_t)i * kApart + kStack) & ~(uintptr_t)15) - 1;
          *--top = (void*)entry;
          for (int j = 0; j < 6; j++) *--top = nullptr;
          f.sp = top, f.state = kRuns, f.turn = 0, f.barriers = 0;
          f.copies.clear(), f.groups.clear(), f.open = 0;
        }
        std::string wrong = run_block(w, threads);
        if (!wrong.empty()) return wrong;
      }
  return "";
}
