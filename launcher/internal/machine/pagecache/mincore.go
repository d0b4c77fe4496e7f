package pagecache

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore asks the kernel which pages of a mapping main memory holds: bit 0 of each
// byte; see mincore(2), which golang.org/x/sys does not wrap.
func mincore(mapping, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapping[0])), uintptr(len(mapping)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

// cachestat is how many bytes of a file main memory holds, those that are being read
// among them. It looks at nothing that is not there: of 15 GB that are on the disk it
// takes a microsecond, where mincore takes 0.2 s. known is false where the kernel, that
// of before Linux 6.5, or what confines this process does not let it be asked.
func cachestat(f *os.File, size int64) (held int64, known bool) {
	if size == 0 {
		return 0, true
	}
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: uint64(size)}, &stat, 0); err != nil {
		return 0, false
	}
	return min(int64(stat.Cache)*int64(os.Getpagesize()), size), true
}
