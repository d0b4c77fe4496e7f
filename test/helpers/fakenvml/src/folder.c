#define _GNU_SOURCE
#include "folder.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct nvmlDevice_st devices[2 * MAX_DEVICES], *boards[MAX_DEVICES];
unsigned entry_count, device_count, board_count;

static char folder[4096 - 512];

// ---- gpus.json ----

static const char *text_of(const char *p, char *out, size_t size)
{
	size_t n = 0;
	for (p++; *p && *p != '"'; p++) {
		if (*p == '\\' && p[1])
			p++;
		if (n + 1 < size)
			out[n++] = *p;
	}
	out[n] = 0;
	return *p ? p + 1 : p;
}

static const char *member_of(const char *p, struct nvmlDevice_st *gpu)
{
	char key[64], value[96] = "";
	p = text_of(p, key, sizeof key);
	p += strspn(p, " \t\r\n:");
	char *end = (char *)p;
	unsigned long long number = strtoull(p, &end, 10);
	p = *p == '"' ? text_of(p, value, sizeof value) : end > p ? end : p + 1;
	if (!strcmp(key, "uuid"))
		strcpy(gpu->uuid, value);
	else if (!strcmp(key, "product"))
		strcpy(gpu->product, value);
	else if (!strcmp(key, "index"))
		gpu->index = number;
	else if (!strcmp(key, "memory_total_bytes"))
		gpu->total = number;
	return p;
}

static void read_entries(const char *p)
{
	while ((p = strchr(p, '{')) && entry_count < MAX_DEVICES) {
		struct nvmlDevice_st *gpu = &devices[entry_count++];
		memset(gpu, 0, sizeof *gpu);
		for (p++; *p && *p != '}';)
			p = *p == '"' ? member_of(p, gpu) : p + 1;
		gpu->mig = !strncmp(gpu->uuid, "MIG-", 4);
	}
	device_count = entry_count;
}

static struct nvmlDevice_st *sliced_board(unsigned index)
{
	for (unsigned i = entry_count; i < device_count; i++)
		if (devices[i].index == index)
			return &devices[i];
	struct nvmlDevice_st *board = &devices[device_count++];
	*board = (struct nvmlDevice_st){.index = index, .sliced = true, .product = "Simulated GPU in MIG mode"};
	snprintf(board->uuid, sizeof board->uuid, "GPU-sliced-%u", index);
	boards[board_count++] = board;
	return board;
}

bool read_folder(void)
{
	const char *path = getenv("HOTSEAT_SIMGPU_DIR");
	char file[4096], text[1 << 16];
	if (!path || strlen(path) >= sizeof folder)
		return false;
	strcpy(folder, path);
	snprintf(file, sizeof file, "%s/gpus.json", folder);
	FILE *f = fopen(file, "re");
	if (!f)
		return false;
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	entry_count = device_count = board_count = 0;
	read_entries(text);
	for (unsigned i = 0; i < entry_count; i++) {
		if (devices[i].mig)
			sliced_board(devices[i].index)->total += devices[i].total;
		else
			boards[board_count++] = &devices[i];
	}
	return true;
}

// ---- the files of one GPU ----

bool part(const struct nvmlDevice_st *entry, const struct nvmlDevice_st *device)
{
	return entry == device || (device->sliced && entry->index == device->index);
}

bool has_file(const struct nvmlDevice_st *device, const char *name)
{
	char file[4096];
	for (unsigned i = 0; i < entry_count; i++) {
		snprintf(file, sizeof file, "%s/%s/%s", folder, devices[i].uuid, name);
		if (part(&devices[i], device) && !access(file, F_OK))
			return true;
	}
	return false;
}

static double seconds(struct timespec t) { return t.tv_sec + t.tv_nsec / 1e9; }

static struct timespec clock_of(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t;
}

// wrote_alive follows package simgpu: the process lives, is no zombie, and is
// not younger than its file.
static bool wrote_alive(unsigned pid, struct timespec written)
{
	char file[64], stat[4096], state;
	unsigned long long ticks;
	snprintf(file, sizeof file, "/proc/%u/stat", pid);
	FILE *f = fopen(file, "re");
	if (!f)
		return false;
	stat[fread(stat, 1, sizeof stat - 1, f)] = 0;
	fclose(f);
	char *rest = strrchr(stat, ')');
	if (!rest || sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &ticks) != 2)
		return false;
	double age = seconds(clock_of(CLOCK_BOOTTIME)) - (double)ticks / sysconf(_SC_CLK_TCK);
	return state != 'Z' && state != 'X' && seconds(clock_of(CLOCK_REALTIME)) - seconds(written) <= age + 2;
}

// held is what the file of process pid counts now.
static unsigned long long held(const struct nvmlDevice_st *entry, const char *name)
{
	char file[4096];
	struct stat info;
	unsigned long long bytes = 0, until = 0;
	snprintf(file, sizeof file, "%s/%s/%s", folder, entry->uuid, name);
	FILE *f = fopen(file, "re");
	if (!f)
		return 0;
	int numbers = fscanf(f, "%llu %llu", &bytes, &until);
	int bad = fstat(fileno(f), &info);
	fclose(f);
	if (numbers < 1 || bad)
		return 0;
	if (numbers == 2 && seconds(clock_of(CLOCK_REALTIME)) * 1000 < until)
		return bytes;
	return wrote_alive(atoi(name), info.st_mtim) ? bytes : 0;
}

unsigned holders(const struct nvmlDevice_st *device, nvmlProcessInfo_t *infos)
{
	unsigned n = 0;
	for (unsigned i = 0; i < entry_count; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s", folder, devices[i].uuid);
		DIR *dir = part(&devices[i], device) ? opendir(path) : NULL;
		if (!dir)
			continue;
		for (struct dirent *e; n < MAX_HOLDERS && (e = readdir(dir));) {
			if (strspn(e->d_name, "0123456789") != strlen(e->d_name) || e->d_name[0] == '0')
				continue;
			unsigned long long bytes = held(&devices[i], e->d_name);
			if (bytes)
				infos[n++] = (nvmlProcessInfo_t){.pid = atoi(e->d_name), .usedGpuMemory = bytes,
					.gpuInstanceId = ~0u, .computeInstanceId = ~0u};
		}
		closedir(dir);
	}
	return n;
}

unsigned long long used_bytes(const struct nvmlDevice_st *device)
{
	nvmlProcessInfo_t infos[MAX_HOLDERS];
	unsigned long long sum = 0;
	for (unsigned n = holders(device, infos), i = 0; i < n; i++)
		sum += infos[i].usedGpuMemory;
	return sum < device->total ? sum : device->total;
}

bool switched(const char *name)
{
	const char *dir = getenv("HOTSEAT_SIMGPU_DIR");
	char file[4096];
	snprintf(file, sizeof file, "%s/%s", dir ? dir : "", name);
	return dir && !access(file, F_OK);
}

bool refused(const char *function)
{
	char file[4096], line[256];
	bool found = false;
	snprintf(file, sizeof file, "%s/refuse", folder);
	FILE *f = fopen(file, "re");
	while (f && !found && fgets(line, sizeof line, f)) {
		line[strcspn(line, " \r\n")] = 0;
		found = !strcmp(line, function);
	}
	if (f)
		fclose(f);
	return found;
}
