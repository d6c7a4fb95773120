/* Answers as libnvidia-ml.so.1 from a scenario that the builder wrote into scenario.h; layouts as in NVIDIA's nvml.h.
   A function that the scenario's driver does not have is renamed on the compiler's command line. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25
};

/* One per function that a scenario can make fail; the order is that of CALLS in builder.py. */
enum call {
    UTILIZATION, MEMORY, POWER, POWER_LIMIT, TEMPERATURE, FAN, CLOCK, MAX_CLOCK, CLOCK_EVENTS, PSTATE, PCIE_LINK,
    PCIE_MAX, PCIE_THROUGHPUT, ENERGY, COMPUTE, GRAPHICS, PROCESS_NAME, ECC, ROWS, PAGES, NVLINK, NVLINK_ERRORS, GPM, GPM_METRICS,
    REFRESH, MODES, EVENTS, CALLS
};

typedef struct { unsigned pid; unsigned long long memory; int graphics; } listed_t;

typedef struct device {
    const char *uuid, *name;
    unsigned utilization, memory_utilization;
    unsigned long long used, reserved, total;
    unsigned power_mw, power_limit_mw;
    int temperature;
    int fan; /* percent; -1: it has none */
    unsigned sm_clock, memory_clock, sm_clock_max;
    unsigned long long clock_events;
    unsigned pstate, pcie_generation, pcie_width, links;
    int gpm; /* whether the GPU has the counters */
    unsigned sm_active; /* percent, by the counters */
    listed_t processes[4];
    unsigned process_count;
    int fails[CALLS]; /* error code of each call, 0 for none */
    int open_fails;
    int mig_mode;
    int mig_count;
    struct device *mig;
    unsigned long long energy_mj;
    int ecc_rises; /* one corrected error between two looks */
    unsigned ecc_looks;
    int uncorrected_rises; /* one uncorrected error between two looks */
    unsigned uncorrected_looks;
    int links_recover; /* each link is brought up again between two looks */
    unsigned link_looks;
    unsigned xids[2]; /* critical errors since the scenario began, 0 for none */
    unsigned events;  /* those that were asked for */
} device_t;

#include "scenario.h" /* devices[], DEVICES, INIT_FAILS, FAIL_AFTER, FAIL_WITH, HANG_AFTER */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users = 0;
static int looks = 0;
static long rounds = 0;
static long calls = 0;
static int event_sets = 0;
static volatile int hanging = 0;

/* Not NVML's: let a test wait until a call hangs, see what was left open, and count calls. */
int fake_is_hanging(void) { return hanging; }
int fake_left_open(void) { return users + looks + event_sets; }
long fake_calls(void) { return calls; }

static nvmlReturn_t reading(device_t *device, enum call call) {
    pthread_mutex_lock(&lock);
    calls++;
    /* The sampler begins each of its samples by asking the first GPU for its utilization. */
    if (call == UTILIZATION && device == &devices[0]) rounds++;
    long round = rounds;
    int open = users > 0;
    pthread_mutex_unlock(&lock);
    if (!open) return UNINITIALIZED;
    if (HANG_AFTER >= 0 && round > HANG_AFTER)
        for (hanging = 1;;) sleep(3600);
    if (FAIL_AFTER >= 0 && round > FAIL_AFTER) return FAIL_WITH;
    return device->fails[call];
}

#define ANSWER(call, statement)                    \
    nvmlReturn_t result = reading(device, call);   \
    if (result == SUCCESS) { statement; }          \
    return result

