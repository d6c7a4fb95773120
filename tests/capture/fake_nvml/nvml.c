/* Answers as libnvidia-ml.so.1 from a scenario that the builder wrote into scenario.h; layouts as in NVIDIA's nvml.h. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

/* One per function that a scenario can make fail; the order is that of CALLS in builder.py. */
enum call { UTILIZATION, MEMORY, POWER, POWER_LIMIT, TEMPERATURE, CLOCK, MAX_CLOCK, CALLS };

typedef struct device {
    const char *uuid, *name;
    unsigned utilization, memory_utilization;
    unsigned long long used, reserved, total;
    unsigned power_mw, power_limit_mw;
    int temperature;
    unsigned sm_clock, memory_clock, sm_clock_max;
    int fails[CALLS]; /* error code of each call, 0 for none */
    int open_fails;
    int mig_mode;
    int mig_count;
    struct device *mig;
} device_t;

#include "scenario.h" /* devices[], DEVICES, INIT_FAILS, FAIL_AFTER, FAIL_WITH, HANG_AFTER */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users = 0;
static long readings = 0;
static volatile int hanging = 0;

/* Not NVML's: lets a test wait until a call hangs. */
int fake_is_hanging(void) { return hanging; }

static nvmlReturn_t reading(const device_t *device, enum call call) {
    pthread_mutex_lock(&lock);
    long count = ++readings;
    int open = users > 0;
    pthread_mutex_unlock(&lock);
    if (!open) return UNINITIALIZED;
    if (HANG_AFTER >= 0 && count > HANG_AFTER)
        for (hanging = 1;;) sleep(3600);
    if (FAIL_AFTER >= 0 && count > FAIL_AFTER) return FAIL_WITH;
    return device->fails[call];
}

static nvmlReturn_t copy(const char *text, char *out, unsigned length) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (INIT_FAILS) return INIT_FAILS;
    users++;
    return SUCCESS;
}
nvmlReturn_t nvmlShutdown(void) {
    if (users == 0) return UNINITIALIZED;
    users--;
    return SUCCESS;
}
const char *nvmlErrorString(nvmlReturn_t result) {
    (void)result;
    return "scripted error";
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (users == 0) return UNINITIALIZED;
    *count = DEVICES;
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    *device = &devices[index];
    return devices[index].open_fails;
}
nvmlReturn_t nvmlDeviceGetUUID(device_t *device, char *out, unsigned length) { return copy(device->uuid, out, length); }
nvmlReturn_t nvmlDeviceGetName(device_t *device, char *out, unsigned length) { return copy(device->name, out, length); }

#ifndef WITHOUT_nvmlDeviceGetMigMode
nvmlReturn_t nvmlDeviceGetMigMode(device_t *device, unsigned *current, unsigned *pending) {
    if (device->mig_mode < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)device->mig_mode;
    return SUCCESS;
}
#endif
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned *count) {
    *count = device->mig_mode == 1 ? 7 : 0;
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned index, device_t **mig) {
    /* As on real boards, devices need not be at the first places. */
    if (index < 1 || (int)index > device->mig_count) return NOT_FOUND;
    *mig = &device->mig[index - 1];
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } utilization_t;
nvmlReturn_t nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *out) {
    nvmlReturn_t result = reading(device, UTILIZATION);
    if (result == SUCCESS) *out = (utilization_t){device->utilization, device->memory_utilization};
    return result;
}

typedef struct { unsigned long long total, free, used; } memory_t;
nvmlReturn_t nvmlDeviceGetMemoryInfo(device_t *device, memory_t *out) {
    nvmlReturn_t result = reading(device, MEMORY);
    unsigned long long used = device->used + device->reserved;
    if (result == SUCCESS) *out = (memory_t){device->total, device->total - used, used};
    return result;
}
#ifndef WITHOUT_nvmlDeviceGetMemoryInfo_v2
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *out) {
    if (out->version != (sizeof(memory_v2_t) | 2u << 24)) return 25; /* argument version mismatch */
    nvmlReturn_t result = reading(device, MEMORY);
    if (result != SUCCESS) return result;
    out->total = device->total;
    out->reserved = device->reserved;
    out->used = device->used;
    out->free = device->total - device->used - device->reserved;
    return SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetPowerUsage(device_t *device, unsigned *out) {
    nvmlReturn_t result = reading(device, POWER);
    if (result == SUCCESS) *out = device->power_mw;
    return result;
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(device_t *device, unsigned *out) {
    nvmlReturn_t result = reading(device, POWER_LIMIT);
    if (result == SUCCESS) *out = device->power_limit_mw;
    return result;
}

nvmlReturn_t nvmlDeviceGetTemperature(device_t *device, unsigned sensor, unsigned *out) {
    if (sensor != 0) return INVALID_ARGUMENT;
    nvmlReturn_t result = reading(device, TEMPERATURE);
    if (result == SUCCESS) *out = (unsigned)device->temperature;
    return result;
}
#ifndef WITHOUT_nvmlDeviceGetTemperatureV
typedef struct { unsigned version; unsigned sensor; int temperature; } temperature_v1_t;
nvmlReturn_t nvmlDeviceGetTemperatureV(device_t *device, temperature_v1_t *out) {
    if (out->version != (sizeof(temperature_v1_t) | 1u << 24)) return 25;
    if (out->sensor != 0) return INVALID_ARGUMENT;
    nvmlReturn_t result = reading(device, TEMPERATURE);
    if (result == SUCCESS) out->temperature = device->temperature;
    return result;
}
#endif

nvmlReturn_t nvmlDeviceGetClockInfo(device_t *device, unsigned type, unsigned *out) {
    nvmlReturn_t result = reading(device, CLOCK);
    if (result == SUCCESS) *out = type == 1 ? device->sm_clock : type == 2 ? device->memory_clock : 0;
    return result;
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(device_t *device, unsigned type, unsigned *out) {
    nvmlReturn_t result = reading(device, MAX_CLOCK);
    if (result == SUCCESS) *out = type == 1 ? device->sm_clock_max : 0;
    return result;
}
