package requester

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outcome is how a connection ended.
type outcome string

const (
	outcomeFinished    outcome = "finished"    // both sides said so
	outcomeReset       outcome = "reset"       // one side reset it, or is gone
	outcomeIdle        outcome = "idle"        // closed between two requests, by a drain
	outcomeCut         outcome = "cut"         // a drain ran out of time
	outcomeUnreachable outcome = "unreachable" // the target could not be reached
	outcomeRefused     outcome = "refused"     // too late or one too many
	outcomeUnserved    outcome = "unserved"    // held, and nobody was bound in time
)

// direction is which way bytes go.
type direction int

const (
	up   direction = iota // from the client to the instance
	down                  // from the instance to the client
)

// connection is one client's, from its accept to its end.
type connection struct {
	client *net.TCPConn

	mu      sync.Mutex
	target  *net.TCPConn // nil while it is being dialled
	stopped outcome      // why it was ended before both sides said so
	awaits  bool         // the last bytes went up: an answer is to come
	ended   bool         // one side has ended its bytes: no further request will come
	moving  int          // directions in which bytes are moving now
	last    time.Time    // when the last bytes had moved
}

// carry reaches the target and moves bytes both ways until both sides have
// ended or one is gone. Both sockets are closed when it returns.
func (c *connection) carry(ctx context.Context, target string, t *tally) outcome {
	dialer := net.Dialer{Timeout: dialTimeout}
	var conn net.Conn
	var err error
	apart(func() { conn, err = dialer.DialContext(ctx, "tcp", target) })
	if err != nil {
		c.stop(outcomeUnreachable)
		return c.why()
	}
	if how := c.reached(conn.(*net.TCPConn)); how != "" {
		reset(c.target)
		return how
	}
	var both sync.WaitGroup
	both.Go(func() { c.move(up, c.target, c.client, t) })
	c.move(down, c.client, c.target, t)
	both.Wait()
	_ = c.client.Close() // what was said of their ends has been said: closing twice is no harm
	_ = c.target.Close()
	return cmp.Or(c.why(), outcomeFinished)
}

// reached keeps the target, or says why it is not wanted any more.
func (c *connection) reached(target *net.TCPConn) outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = target
	c.last = time.Now()
	return c.stopped
}

func (c *connection) why() outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// move carries one direction to its end, which it passes on. A direction that
// fails resets the other one too. The bytes themselves stay in the kernel:
// ReadFrom of a TCP connection splices from another one, and of a known number
// of bytes it does so without waiting, so that no pipe is held between them.
func (c *connection) move(d direction, to, from *net.TCPConn, t *tally) {
	raw, err := from.SyscallConn()
	for err == nil {
		var n int
		if n, err = readable(raw); err != nil || n == 0 {
			break
		}
		c.began(d)
		var moved int64
		apart(func() { moved, err = to.ReadFrom(&io.LimitedReader{R: from, N: int64(n)}) })
		t.moved(d, moved)
		c.rested()
	}
	if err != nil {
		c.stop(outcomeReset)
		return
	}
	c.half()
	_ = to.CloseWrite() // a peer that is gone is found by the other direction
}

// readable waits until bytes can be read and says how many; 0 is the end.
func readable(raw syscall.RawConn) (n int, err error) {
	var first [1]byte
	waited := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err == nil && n > 0 {
			n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
			n = max(n, 1)
		}
		return true
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

func (c *connection) began(d direction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving++
	c.awaits = d == up
}

func (c *connection) rested() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving--
	c.last = time.Now()
}

func (c *connection) half() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// idle says whether the connection looks like one that is kept alive between two
// requests, and since when.
func (c *connection) idle() (idle bool, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.target != nil && !c.awaits && !c.ended && c.moving == 0, c.last
}

// stop ends the connection, for the first reason that comes up. Idle ones are
// closed as a server closes them, others are reset, so that nobody takes what
// came for the whole.
func (c *connection) stop(how outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != "" {
		return
	}
	c.stopped = how
	for _, conn := range []*net.TCPConn{c.client, c.target} {
		switch {
		case conn == nil:
		case how == outcomeIdle:
			_ = conn.Close() // the peers may have been faster
		default:
			reset(conn)
		}
	}
}

// reset closes a connection so that its peer learns at once that it was cut.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // both fail only where the connection is closed already
	_ = conn.Close()
}

// apart has a function called by a goroutine of its own, and waits for it. What
// needs much of a stack is done so: the goroutines of a connection live as long
// as that, mostly waiting, and each stack that has grown stays so until it is
// found to be too large.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
