// The part of the CUDA driver's interface that lfactor uses, carried out by the processor. A stream is a thread with a queue; what orders
// streams among each other is events alone. Device memory begins as 0xff, and the addresses that are given out cannot be read or
// written by the host: they stand for others, at which kernels and copies find the bytes.
#include "driver.h"
#include "fibers.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

typedef int Result;
typedef uint64_t Address;
enum { kSuccess = 0, kInvalid = 1, kNoMemory = 2, kNoDevice = 100, kBadDevice = 101, kBadContext = 201, kNotFound = 500, kNotReady = 600,
  kNoRoom = 701, kFailed = 719 };

namespace {

std::atomic<int> order{0}, jitter{0}, devices{2}, loadable{1}, version{13000}, skip{0}, algorithm{0}, cudnn{92801}, no_attention{0}, nccl{23203};
std::atomic<int> card{0}, waits{1}, mig{0}, ecc{0}, throttle{0}, xid{0}, algorithms{1}, fast{-1};
std::atomic<int64_t> nccl_stops{0};
std::atomic<int64_t> left{-1}, launched{0}; // launches until the device is lost, -1 for never
std::atomic<int64_t> reads{0}, allocations{0}; // copies to the host, and blocks of memory of both kinds, that were asked for
std::atomic<int> raises{1}; // whether a kernel's launches may be given more shared memory than all have
std::atomic<int> dry{0}; // kernels are counted and not run, and memory is zeros
std::atomic<uint64_t> size_of_memory{(uint64_t)1 << 30};
std::string last_error;

// Two ranges of addresses: what the host sees, and where the bytes are.
enum : uint64_t { kRange = (uint64_t)64 << 30, kGap = 64 << 10 };
struct Memory {
  std::mutex m;
  char *seen, *real;
  uint64_t next = 0;
  std::map<Address, size_t> blocks;
  std::map<Address, int> owner;
  uint64_t used[16] = {};

  Memory() {
    seen = (char*)mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    real = (char*)mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (seen == MAP_FAILED || real == MAP_FAILED) abort();
  }
  bool mine(uint64_t a) { return a - (uint64_t)seen < kRange; }
  char* at(Address a) { return real + (a - (uint64_t)seen); }
};
Memory& memory() {
  static Memory* m = new Memory; // threads outlive main
  return *m;
}

struct Event {
  std::mutex m;
  std::condition_variable c;
  uint64_t recorded = 0, done = 0;
  Result error = 0; // of the stream when it came by
  std::chrono::steady_clock::time_point at;
  void reach(uint64_t n, Result e) {
    std::lock_guard<std::mutex> l(m);
    done = n;
    at = std::chrono::steady_clock::now();
    if (e) error = e;
    c.notify_all();
  }
  Result wait(uint64_t n) {
    std::unique_lock<std::mutex> l(m);
    c.wait(l, [&] { return done >= n; });
    return error;
  }
  uint64_t last() {
    std::lock_guard<std::mutex> l(m);
    return recorded;
  }
};
typedef std::shared_ptr<Event> EventRef;

struct Stream {
  std::mutex m;
  std::condition_variable more, idle;
  std::deque<std::function<Result(Result)>> queue; // each is told of the first error
  bool busy = false, ends = false;
  Result error = 0;
  unsigned seed = 1;
  std::thread thread;

