package guide

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Session is a shell into which blocks are pasted one after the other.
type Session struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done *bufio.Reader // gets a line after each block
}

// NewSession starts a shell in a folder. Its output, both streams, goes to output. The
// shell and its programs end with the context.
func NewSession(ctx context.Context, folder string, env []string, output io.Writer) (*Session, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	s := &Session{cmd: bash(ctx, folder, env, output), done: bufio.NewReader(reader)}
	s.cmd.ExtraFiles = []*os.File{writer} // descriptor 3
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make a pipe: %w", err), reader.Close(), writer.Close())
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start a shell: %w", err), reader.Close(), writer.Close())
	}
	return s, writer.Close()
}

// bash is a shell in a process group of its own, which is killed as a whole.
func bash(ctx context.Context, folder string, env []string, output io.Writer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", append([]string{"--noprofile", "--norc"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, env, output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// Paste runs a block, and returns when its last command has ended. It is an error when a
// command fails, or when one that is to be refused does not.
func (s *Session) Paste(b Block) error {
	if _, err := io.WriteString(s.in, script(b)); err != nil {
		return fmt.Errorf("%s: the shell has ended: %w", b, err)
	}
	line, err := s.done.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: the shell ended in this block; its output has the reason", b)
	}
	if verdict := strings.TrimSpace(line); verdict != "done" {
		return fmt.Errorf("%s: %s", b, verdict)
	}
	return nil
}

// script is what a shell runs for a block: the block as it stands, in braces, so that the
// shell has read it whole before it begins.
func script(b Block) string {
	var text strings.Builder
	text.WriteString("trap 'echo \"this command or its pipeline failed: $BASH_COMMAND\" >&3; exit 1' ERR; set -E -o pipefail; {\n")
	for line := range strings.Lines(b.Commands) {
		if strings.HasSuffix(strings.TrimSpace(line), "# refused") {
			line = "if {\n" + line + "}; then echo 'this command was to be refused:' " + quoted(line) + " >&3; exit 1; fi\n"
		}
		text.WriteString(line)
	}
	text.WriteString("} </dev/null\necho done >&3\n")
	return text.String()
}

// quoted is a text as one word of a shell's.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(strings.TrimSpace(text), "'", `'\''`) + "'"
}

// Close ends the shell and waits for its end.
func (s *Session) Close() error {
	return errors.Join(s.in.Close(), s.cmd.Wait())
}

// Foreground is a terminal in which a program stays in the foreground.
type Foreground struct {
	cmd   *exec.Cmd
	ended chan error
}

// Run pastes a block into a terminal of its own.
func Run(ctx context.Context, folder string, env []string, output io.Writer, b Block) (*Foreground, error) {
	f := &Foreground{cmd: bash(ctx, folder, env, output, "-e", "-c", b.Commands), ended: make(chan error, 1)}
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: cannot start a shell: %w", b, err)
	}
	go func() {
		defer close(f.ended)
		f.ended <- f.cmd.Wait()
	}()
	return f, nil
}

// Ended gets the error with which the program ends.
func (f *Foreground) Ended() <-chan error { return f.ended }

// CtrlC presses Ctrl-C, and waits until the program has ended in order.
func (f *Foreground) CtrlC() error {
	if err := syscall.Kill(-f.cmd.Process.Pid, syscall.SIGINT); err != nil {
		return fmt.Errorf("the program has ended before Ctrl-C: %w", errors.Join(err, <-f.ended))
	}
	err := <-f.ended
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 128+int(syscall.SIGINT) {
		return nil // bash says so of a program that was ended by Ctrl-C
	}
	if err != nil {
		return fmt.Errorf("the program did not end in order at Ctrl-C: %w", err)
	}
	return nil
}
