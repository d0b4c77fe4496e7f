package initd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// wordsEnv is the variable in the environment of serve that names the
// descriptor of the pipe to init, and wordsFD is that descriptor. lastEnv is set for a
// serve that init runs a last time.
const (
	wordsEnv = "HOTSEAT_INIT_FD"
	wordsFD  = 3
	lastEnv  = "HOTSEAT_INIT_LAST"
)

// The words that serve writes to init, a line each. Exit codes could not replace them: the
// Go runtime exits with 2 if a process panics or gets SIGQUIT.
const (
	readyWord         = "ready"
	misconfiguredWord = "misconfigured"
	closedWord        = "closed"
)

// Init is the init that runs this process, as serve sees it. The methods of a nil
// *Init do nothing.
type Init struct {
	pipe *os.File
	last bool
}

// Parent returns the init that runs this process; nil: no init does. Children of this
// process inherit neither the variables nor the descriptor.
func Parent() *Init {
	fd, err := strconv.Atoi(os.Getenv(wordsEnv))
	if err != nil {
		return nil
	}
	_, last := os.LookupEnv(lastEnv)
	_, _ = os.Unsetenv(wordsEnv), os.Unsetenv(lastEnv)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil // the variable was inherited from somewhere else
	}
	unix.CloseOnExec(fd)
	return &Init{pipe: os.NewFile(uintptr(fd), "init"), last: last}
}

// Ready tells init that serve is ready. If serve ends later, init starts it again at once.
func (i *Init) Ready() { i.say(readyWord) }

// Misconfigured tells init that the configuration is wrong, so that init does not start
// serve again.
func (i *Init) Misconfigured() { i.say(misconfiguredWord) }

// Closed tells init that serve, which was told to end, has dealt with the engines. They are
// stopped, or left running on purpose.
func (i *Init) Closed() { i.say(closedWord) }

// IsLast reports whether init was told to end, and runs serve only to stop the engines that
// an earlier serve has left.
func (i *Init) IsLast() bool { return i != nil && i.last }

func (i *Init) say(word string) {
	if i != nil {
		_, _ = fmt.Fprintln(i.pipe, word) // this process does not outlive init
	}
}

// heard is what an ended serve has written to init.
type heard struct{ ready, misconfigured, closed bool }

// hear reads the words out of the pipe, which is non-blocking: serve is dead, and
// its words are in the pipe.
func hear(pipe int) (heard, error) {
	text := make([]byte, 256) // more than all words together
	n, err := unix.Read(pipe, text)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return heard{}, fmt.Errorf("cannot read the messages of serve: %w", err)
	}
	words := strings.Fields(string(text[:max(0, n)]))
	return heard{
		ready: slices.Contains(words, readyWord), misconfigured: slices.Contains(words, misconfiguredWord),
		closed: slices.Contains(words, closedWord),
	}, nil
}
