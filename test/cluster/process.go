package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// part is a program that belongs to a cluster for as long as the cluster
// lives. Its end ends the cluster.
type part struct {
	name string
	cmd  *exec.Cmd
}

// start runs a program with its output in a log of the cluster.
func (c Config) start(name string, env []string, program string, args ...string) (*part, error) {
	log, err := c.log(name)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the program has its own copy
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	return &part{name: name, cmd: cmd}, nil
}

// wait tells ended of the end of a part.
func (p *part) wait(ended chan<- error) {
	err := p.cmd.Wait()
	ended <- fmt.Errorf("%s ended: %s, %w", p.name, p.cmd.ProcessState, err)
}

// run runs a short command and gives its output in the error.
func run(program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// runAll runs commands, one a line, words parted by blanks.
func runAll(lines string) error {
	for line := range strings.Lines(lines) {
		if words := strings.Fields(line); len(words) > 0 {
			if err := run(words[0], words[1:]...); err != nil {
				return err
			}
		}
	}
	return nil
}
