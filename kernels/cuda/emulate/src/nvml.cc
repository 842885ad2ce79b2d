// The part of NVIDIA's management library that lfactor uses, for the emulated devices. A handle is a device's number and 1; a slice's
// handle lies 16 further on and tells neither clocks nor errors, as the library's do not.
#include "driver.h"
#include <cstring>
#include <strings.h>

namespace {
enum { kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kTimeout = 10 };
struct EventData { uint64_t device; uint64_t type, data; unsigned gpu, compute; };
} // namespace

#define API extern "C" int

API nvmlInit_v2() { return kSuccess; }
API nvmlDeviceGetHandleByUUID(const char* id, uint64_t* h) {
  bool slice = lf_setting("mig") != 0;
  if (strncasecmp(id, slice ? "MIG-" : "GPU-", 4) || strncasecmp(id + 4, "e0e1e2e3-e4e5-e6e7-e8e9-eaebecedee0", 35)) return kNotFound;
  *h = (uint64_t)(id[39] - '0') + 1 + (slice ? 16 : 0);
  return kSuccess;
}
API nvmlDeviceIsMigDeviceHandle(uint64_t h, unsigned* is) { *is = h > 16; return kSuccess; }
API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(uint64_t h, uint64_t* whole) {
  *whole = h - 16;
  return h > 16 ? kSuccess : kInvalid;
}
API nvmlDeviceGetTotalEccErrors(uint64_t h, int kind, int counter, uint64_t* n) {
  if (h > 16) return kNotSupported;
  *n = kind == 1 ? (uint64_t)lf_setting("ecc") : 3;
  return counter == 0 ? kSuccess : kInvalid;
}
API nvmlDeviceGetClockInfo(uint64_t h, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1500 : 2600;
  return h > 16 ? kNotSupported : kSuccess;
}
API nvmlDeviceGetMaxClockInfo(uint64_t h, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1980 : 2600;
  return h > 16 ? kNotSupported : kSuccess;
}
API nvmlDeviceGetCurrentClocksEventReasons(uint64_t h, uint64_t* bits) {
  *bits = (uint64_t)lf_setting("throttle");
  return h > 16 ? kNotSupported : kSuccess;
}
API nvmlEventSetCreate(uint64_t** s) { *s = new uint64_t(0); return kSuccess; }
API nvmlDeviceRegisterEvents(uint64_t h, uint64_t types, uint64_t* s) {
  if (h > 16 || types != 8) return kNotSupported;
  *s = h;
  return kSuccess;
}
API nvmlEventSetWait_v2(uint64_t* s, EventData* e, unsigned ms) {
  if (ms) return kInvalid; // nobody is to wait
  int64_t xid = lf_setting("xid");
  if (!xid) return kTimeout;
  *e = {*s, 8, (uint64_t)xid, 0xffffffff, 0xffffffff};
  return kSuccess;
}
