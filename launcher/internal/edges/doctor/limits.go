package doctor

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
)

// What engines need. vLLM raises its own limit of open files to wantedFiles
// (vllm/utils/system_utils.py, set_ulimit) and warns where it may not; with
// several GPUs its workers talk through shared memory, for which vLLM's
// documentation of containers asks.
const (
	wantedFiles        = 65535
	leastFiles         = 4096
	wantedSharedMemory = 1 << 30
)

func checkSharedMemory(_ context.Context, e *examination) []Result {
	var fs unix.Statfs_t
	if err := unix.Statfs(e.shm, &fs); err != nil {
		return one(Result{
			Name: "shared memory", Status: Fail, Finding: fmt.Sprintf("cannot look at %s: %v", e.shm, err),
			Remedy: "mount a tmpfs at /dev/shm",
		})
	}
	return one(judgeSharedMemory(e.shm, fs.Blocks*uint64(fs.Bsize), fs.Bavail*uint64(fs.Bsize)))
}

func judgeSharedMemory(at string, total, free uint64) Result {
	r := Result{Name: "shared memory", Status: OK, Finding: fmt.Sprintf("%s: %s of %s free", at, launcher.BytesText(free), launcher.BytesText(total))}
	if total < wantedSharedMemory || free < wantedSharedMemory {
		r.Status = Warn
		r.Remedy = "engines on several GPUs need 1 GiB or more; use docker run --shm-size=8g, or on Kubernetes an emptyDir with medium Memory at /dev/shm"
	}
	return r
}

func checkOpenFiles(context.Context, *examination) []Result {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return one(Result{Name: "open files", Status: Warn, Finding: fmt.Sprintf("cannot read the limit: %v", err)})
	}
	return one(judgeOpenFiles(limit.Max))
}

func judgeOpenFiles(hard uint64) Result {
	r := Result{Name: "open files", Status: OK, Finding: fmt.Sprintf("hard limit %s", count(hard))}
	switch {
	case hard < leastFiles:
		r.Status = Fail
	case hard < wantedFiles:
		r.Status = Warn
	default:
		return r
	}
	r.Remedy = fmt.Sprintf("engines need %d; raise LimitNOFILE= of the unit, or nofile in /etc/security/limits.conf", wantedFiles)
	return r
}

func checkMemoryLock(_ context.Context, e *examination) []Result {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return one(Result{Name: "locked memory", Status: Warn, Finding: fmt.Sprintf("cannot read the limit: %v", err)})
	}
	return one(judgeMemoryLock(limit.Max, e.gpus.real()))
}

// judgeMemoryLock: sleep level 1 keeps weights in pinned host memory. Only
// where there is a GPU is there anything to pin.
func judgeMemoryLock(hard uint64, gpus bool) Result {
	r := Result{Name: "locked memory", Status: OK, Finding: "no limit"}
	if hard == math.MaxUint64 {
		return r
	}
	r.Finding = fmt.Sprintf("limit %s", launcher.BytesText(hard))
	if gpus {
		r.Status = Warn
		r.Remedy = "pinned memory of instances asleep at level 1 and of RDMA may count against it; set LimitMEMLOCK=infinity in the unit, or docker run --ulimit memlock=-1"
	}
	return r
}

func count(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}
