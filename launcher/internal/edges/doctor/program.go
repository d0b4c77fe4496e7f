package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
)

func checkProgram(ctx context.Context, e *examination) []Result {
	if e.Program.Err != nil {
		return one(Result{
			Name: "vllm", Status: Fail, Finding: flat(e.Program.Err),
			Remedy: "install vLLM so that `vllm` is on PATH, or name it by --vllm",
		})
	}
	ctx, cancel := context.WithTimeout(ctx, e.VersionTimeout)
	defer cancel()
	command := strings.Join(e.Program.Argv, " ")
	version, err := output(ctx, append(e.Program.Argv[:len(e.Program.Argv):len(e.Program.Argv)], "--version"))
	if err != nil {
		return one(Result{
			Name: "vllm", Status: Fail, Finding: fmt.Sprintf("%s --version: %v", command, err),
			Remedy: "run it by hand; an engine would fail in the same way",
		})
	}
	return one(judgeProgram(command, lastLine(version), e.Program.StandIn))
}

func judgeProgram(command, version string, standIn bool) Result {
	r := Result{Name: "vllm", Status: OK, Finding: fmt.Sprintf("%s, version %s (tried: %s)", command, version, strings.Join(engine.TriedReleases, ", "))}
	if standIn {
		r.Status = Warn
		r.Finding = fmt.Sprintf("no vllm on PATH; the launcher would use the stand-in %s, whose answers are made up", command)
		r.Remedy = "install vLLM, or name its program by --vllm"
	}
	return r
}

// output runs a command in a process group of its own, which is killed when
// ctx ends, and gives what it wrote.
func output(ctx context.Context, argv []string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", errors.New("it did not end in time")
	case err != nil:
		return "", fmt.Errorf("%w: %s", err, lastLine(out.String()))
	}
	return out.String(), nil
}

// lastLine leaves out the warnings that Python programs write first.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// checkPython tells which Python runs vllm: that of the script's first line.
func checkPython(ctx context.Context, e *examination) []Result {
	if e.Program.Err != nil || e.Program.StandIn {
		return nil
	}
	broken := Result{Name: "python", Status: Fail, Remedy: "install vLLM again; its virtual environment was moved or is broken"}
	script := e.Program.Argv[0]
	python, err := preload.Interpreter(script)
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		broken.Finding = fmt.Sprintf("%s: %v", script, err)
		return one(broken)
	case err != nil:
		return one(Result{Name: "python", Status: OK, Finding: fmt.Sprintf("%s does not name its Python", script)})
	}
	ctx, cancel := context.WithTimeout(ctx, e.VersionTimeout)
	defer cancel()
	version, err := output(ctx, []string{python[0], "--version"})
	if err != nil {
		broken.Finding = fmt.Sprintf("%s, which %s names: %v", python[0], script, err)
		return one(broken)
	}
	return one(Result{Name: "python", Status: OK, Finding: fmt.Sprintf("%s, %s", python[0], lastLine(version))})
}
