// The folder of simulated GPUs, as the stand-in library reads it.
#ifndef FOLDER_H
#define FOLDER_H

#include <stdbool.h>
#include <nvml.h>

enum { MAX_DEVICES = 256, MAX_HOLDERS = 1024 };

// A whole GPU, a MIG device, or (sliced) the GPU that MIG devices are part of.
struct nvmlDevice_st {
	char uuid[96], product[96];
	unsigned index;
	unsigned long long total;
	bool mig, sliced;
};

// The entries of gpus.json stand first, the sliced GPUs behind them. Boards
// are what NVML numbers: the whole GPUs and the sliced ones.
extern struct nvmlDevice_st devices[2 * MAX_DEVICES], *boards[MAX_DEVICES];
extern unsigned entry_count, device_count, board_count;

// read_folder fills those from the folder that HOTSEAT_SIMGPU_DIR names.
bool read_folder(void);

// part says whether entry is the device, or a MIG device of it.
bool part(const struct nvmlDevice_st *entry, const struct nvmlDevice_st *device);

// has_file says whether a folder of the device holds a file of that name.
bool has_file(const struct nvmlDevice_st *device, const char *name);

// holders fills infos, which has room for MAX_HOLDERS, with the processes that
// hold memory of the device, and says how many they are.
unsigned holders(const struct nvmlDevice_st *device, nvmlProcessInfo_t *infos);

// used_bytes is what they hold together, at most all there is.
unsigned long long used_bytes(const struct nvmlDevice_st *device);

// switched says whether the folder that HOTSEAT_SIMGPU_DIR names now has such a file.
bool switched(const char *name);

// refused says whether the folder's file "refuse" names the function.
bool refused(const char *function);

#endif