  Stream() : thread([this] { run(); }) {}
  void run() {
    for (;;) {
      std::function<Result(Result)> f;
      {
        std::unique_lock<std::mutex> l(m);
        busy = false;
        idle.notify_all();
        more.wait(l, [this] { return ends || !queue.empty(); });
        if (queue.empty()) return;
        f = std::move(queue.front());
        queue.pop_front();
        busy = true;
      }
      if (int most = jitter) usleep(rand_r(&seed) % most);
      Result e = f(error);
      std::lock_guard<std::mutex> l(m);
      if (e && !error) error = e;
    }
  }
  // As of the driver, an error stays: what comes later is refused or not done.
  Result push(std::function<Result()> f) {
    std::lock_guard<std::mutex> l(m);
    if (error) return error;
    queue.push_back([f](Result e) { return e ? e : f(); });
    more.notify_one();
    return 0;
  }
  Result always(std::function<void(Result)> f) {
    std::lock_guard<std::mutex> l(m);
    queue.push_back([f](Result e) { f(e); return e; });
    more.notify_one();
    return error;
  }
  Result sync() {
    std::unique_lock<std::mutex> l(m);
    idle.wait(l, [this] { return queue.empty() && !busy; });
    return error;
  }
};

// What a device has: capability, multiprocessors, shared memory that a block may have and that a multiprocessor has, and its threads. The
// first is a small one of Hopper's kind; then A100, and RTX 4090, which stands for all with 99 KB.
struct Card {
  int major, minor, processors;
  unsigned shared, whole, threads;
};
const Card cards[] = {{9, 0, 4, 232448, 233472, 2048}, {8, 0, 108, 166912, 167936, 2048}, {8, 9, 128, 101376, 102400, 1536}};
enum : unsigned { kShared = 48 << 10, kReserved = 1 << 10, kRegisters = 64 << 10, kBlocks = 24 };

// The kernels of the image, with the shared memory and the registers a thread that their code has, and how often each was launched.
struct Kernel {
  const char* name;
  unsigned shared, registers;
};
const Kernel kernels[] = {
#include "kernels.inc"
};
enum { kKernels = sizeof kernels / sizeof *kernels };
std::atomic<int64_t> launches_of[kKernels];

struct Function {
  lf_kernel f;
  size_t size;
  int at; // among the kernels
  unsigned most; // of shared memory that a launch may ask for beside the kernel's own
};

// How many blocks of a launch a multiprocessor has room for; 0 for none. Registers are given to warps, in eights a thread.
unsigned resident(const Kernel& k, unsigned threads, unsigned shared) {
  const Card& c = cards[card];
  unsigned by_shared = c.whole / (k.shared + shared + kReserved), by_threads = c.threads / threads;
  unsigned by_registers = kRegisters / ((k.registers + 7) / 8 * 8 * threads), n = kBlocks;
  for (unsigned m : {by_shared, by_threads, by_registers}) n = m < n ? m : n;
  return n;
}

thread_local int current = -1; // the device whose context this thread has
std::atomic<int64_t> peers{0}; // a bit for each way from one device to another, of the first eight

} // namespace

#define API extern "C" Result
#define NEED_CONTEXT \
  if (current < 0) return kBadContext

// What the environment plants in one process of several: the file that LFACTOR_EMULATE_LOSE names is removed by the first process with
// LFACTOR_PROC that has launched 300 kernels, and its device is lost.
void plant() {
  const char* file = getenv("LFACTOR_EMULATE_LOSE");
  if (file && getenv("LFACTOR_PROC") && launched == 300 && unlink(file) == 0) left = 0;
}

