package preload

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is the launcher's end of the control socket. The two sockets are a connected
// pair without a name, so no third process can reach them. preloader/__main__.py
// describes the messages.
type conn struct{ *net.UnixConn }

// maxFrame is how many bytes a preloader may send in one frame.
const maxFrame = 1 << 20

// newConn makes the pair of sockets. ours is the launcher's end, and theirs the
// preloader's.
func newConn() (ours conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return conn{}, nil, fmt.Errorf("cannot make a control socket: %w", err)
	}
	file := os.NewFile(uintptr(fds[0]), "control")
	theirs = os.NewFile(uintptr(fds[1]), "control")
	made, err := net.FileConn(file)
	_ = file.Close() // net has its own copy
	if err != nil {
		_ = theirs.Close() // nothing was sent
		return conn{}, nil, fmt.Errorf("cannot make a control socket: %w", err)
	}
	return conn{made.(*net.UnixConn)}, theirs, nil
}

// send writes one frame. The descriptors of files travel with the frame's length.
func (c conn) send(message any, files ...*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("cannot encode a message: %w", err)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for n, f := range files {
			fds[n] = int(f.Fd())
		}
		rights = syscall.UnixRights(fds...)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	if _, _, err := c.WriteMsgUnix(head, rights, nil); err != nil {
		return fmt.Errorf("cannot write to the preloader: %w", err)
	}
	if _, err := c.Write(body); err != nil {
		return fmt.Errorf("cannot write to the preloader: %w", err)
	}
	return nil
}

func (c conn) receive(into any) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return fmt.Errorf("cannot read from the preloader: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return fmt.Errorf("the preloader sends a message of %d bytes, more than the limit of %d", size, maxFrame)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return fmt.Errorf("cannot read from the preloader: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("cannot decode the preloader's message: %w", err)
	}
	return nil
}
