/* One GPU that always answers the same, as libnvidia-ml.so.1; layouts as in NVIDIA's nvml.h. For benchmarks only. */
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, ARGUMENT_VERSION_MISMATCH = 25 };
static int device;

int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) { return (void)result, "scripted error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **out) {
    if (index) return INVALID_ARGUMENT;
    return *out = &device, SUCCESS;
}
int nvmlDeviceGetUUID(int *gpu, char *out, unsigned length) {
    return (void)gpu, strncpy(out, "GPU-00000000-0000-0000-0000-000000000001", length), SUCCESS;
}
int nvmlDeviceGetName(int *gpu, char *out, unsigned length) {
    return (void)gpu, strncpy(out, "Fake GPU", length), SUCCESS;
}
int nvmlDeviceGetMigMode(int *gpu, unsigned *current, unsigned *pending) {
    return (void)gpu, (void)current, (void)pending, NOT_SUPPORTED;
}

typedef struct { unsigned gpu, memory; } utilization_t;
int nvmlDeviceGetUtilizationRates(int *gpu, utilization_t *out) {
    return (void)gpu, *out = (utilization_t){83, 41}, SUCCESS;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
int nvmlDeviceGetMemoryInfo_v2(int *gpu, memory_v2_t *out) {
    if (out->version != (sizeof(memory_v2_t) | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    out->total = 80000000000, out->reserved = 500000000, out->used = 20000000000, out->free = 59500000000;
    return (void)gpu, SUCCESS;
}
int nvmlDeviceGetPowerUsage(int *gpu, unsigned *out) { return (void)gpu, *out = 412500, SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(int *gpu, unsigned *out) { return (void)gpu, *out = 700000, SUCCESS; }
int nvmlDeviceGetTemperature(int *gpu, unsigned sensor, unsigned *out) {
    return (void)gpu, (void)sensor, *out = 61, SUCCESS;
}
int nvmlDeviceGetClockInfo(int *gpu, unsigned type, unsigned *out) {
    return (void)gpu, *out = type == 1 ? 1755 : 2619, SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(int *gpu, unsigned type, unsigned *out) {
    return (void)gpu, (void)type, *out = 1980, SUCCESS;
}