API cuInit(unsigned) { return devices > 0 ? kSuccess : kNoDevice; }
API cuDriverGetVersion(int* v) { *v = version; return 0; }
API cuDeviceGetCount(int* n) { *n = devices; return 0; }
API cuDeviceGet(int* d, int i) { *d = i; return i >= 0 && i < devices ? kSuccess : kBadDevice; }
API cuDeviceGetName(char* s, int n, int) { snprintf(s, n, mig ? "emulated device MIG 1g.10gb" : "emulated device"); return 0; }
API cuDeviceGetUuid_v2(unsigned char* id, int d) {
  for (int i = 0; i < 16; i++) id[i] = (unsigned char)(i < 15 ? 0xe0 + i : d);
  return 0;
}
API cuDeviceGetPCIBusId(char* s, int n, int d) { snprintf(s, n, "0000:%02X:00.0", d + 1); return 0; }
API cuDeviceGetAttribute(int* v, int what, int) {
  const Card& c = cards[card];
  *v = what == 75 ? c.major : what == 76 ? c.minor : what == 16 ? c.processors : what == 97 ? (int)c.shared : 0;
  return 0;
}
API cuDeviceTotalMem_v2(size_t* n, int) { *n = size_of_memory; return 0; }
API cuDevicePrimaryCtxRetain(void** c, int d) { *c = (void*)(intptr_t)(d + 1); return d < devices ? kSuccess : kBadDevice; }
API cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API cuCtxSetCurrent(void* c) { current = (int)(intptr_t)c - 1; return 0; }
// Devices read and write each other's memory, but for the last of three and more, which has no way to the others.
API cuDeviceCanAccessPeer(int* can, int a, int b) { *can = a != b && (devices < 3 || (a < devices - 1 && b < devices - 1)); return 0; }
API cuCtxEnablePeerAccess(void* c, unsigned flags) {
  NEED_CONTEXT;
  int64_t bit = 1ll << (current * 8 + (int)(intptr_t)c - 1);
  if (flags) return kInvalid;
  return peers.fetch_or(bit) & bit ? 704 : kSuccess; // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
}
API cuMemGetInfo_v2(size_t* free, size_t* total) {
  NEED_CONTEXT;
  std::lock_guard<std::mutex> l(memory().m);
  *total = size_of_memory;
  *free = *total - memory().used[current % 16];
  return 0;
}
API cuMemAlloc_v2(Address* p, size_t n) {
  NEED_CONTEXT;
  Memory& m = memory();
  std::lock_guard<std::mutex> l(m.m);
  size_t whole = (n + 4095) & ~(size_t)4095;
  if (n == 0) return kInvalid;
  if (m.used[current % 16] + whole > size_of_memory || m.next + whole + kGap > kRange) return kNoMemory;
  char* real = m.real + m.next;
  if (mprotect(real, whole, PROT_READ | PROT_WRITE)) return kNoMemory;
  memset(real, dry ? 0 : 0xff, whole);
  allocations++;
  *p = (Address)m.seen + m.next;
  m.next += whole + kGap; // addresses are not given out again
  m.blocks[*p] = whole;
  m.owner[*p] = current % 16;
  m.used[current % 16] += whole;
  return 0;
}
API cuMemFree_v2(Address p) {
  NEED_CONTEXT;
  Memory& m = memory();
  std::lock_guard<std::mutex> l(m.m);
  auto i = m.blocks.find(p);
  if (i == m.blocks.end()) return kInvalid;
  mmap(m.at(p), i->second, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  m.used[m.owner[p]] -= i->second;
  m.blocks.erase(i);
  return 0;
}
API cuMemHostAlloc(void** p, size_t n, unsigned) {
  NEED_CONTEXT;
  *p = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);
  if (!*p) return kNoMemory;
  memset(*p, 0xff, n);
  allocations++;
  return 0;
}
API cuMemFreeHost(void* p) { free(p); return 0; }
API cuStreamCreate(void** s, unsigned) { NEED_CONTEXT; *s = new Stream; return 0; }
API cuStreamSynchronize(void* s) { return ((Stream*)s)->sync(); }
API cuStreamDestroy_v2(void* s_) {
  Stream* s = (Stream*)s_;
  s->sync();
  {
    std::lock_guard<std::mutex> l(s->m);
    s->ends = true;
    s->more.notify_one();
  }
  s->thread.join();
  delete s;
  return 0;
}
API cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, void* s) {
  return ((Stream*)s)->push([=] { memcpy(memory().at(to), from, n); return 0; });
}
API cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, void* s) {
  reads++;
  return ((Stream*)s)->push([=] { memcpy(to, memory().at(from), n); return 0; });
}
API cuMemcpyAsync(Address to, Address from, size_t n, void* s) {
  return ((Stream*)s)->push([=] { memmove(memory().at(to), memory().at(from), n); return 0; });
}
API cuMemsetD8Async(Address to, unsigned char v, size_t n, void* s) {
  return ((Stream*)s)->push([=] { memset(memory().at(to), v, n); return 0; });
}
API cuEventCreate(void** e, unsigned) { NEED_CONTEXT; *e = new EventRef(std::make_shared<Event>()); return 0; }
API cuEventDestroy_v2(void* e) { delete (EventRef*)e; return 0; }
API cuEventRecord(void* e_, void* s) {
  EventRef e = *(EventRef*)e_;
  uint64_t n;
  {
    std::lock_guard<std::mutex> l(e->m);
    n = ++e->recorded;
  }
  return ((Stream*)s)->always([=](Result error) { e->reach(n, error); });
}
API cuEventQuery(void* e_) {
  Event* e = ((EventRef*)e_)->get();
  std::lock_guard<std::mutex> l(e->m);
  return e->done >= e->recorded ? kSuccess : kNotReady;
}
API cuEventElapsedTime_v2(float* ms, void* a_, void* b_) {
  Event *a = ((EventRef*)a_)->get(), *b = ((EventRef*)b_)->get();
  std::scoped_lock l(a->m, b->m);
  if (!a->recorded || !b->recorded) return 1;
  if (a->done < a->recorded || b->done < b->recorded) return kNotReady;
  *ms = std::chrono::duration<float, std::milli>(b->at - a->at).count();
  return 0;
}
API cuEventSynchronize(void* e_) {
  EventRef e = *(EventRef*)e_;
  return e->wait(e->last());
}
API cuStreamWaitEvent(void* s, void* e_, unsigned) {
  EventRef e = *(EventRef*)e_;
  uint64_t n = e->last();
  if (!waits) return 0;
  return ((Stream*)s)->push([=] { e->wait(n); return 0; });
}
API cuModuleLoadData(void** m, const void*) { // the kernels lie in this library, whatever the image
  NEED_CONTEXT;
  Dl_info info;
  if (!loadable) return 222; // the image's PTX is newer than the driver
  if (!dladdr((void*)&order, &info)) return kNotFound;
  *m = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return *m ? kSuccess : kNotFound;
}
API cuModuleGetFunction(void** f, void* m, const char* name) {
  std::string s = name;
  void *k = dlsym(m, ("lf_kernel_" + s).c_str()), *n = dlsym(m, ("lf_size_" + s).c_str());
  int at = 0;
  while (at < kKernels && s != kernels[at].name) at++;
  if (!k || !n || at == kKernels) return kNotFound;
  *f = new Function{(lf_kernel)k, ((size_t(*)())n)(), at, kShared - kernels[at].shared}; // as long as the module, which is never unloaded
  return 0;
}
API cuFuncGetParamInfo(void* f, size_t i, size_t* at, size_t* size) {
  *at = 0;
  *size = ((Function*)f)->size;
  return i == 0 ? kSuccess : kInvalid;
}
API cuFuncGetAttribute(int* v, int what, void* f) {
  *v = (int)kernels[((Function*)f)->at].shared;
  return what == 1 ? kSuccess : kInvalid;
}
API cuFuncSetAttribute(void* f_, int what, int v) {
  Function* f = (Function*)f_;
  if (what != 8 || v < 0 || kernels[f->at].shared + v > cards[card].shared) return kInvalid;
  if (raises) f->most = (unsigned)v;
  return kSuccess;
}
API cuLaunchKernel(void* f_, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* s,
                   void** params, void**) {
  NEED_CONTEXT;
  if (!bx || bx > 1024 || by != 1 || bz != 1 || !gx || !gy || !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535) return kInvalid;
  Function f = *(Function*)f_;
  const Kernel& kernel = kernels[f.at];
  Result refused = shared > f.most ? kInvalid : resident(kernel, bx, shared) == 0 ? kNoRoom : kSuccess;
  if (refused) {
    fprintf(stderr, "emulated driver: no room for %s with %u threads, %u registers each, and %u+%u bytes of shared memory\n", kernel.name, bx,
            kernel.registers, kernel.shared, shared);
    return refused;
  }
  launches_of[f.at]++;
  auto args = std::make_shared<std::vector<uint64_t>>(f.size / 8);
  memcpy(args->data(), params[0], f.size);
  for (uint64_t& w : *args)
    if (memory().mine(w)) w = (uint64_t)memory().at(w);
  launched++;
  plant();
  return ((Stream*)s)->push([=]() -> Result {
    if (left >= 0 && left-- == 0) {
      left = 0;
      last_error = "the emulated device is lost";
      return kFailed;
    }
    if (dry) return 0;
    std::string wrong = lf_run(f.f, args->data(), {gx, gy, gz}, bx, shared, order, skip);
    if (wrong.empty()) return 0;
    last_error = wrong;
    fprintf(stderr, "emulated kernel: %s\n", wrong.c_str());
    return kFailed;
  });
}
API cuGetErrorName(int e, const char** s) {
  static const std::map<int, const char*> names = {{kInvalid, "CUDA_ERROR_INVALID_VALUE"}, {kNoMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE"}, {kBadDevice, "CUDA_ERROR_INVALID_DEVICE"}, {kBadContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {kNotFound, "CUDA_ERROR_NOT_FOUND"}, {kNoRoom, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {kFailed, "CUDA_ERROR_LAUNCH_FAILED"}};
  auto i = names.find(e);
  *s = i == names.end() ? "an error without a name" : i->second;
  return 0;
}

// What tests set: the order of fibers, the longest delay of an operation in microseconds, the number of devices, bytes of each, launches
// until the device is lost, whether kernels are counted and not run (dry), whether images load, the driver's version, and which barrier of a block is left out.
extern "C" void lf_emulate(const char* what, int64_t v) {
  std::string s = what;
  if (s == "order") order = (int)v;
  else if (s == "jitter") jitter = (int)v;
  else if (s == "dry") dry = (int)v;
  else if (s == "raises") raises = (int)v;
  else if (s == "card") card = (int)v; // its number among cards; devices that are open keep what they were told
  else if (s == "devices") devices = (int)v;
  else if (s == "memory") size_of_memory = (uint64_t)v;
  else if (s == "lost after") left = v;
  else if (s == "loadable") loadable = (int)v;
  else if (s == "version") version = (int)v;
  else if (s == "skip barrier") skip = (int)v;
  else if (s == "algorithm") algorithm = (int)v; // that the stand-ins of libraries choose
  else if (s == "algorithms") algorithms = (int)v; // how many cublasLt's stand-in proposes at most
  else if (s == "fast") fast = (int)v; // the one of them that is; -1 for all
  else if (s == "cudnn") cudnn = (int)v; // its version
  else if (s == "no attention") no_attention = (int)v;
  else if (s == "waits") waits = (int)v; // whether streams wait for events at all
  else if (s == "mig") mig = (int)v; // devices are slices
  else if (s == "ecc") ecc = (int)v; // uncorrected errors so far
  else if (s == "throttle") throttle = (int)v; // why clocks are low, as NVML's bits
  else if (s == "xid") xid = (int)v; // an event of this number comes up
  else if (s == "nccl") nccl = (int)v;
  else if (s == "nccl stops") nccl_stops = v; // when so many bytes were sent in all, sends do not end any more
  else abort();
}
char* lf_bytes_at(uint64_t a) { return memory().at(a); }
int lf_push(void* s, std::function<int()> f) { return ((Stream*)s)->push(f); }
int lf_device() { return current; }
int64_t lf_setting(const char* what) {
  std::string s = what;
  return s == "algorithm" ? algorithm.load() : s == "cudnn" ? cudnn.load() : s == "no attention" ? no_attention.load() : s == "nccl" ? nccl.load()
    : s == "nccl stops" ? nccl_stops.load() : s == "mig" ? mig.load() : s == "ecc" ? ecc.load() : s == "throttle" ? throttle.load()
    : s == "algorithms" ? algorithms.load() : s == "fast" ? fast.load() : s == "xid" ? xid.exchange(0) : 0;
}

extern "C" int64_t lf_emulated_blocks() {
  std::lock_guard<std::mutex> l(memory().m);
  return (int64_t)memory().blocks.size();
}
extern "C" int64_t lf_emulated_peers() { return __builtin_popcountll(peers); }
extern "C" int64_t lf_emulated_launches() { return launched; }
// The name of the i-th kernel of the image, none behind the last, and how often it was launched.
extern "C" const char* lf_emulated_kernel(int i, int64_t* n) {
  if (i >= kKernels) return nullptr;
  *n = launches_of[i];
  return kernels[i].name;
}
extern "C" int64_t lf_emulated_reads() { return reads; }
extern "C" int64_t lf_emulated_allocations() { return allocations; }
