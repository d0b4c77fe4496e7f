package pagecache

import (
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
