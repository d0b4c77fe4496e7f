// A stand-in for libnvidia-ml that answers from the folder of simulated GPUs
// named by HOTSEAT_SIMGPU_DIR; package fakenvml says what it honours. Devices
// are numbered as gpus.json lists them, PCI buses as it indexes them, so that
// the two orders can differ.
#define _GNU_SOURCE
#include "folder.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_MIG = 7 };
static const unsigned long long RESERVED = 512ULL << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users; // of nvmlInit less nvmlShutdown

// LISTED is the start of the functions that the driver answers from what it has noted when
// it found the device, READY that of every other function that asks a device something.
#define READY(device)                             \
	do {                                      \
		while ((device).handle && has_file((device).handle, "hang")) \
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); \
		LISTED(device);                   \
	} while (0)
#define LISTED(device)                            \
	do {                                      \
		if (!users)                       \
			return NVML_ERROR_UNINITIALIZED; \
		if (!(device).handle)             \
			return NVML_ERROR_INVALID_ARGUMENT; \
		if (has_file((device).handle, "lost")) \
			return NVML_ERROR_GPU_IS_LOST; \
		if (refused(__func__))            \
			return NVML_ERROR_NOT_SUPPORTED; \
	} while (0)

static nvmlReturn_t answer(char *out, unsigned size, const char *text)
{
	return (unsigned)snprintf(out, size, "%s", text) < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

// ---- the library ----

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	while (switched("hang"))
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	pthread_mutex_lock(&lock);
	bool ok = users > 0 || read_folder();
	users += ok;
	pthread_mutex_unlock(&lock);
	return ok ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
	pthread_mutex_lock(&lock);
	bool ok = users > 0;
	users -= ok;
	pthread_mutex_unlock(&lock);
	return ok ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	default: return "Unknown Error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	return users ? answer(version, length, "999.0-simulated") : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = board_count;
	return users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	device->handle = index < board_count ? boards[index] : NULL;
	LISTED(*device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	for (unsigned i = 0; users && i < device_count; i++) {
		if (strcmp(devices[i].uuid, uuid))
			continue;
		device->handle = &devices[i];
		READY(*device);
		return NVML_SUCCESS;
	}
	return users ? NVML_ERROR_NOT_FOUND : NVML_ERROR_UNINITIALIZED;
}

// ---- what a device is ----

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
	READY(device);
	return answer(uuid, length, device.handle->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
	READY(device);
	return answer(name, length, device.handle->product);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
	READY(device);
	for (*index = 0; *index < board_count; (*index)++)
		if (boards[*index] == device.handle)
			return NVML_SUCCESS;
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
	READY(device);
	*minor = device.handle->index;
	return device.handle->mig ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	LISTED(device);
	*pci = (nvmlPciInfo_t){.bus = device.handle->index + 1};
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
	READY(device);
	*current = *pending = device.handle->sliced ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
	READY(device);
	*count = MAX_MIG;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
	READY(device);
	for (unsigned i = 0; device.handle->sliced && i < entry_count; i++) {
		if (!part(&devices[i], device.handle) || index-- > 0)
			continue;
		mig->handle = &devices[i];
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

// ---- memory ----

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	READY(device);
	memory->total = device.handle->total + RESERVED;
	memory->used = used_bytes(device.handle) + RESERVED;
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

static nvmlReturn_t processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos)
{
	unsigned room = *count;
	*count = holders(device.handle, infos);
	for (unsigned i = 0; i < *count && has_file(device.handle, "no_process_memory"); i++)
		infos[i].usedGpuMemory = NVML_VALUE_NOT_AVAILABLE;
	return *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#ifdef OLD_DRIVER // one that lacks what came with version 2 of these structures

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos)
{
	nvmlProcessInfo_t found[MAX_HOLDERS];
	READY(device);
	nvmlReturn_t result = processes(device, count, found);
	for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
		infos[i] = (nvmlProcessInfo_v1_t){found[i].pid, found[i].usedGpuMemory};
	return result;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending)
{
	READY(device);
	*pending = has_file(device.handle, "remap_pending") ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

#else

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	READY(device);
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = device.handle->total + RESERVED;
	memory->reserved = RESERVED;
	memory->used = used_bytes(device.handle);
	memory->free = device.handle->total - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos)
{
	nvmlProcessInfo_t found[MAX_HOLDERS];
	READY(device);
	nvmlReturn_t result = processes(device, count, found);
	if (result == NVML_SUCCESS && *count)
		memcpy(infos, found, *count * sizeof *infos);
	return result;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
	unsigned *pending, unsigned *failed)
{
	READY(device);
	if (device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	*correctable = 0;
	*pending = has_file(device.handle, "remap_pending");
	*failed = has_file(device.handle, "remap_failed");
	*uncorrectable = *pending + *failed;
	return NVML_SUCCESS;
}

#endif

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
	unsigned long long *count)
{
	(void)counter;
	READY(device);
	if (device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && has_file(device.handle, "ecc");
	return NVML_SUCCESS;
}
