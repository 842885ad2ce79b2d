// What stand-ins of other libraries need of the driver's.
#pragma once
#include <cstdint>
#include <functional>

char* lf_bytes_at(uint64_t device_address);
int lf_push(void* stream, std::function<int()> work);
int lf_device(); // of the calling thread's context
int64_t lf_setting(const char* what);