static nvmlReturn_t copy(const char *text, char *out, unsigned length) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (INIT_FAILS) return INIT_FAILS;
    if (INIT_HANGS)
        for (hanging = 1;;) sleep(3600);
    users++;
    return SUCCESS;
}
nvmlReturn_t nvmlShutdown(void) {
    if (users == 0) return UNINITIALIZED;
    users--;
    return SUCCESS;
}
const char *nvmlErrorString(nvmlReturn_t result) {
    return result == 19 ? "In use by another client" : "scripted error";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) { return copy("999.01", out, length); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) { return *out = 12080, SUCCESS; }
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length) {
    (void)pid;
    return DEVICES && devices[0].fails[PROCESS_NAME] ? devices[0].fails[PROCESS_NAME]
                                                     : copy("/opt/fake/bin/train", out, length);
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

nvmlReturn_t nvmlDeviceGetMigMode(device_t *device, unsigned *current, unsigned *pending) {
    if (device->mig_mode < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)device->mig_mode;
    return SUCCESS;
}
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
nvmlReturn_t nvmlDeviceGetGpuInstanceId(device_t *device, unsigned *out) { return (void)device, *out = 3, SUCCESS; }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(device_t *device, unsigned *out) { return (void)device, *out = 0, SUCCESS; }

/* What does not change ------------------------------------------------------------------------------------------- */

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_t;
nvmlReturn_t nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *out) {
    memset(out, 0, sizeof *out);
    strcpy(out->bus_id, "00000000:01:00.0");
    for (unsigned i = 0; i < DEVICES; i++) /* each GPU its own */
        if (device == &devices[i]) out->bus_id[10] += (char)i;
    return device->fails[MODES];
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor) {
    *major = device->gpm ? 9 : 8, *minor = device->gpm ? 0 : 6;
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(device_t *device, unsigned *out) {
    return *out = 5, device->fails[PCIE_MAX];
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(device_t *device, unsigned *out) {
    return *out = 16, device->fails[PCIE_MAX];
}
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(device_t *device, unsigned *out) {
    return *out = 700000, device->fails[POWER_LIMIT];
}
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(device_t *device, unsigned *least, unsigned *most) {
    return *least = 200000, *most = 700000, device->fails[POWER_LIMIT];
}
nvmlReturn_t nvmlDeviceGetEccMode(device_t *device, unsigned *current, unsigned *pending) {
    return *current = *pending = 1, device->fails[ECC];
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(device_t *device, unsigned *out) { return *out = 1, device->fails[MODES]; }
nvmlReturn_t nvmlDeviceGetComputeMode(device_t *device, unsigned *out) { return *out = 0, device->fails[MODES]; }
nvmlReturn_t nvmlDeviceGetNvLinkState(device_t *device, unsigned link, unsigned *out) {
    if (device->fails[NVLINK]) return device->fails[NVLINK];
    if (link >= 6) return INVALID_ARGUMENT;
    return *out = link < device->links, SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(device_t *device, unsigned link, unsigned *out) {
    return (void)link, *out = 4, device->fails[NVLINK];
}
typedef struct { unsigned long long time; union { double real; unsigned u; unsigned long long ull; } value; } sample_t;
nvmlReturn_t nvmlDeviceGetSamples(device_t *device, unsigned type, unsigned long long since, unsigned *value_type,
                                  unsigned *count, sample_t *out) {
    (void)since;
    if (device->fails[REFRESH]) return device->fails[REFRESH];
    if (type != 1) return INVALID_ARGUMENT;
    *value_type = 1, *count = 5;
    for (unsigned i = 0; out && i < 5; i++) out[i] = (sample_t){.time = 1000000 + 200000ull * i, .value.u = 83};
    return SUCCESS;
}

/* What is sampled ------------------------------------------------------------------------------------------------- */

typedef struct { unsigned gpu, memory; } utilization_t;
nvmlReturn_t nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *out) {
    ANSWER(UTILIZATION, (*out = (utilization_t){device->utilization, device->memory_utilization}));
}

typedef struct { unsigned long long total, free, used; } memory_t;
nvmlReturn_t nvmlDeviceGetMemoryInfo(device_t *device, memory_t *out) {
    unsigned long long used = device->used + device->reserved;
    ANSWER(MEMORY, (*out = (memory_t){device->total, device->total - used, used}));
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *out) {
    if (out->version != (sizeof(memory_v2_t) | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    unsigned long long left = device->total - device->used - device->reserved;
    ANSWER(MEMORY, (*out = (memory_v2_t){out->version, device->total, device->reserved, left, device->used}));
}

nvmlReturn_t nvmlDeviceGetPowerUsage(device_t *device, unsigned *out) { ANSWER(POWER, *out = device->power_mw); }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(device_t *device, unsigned *out) {
    ANSWER(POWER_LIMIT, *out = device->power_limit_mw);
}
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(device_t *device, unsigned long long *out) {
    /* Half a second of its power at each asking. */
    ANSWER(ENERGY, *out = device->energy_mj += device->power_mw / 2);
}

nvmlReturn_t nvmlDeviceGetTemperature(device_t *device, unsigned sensor, unsigned *out) {
    if (sensor != 0) return INVALID_ARGUMENT;
    ANSWER(TEMPERATURE, *out = (unsigned)device->temperature);
}
typedef struct { unsigned version; unsigned sensor; int temperature; } temperature_v1_t;
nvmlReturn_t nvmlDeviceGetTemperatureV(device_t *device, temperature_v1_t *out) {
    if (out->version != (sizeof(temperature_v1_t) | 1u << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (out->sensor != 0) return INVALID_ARGUMENT;
    ANSWER(TEMPERATURE, out->temperature = device->temperature);
}

nvmlReturn_t nvmlDeviceGetNumFans(device_t *device, unsigned *out) { ANSWER(MODES, *out = device->fan >= 0); }
nvmlReturn_t nvmlDeviceGetFanSpeed(device_t *device, unsigned *out) {
    if (device->fan < 0) return NOT_SUPPORTED;
    ANSWER(FAN, *out = (unsigned)device->fan);
}

nvmlReturn_t nvmlDeviceGetClockInfo(device_t *device, unsigned type, unsigned *out) {
    ANSWER(CLOCK, *out = type == 1 ? device->sm_clock : type == 2 ? device->memory_clock : 0);
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(device_t *device, unsigned type, unsigned *out) {
    ANSWER(MAX_CLOCK, *out = type == 1 ? device->sm_clock_max : type == 2 ? device->memory_clock : 0);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *out) {
    ANSWER(CLOCK_EVENTS, *out = device->clock_events);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(device_t *device, unsigned long long *out) {
    ANSWER(CLOCK_EVENTS, *out = device->clock_events);
}
nvmlReturn_t nvmlDeviceGetPerformanceState(device_t *device, unsigned *out) { ANSWER(PSTATE, *out = device->pstate); }
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(device_t *device, unsigned *out) {
    ANSWER(PCIE_LINK, *out = device->pcie_generation);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(device_t *device, unsigned *out) {
    ANSWER(PCIE_LINK, *out = device->pcie_width);
}
nvmlReturn_t nvmlDeviceGetPcieThroughput(device_t *device, unsigned counter, unsigned *out) {
    usleep(20000); /* as the real one: it counts for so long */
    ANSWER(PCIE_THROUGHPUT, *out = counter == 0 ? 1000 : 5000);
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_t;
static nvmlReturn_t list(device_t *device, enum call call, int graphics, unsigned *count, process_t *out) {
    nvmlReturn_t result = reading(device, call);
    if (result != SUCCESS) return result;
    unsigned found = 0, room = *count;
    for (unsigned i = 0; i < device->process_count; i++) {
        listed_t *each = &device->processes[i];
        if (each->graphics != graphics) continue;
        /* A scenario writes 0 for the process that asks. */
        if (out && found < room) out[found] = (process_t){each->pid ? each->pid : (unsigned)getpid(), each->memory, 0, 0};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, unsigned *count, process_t *out) {
    return list(device, COMPUTE, 0, count, out);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(device_t *device, unsigned *count, process_t *out) {
    return list(device, COMPUTE, 0, count, out);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *device, unsigned *count, process_t *out) {
    return list(device, GRAPHICS, 1, count, out);
}

/* Error counters -------------------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetTotalEccErrors(device_t *device, unsigned type, unsigned counter, unsigned long long *out) {
    if (counter != 0) return INVALID_ARGUMENT;
    ANSWER(ECC, *out = type == 0 ? 2 + (device->ecc_rises ? device->ecc_looks++ : 0)
                                 : (device->uncorrected_rises ? device->uncorrected_looks++ : 0));
}
nvmlReturn_t nvmlDeviceGetRemappedRows(device_t *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                       unsigned *failed) {
    ANSWER(ROWS, (*corrected = 1, *uncorrected = 0, *pending = 0, *failed = 0));
}
nvmlReturn_t nvmlDeviceGetRetiredPages(device_t *device, unsigned cause, unsigned *count, unsigned long long *out) {
    nvmlReturn_t result = reading(device, PAGES);
    if (result != SUCCESS) return result;
    unsigned room = *count, found = cause == 0 ? 2 : 0;
    *count = found;
    if (room < found) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; out && i < found; i++) out[i] = 0x1000ull * i;
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(device_t *device, unsigned link, unsigned counter, unsigned long long *out) {
    (void)link;
    ANSWER(NVLINK_ERRORS, *out = counter == 1 && device->links_recover ? device->link_looks++ : counter == 0);
}

typedef struct { device_t *device; } event_set_t;
typedef struct {
    device_t *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} event_t;
nvmlReturn_t nvmlEventSetCreate(event_set_t **out) {
    *out = calloc(1, sizeof(event_set_t));
    event_sets++;
    return SUCCESS;
}
nvmlReturn_t nvmlEventSetFree(event_set_t *set) {
    free(set);
    event_sets--;
    return SUCCESS;
}
nvmlReturn_t nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, event_set_t *set) {
    if (device->fails[EVENTS]) return device->fails[EVENTS];
    if (types != 8) return INVALID_ARGUMENT;
    set->device = device;
    return SUCCESS;
}
nvmlReturn_t nvmlEventSetWait_v2(event_set_t *set, event_t *out, unsigned timeout_ms) {
    device_t *device = set->device;
    if (!device || timeout_ms) return INVALID_ARGUMENT;
    if (rounds <= (FAIL_AFTER >= 0 ? FAIL_AFTER : 0)) return TIMEOUT;
    if (device->events >= 2 || !device->xids[device->events]) return FAIL_AFTER >= 0 ? FAIL_WITH : TIMEOUT;
    *out = (event_t){device, 8, device->xids[device->events++], ~0u, ~0u};
    return SUCCESS;
}

/* Performance counters (GPM) -------------------------------------------------------------------------------------- */

typedef struct { device_t *device; } look_t;
typedef struct {
    unsigned id;
    nvmlReturn_t result;
    double value;
    struct { char *short_name, *long_name, *unit; } info;
} metric_t;
typedef struct {
    unsigned version, count;
    look_t *older, *newer;
    metric_t metrics[64];
} metrics_t;

typedef struct { unsigned version, supported; } support_t;
nvmlReturn_t nvmlGpmQueryDeviceSupport(device_t *device, support_t *out) {
    if (out->version != 1) return ARGUMENT_VERSION_MISMATCH;
    return out->supported = (unsigned)device->gpm, SUCCESS;
}
nvmlReturn_t nvmlGpmSampleAlloc(look_t **out) {
    *out = calloc(1, sizeof(look_t));
    looks++;
    return SUCCESS;
}
nvmlReturn_t nvmlGpmSampleFree(look_t *look) {
    free(look);
    looks--;
    return SUCCESS;
}
nvmlReturn_t nvmlGpmSampleGet(device_t *device, look_t *look) { ANSWER(GPM, look->device = device); }
nvmlReturn_t nvmlGpmMigSampleGet(device_t *device, unsigned slice, look_t *look) {
    if (slice != 3) return INVALID_ARGUMENT;
    ANSWER(GPM, look->device = device);
}
nvmlReturn_t nvmlGpmMetricsGet(metrics_t *get) {
    if (get->version != 1) return ARGUMENT_VERSION_MISMATCH;
    if (!get->older->device || !get->newer->device || get->older == get->newer) return INVALID_ARGUMENT;
    device_t *device = get->newer->device;
    nvmlReturn_t result = reading(device, GPM_METRICS);
    if (result != SUCCESS) return result;
    for (unsigned i = 0; i < get->count; i++) {
        metric_t *metric = &get->metrics[i];
        metric->result = SUCCESS;
        switch (metric->id) {
            case 2: metric->value = device->sm_active; break;
            case 3: metric->value = 33; break;
            case 5: metric->value = 52; break;
            case 7: metric->value = 50; break;
            case 10: metric->value = 44; break;
            case 20: metric->value = 100; break;
            case 21: metric->value = 2000; break;
            case 60:
            case 61: metric->result = device->links ? SUCCESS : NOT_SUPPORTED, metric->value = 3000; break;
            default: metric->result = NOT_SUPPORTED;
        }
        if (metric->id < 20 && !device->utilization) metric->value = 0;
    }
    return SUCCESS;
}
