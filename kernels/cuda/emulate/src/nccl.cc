// The part of NCCL that lfactor uses: communicators of two ranks that are made and aborted without waiting, and sends and receives in
// groups. The two ends are joined by a socket, in one process or in two. As on a device, an end whose partner is lost says so when it is
// asked, and what is under way stays under way until it is aborted.
#include "driver.h"
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

enum { kSuccess = 0, kInvalid = 4, kUsage = 5, kRemote = 6, kUnderWay = 7 };
struct Id { char bytes[128]; };
struct Config { size_t size; unsigned magic, version; int blocking, cluster, fewest, most; };
std::atomic<int64_t> ids{0}, sent{0};

struct Ends { // what a communicator's stream shares with it
  std::atomic<int> state{kUnderWay}, fd{-1};
  std::atomic<bool> aborted{false};
  // Waits until the socket can be read or written; false after an abort.
  bool ready(int f, short what) {
    for (;;) {
      pollfd p = {f, what, 0};
      if (aborted) return false;
      if (poll(&p, 1, 5) > 0) return true;
    }
  }
  bool carry(char* p, size_t n, bool sends) {
    while (n > 0) {
      if (!ready(fd, sends ? POLLOUT : POLLIN)) return false;
      ssize_t k = sends ? send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, p, n, MSG_DONTWAIT);
      if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (k <= 0) {
        state = kRemote;
        while (!aborted) usleep(1000);
        return false;
      }
      p += k, n -= (size_t)k;
    }
    return true;
  }
};
struct Comm {
  std::shared_ptr<Ends> ends = std::make_shared<Ends>();
  int rank, ranks;
};
struct Piece { Comm* c; uint64_t at; size_t n; bool sends; void* stream; };
thread_local std::vector<Piece> group;
thread_local int depth = 0;

void meet(std::shared_ptr<Ends> e, Id id, int rank, int device) {
  sockaddr_un a = {};
  a.sun_family = AF_UNIX;
  memcpy(a.sun_path + 1, id.bytes, 64); // a name without a file
  socklen_t n = offsetof(sockaddr_un, sun_path) + 65;
  int f = socket(AF_UNIX, SOCK_STREAM, 0);
  if (rank == 0) {
    if (bind(f, (sockaddr*)&a, n) || listen(f, 1)) {
      e->state = kInvalid;
      close(f);
      return;
    }
    if (e->ready(f, POLLIN)) e->fd = accept(f, nullptr, nullptr);
    close(f);
  } else {
    while (!e->aborted && connect(f, (sockaddr*)&a, n)) usleep(1000);
    e->fd = f;
  }
  int other = -1;
  if (e->aborted || !e->carry((char*)&device, sizeof device, true) || !e->carry((char*)&other, sizeof other, false)) return;
  e->state = device == other ? kUsage : kSuccess; // as NCCL refuses two ranks on one device
}

} // namespace

#define API extern "C" int

API ncclGetVersion(int* v) { *v = (int)lf_setting("nccl"); return kSuccess; }
extern "C" const char* ncclGetErrorString(int e) { return e == kRemote ? "remote process exited or there was a network error" : "invalid usage"; }
extern "C" const char* ncclGetLastError(Comm*) { return "(stand-in)"; }
API ncclGetUniqueId(Id* id) {
  memset(id, 0, sizeof *id);
  snprintf(id->bytes, 64, "lfactor-emulate-%d-%p-%ld", (int)getpid(), (void*)&ids, (long)ids++);
  return kSuccess;
}
API ncclCommInitRankConfig(Comm** c, int ranks, Id id, int rank, const Config* k) {
  if (ranks < 1 || ranks > 2 || k->magic != 0xcafebeef || k->blocking != 0 || k->size < sizeof *k || rank < 0 || rank >= ranks) return kInvalid;
  *c = new Comm;
  (*c)->rank = rank, (*c)->ranks = ranks;
  if (ranks == 1) {
    (*c)->ends->state = kSuccess;
    return kSuccess;
  }
  std::thread(meet, (*c)->ends, id, rank, lf_device()).detach();
  return kUnderWay;
}
API ncclCommGetAsyncError(Comm* c, int* e) { *e = c->ends->state; return kSuccess; }
API ncclGroupStart() { depth++; return kSuccess; }
API ncclSend(uint64_t at, size_t n, int type, int peer, Comm* c, void* s) {
  if (depth != 1 || type != 0 || peer >= c->ranks || (c->ranks == 2 && peer == c->rank) || c->ends->state != kSuccess) return kUsage;
  group.push_back({c, at, n, true, s});
  return kSuccess;
}
API ncclRecv(uint64_t at, size_t n, int type, int peer, Comm* c, void* s) {
  if (depth != 1 || type != 0 || peer >= c->ranks || (c->ranks == 2 && peer == c->rank) || c->ends->state != kSuccess) return kUsage;
  group.push_back({c, at, n, false, s});
  return kSuccess;
}
API ncclGroupEnd() {
  if (--depth != 0) return kUsage;
  std::vector<Piece> all;
  all.swap(group);
  if (all.empty()) return kSuccess;
  if (all[0].c->ranks == 1) // what is sent is received in the same group
    return lf_push(all[0].stream, [=] {
      for (const Piece& to : all)
        for (const Piece& from : all)
          if (from.sends && !to.sends) memmove(lf_bytes_at(to.at), lf_bytes_at(from.at), to.n);
      return 0;
    }) ? kInvalid : kSuccess;
  std::shared_ptr<Ends> e = all[0].c->ends;
  return lf_push(all[0].stream, [=] {
    for (const Piece& p : all) {
      uint64_t size = p.n;
      if (!e->carry((char*)&size, 8, p.sends)) break;
      if (size != p.n) { // the ends are not of one mind
        e->state = kUsage;
        while (!e->aborted) usleep(1000);
        break;
      }
      if (p.sends && lf_setting("nccl stops") && sent >= lf_setting("nccl stops")) {
        while (!e->aborted) usleep(1000);
        break;
      }
      if (!e->carry(lf_bytes_at(p.at), p.n, p.sends)) break;
      if (p.sends) sent += (int64_t)p.n;
    }
    return 0;
  }) ? kInvalid : kSuccess;
}
API ncclCommAbort(Comm* c) {
  c->ends->aborted = true;
  if (c->ends->fd >= 0) shutdown(c->ends->fd, SHUT_RDWR);
  std::thread([e = c->ends] { // whoever polls it has seen the abort by then
    usleep(20000);
    if (e->fd >= 0) close(e->fd);
  }).detach();
  delete c;
  return kSuccess;
}
extern "C" int64_t lf_emulated_sent() { return sent; }
