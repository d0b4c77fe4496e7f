package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// Escape sequences of terminals, by what they do.
const (
	enterScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l" // use the other screen, do not wrap lines, hide the cursor
	leaveScreen = "\x1b[?25h\x1b[?7h\x1b[?1049l"
	toBegin     = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor to its end
	clearBelow  = "\x1b[J"
)

// screen draws frames on a terminal. After close the terminal shows again what it showed before.
type screen struct {
	out    *os.File
	keys   io.Reader     // what people type; it is not shown if this is a terminal
	saved  *unix.Termios // settings of keys before open; nil: they are as they were
	shown  string        // the last frame, as it was written
	opened bool
}

func (s *screen) open() error {
	if keys, ok := s.keys.(*os.File); ok && isTerminal(keys) {
		settings, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS)
		if err != nil {
			return fmt.Errorf("cannot read the settings of the terminal: %w", err)
		}
		silent := *settings
		silent.Lflag &^= unix.ECHO
		if err := unix.IoctlSetTermios(int(keys.Fd()), unix.TCSETS, &silent); err != nil {
			return fmt.Errorf("cannot change the settings of the terminal: %w", err)
		}
		s.saved = settings
	}
	s.opened, s.shown = true, ""
	_, err := io.WriteString(s.out, enterScreen)
	return err
}

// close may be called again. It drops what was typed meanwhile.
func (s *screen) close() error {
	if !s.opened {
		return nil
	}
	s.opened = false
	_, err := io.WriteString(s.out, leaveScreen)
	if s.saved == nil {
		return err
	}
	keys := s.keys.(*os.File)
	return errors.Join(err, unix.IoctlSetTermios(int(keys.Fd()), unix.TCSETSF, s.saved))
}

// suspend gives the terminal back and stops this process, until somebody continues it.
func (s *screen) suspend() error {
	if err := s.close(); err != nil {
		return err
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil {
		return fmt.Errorf("cannot stop this process: %w", err)
	}
	<-continued // another thread may take the signal, and this one runs on for a while
	return s.open()
}

// draw writes the frame that render gives for the width of the terminal, if it differs from the
// last one.
func (s *screen) draw(render func(width int) string) error {
	width, height := sizeOf(s.out)
	lines := crop(strings.Split(strings.TrimSuffix(render(width), "\n"), "\n"), width, height)
	frame := toBegin + strings.Join(lines, clearLine+"\r\n") + clearLine + clearBelow
	if shown := fmt.Sprint(width, height, frame); s.shown != shown {
		s.shown = shown
		if _, err := io.WriteString(s.out, frame); err != nil {
			return fmt.Errorf("cannot draw on the terminal: %w", err)
		}
	}
	return nil
}

// crop leaves out the lines for which the terminal has no room, and says so.
func crop(lines []string, width, height int) []string {
	if len(lines) <= height {
		return lines
	}
	kept := lines[:max(0, height-1)]
	return append(kept, cut(fmt.Sprintf("… %d more lines", len(lines)-len(kept)), width))
}

// sizeOf is the size of a terminal; one that does not know it has 80 columns and 24 lines.
func sizeOf(terminal *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}
