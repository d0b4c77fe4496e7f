package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// What a forked start of real vLLM is to be: so many times faster than one by
// hand, and so much less memory for each instance from the second on.
const (
	fasterThanByHand = 15.0
	memorySaved      = 0.8 * (1 << 30)
)

// realVLLM starts vLLM itself, by hand and by the launcher, in turn.
type realVLLM struct {
	b        *bench
	n        *node
	model    string
	sessions []int // of every vLLM that runs, and of the preloader
}

// starter is one way to start an instance.
type starter struct {
	name  string
	start func(id string) (pid int, took time.Duration, err error)
	stop  func(id string, pid int) error

	took times
	more []float64 // bytes that one more instance takes (PSS)
}

// starts compares the ways to start real vLLM, which test/vllm-cpu has set up in
// a folder. One instance of each way runs all the time, so that those which are
// timed are never the first.
func (b *bench) starts(setup string) (ways []*starter, err error) {
	r := &realVLLM{b: b, model: filepath.Join(setup, "models", "tiny-a")}
	if r.n, err = b.newNode("starts", "--start-method", "auto"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.n.stop()) }()
	if err := r.awaitPreloader(); err != nil {
		return nil, err
	}
	hands := hands{}
	defer func() { err = errors.Join(err, hands.end()) }()
	ways = []*starter{
		{
			name:  "`vllm serve` by hand, until `/health` answers",
			start: func(id string) (int, time.Duration, error) { return r.byHand(hands, id) },
			stop: func(id string, _ int) error {
				h := hands[id]
				delete(hands, id)
				return h.end()
			},
		},
		r.byLauncher(launcherapi.StartExec),
		r.byLauncher(launcherapi.StartFork),
	}
	for _, w := range ways {
		if _, _, err := r.run(w, "first"); err != nil {
			return nil, err
		}
	}
	for i := range b.n(5) {
		for _, w := range ways {
			if err := r.sample(w, fmt.Sprintf("round-%d", i)); err != nil {
				return nil, err
			}
			fmt.Fprintf(b.progress, "%s: %s s, %s more\n", w.name, seconds(w.took[i]), gibOf(w.more[i]))
		}
	}
	return ways, nil
}

// sample starts one more instance and ends it.
func (r *realVLLM) sample(w *starter, id string) error {
	before := r.memory()
	pid, took, err := r.run(w, id)
	if err != nil {
		return err
	}
	w.took, w.more = append(w.took, took), append(w.more, r.memory()-before)
	r.sessions = r.sessions[:len(r.sessions)-1]
	return w.stop(id, pid)
}

func (r *realVLLM) run(w *starter, id string) (int, time.Duration, error) {
	pid, took, err := w.start(id)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", w.name, err)
	}
	r.sessions = append(r.sessions, pid)
	return pid, took, nil
}

// memory of everything that runs: each page is shared out among those who have it.
func (r *realVLLM) memory() (bytes float64) {
	for _, sid := range r.sessions {
		for _, pid := range session(sid) {
			var kib float64
			if _, err := fmt.Sscanf(figures.Field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss"), "%f kB", &kib); err == nil {
				bytes += kib * 1024
			}
		}
	}
	return bytes
}

func (r *realVLLM) awaitPreloader() error {
	return eventually(r.b.ctx, "the preloader is ready", func() (bool, error) {
		list, err := r.n.client.Preloaders(r.b.ctx)
		if err != nil || list.Reason != "" || len(list.Preloaders) == 0 {
			return false, errors.Join(err, nonEmpty(list.Reason))
		}
		r.sessions = []int{list.Preloaders[0].PID}
		return list.Preloaders[0].State == "ready", nil
	})
}

func nonEmpty(reason string) error {
	if reason == "" {
		return nil
	}
	return errors.New(reason)
}

func (r *realVLLM) arguments() []string {
	return []string{r.model, "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4"}
}

// byLauncher starts through the API, until the `awake` event.
func (r *realVLLM) byLauncher(method string) *starter {
	return &starter{
		name: "launcher, " + method + ", until `awake`",
		start: func(id string) (int, time.Duration, error) {
			began := now()
			made, err := r.n.client.Create(r.b.ctx, method+"-"+id, launcherapi.InstanceSpec{Args: r.arguments(), StartMethod: method})
			if err != nil {
				return 0, 0, err
			}
			if made.StartedBy != method {
				return 0, 0, fmt.Errorf("it was started by %s: %s", made.StartedBy, made.Reason)
			}
			awake, err := r.n.watcher.await(r.b.ctx, made.InstanceID, "awake")
			return made.PID, awake.since(began), err
		},
		stop: func(id string, _ int) error {
			_, err := r.n.client.Delete(r.b.ctx, method+"-"+id)
			return err
		},
	}
}

// hand is a vLLM that was started by hand.
type hand struct {
	cmd *exec.Cmd
	url string
}

// hands are those that run, by id.
type hands map[string]*hand

// byHand starts vLLM as its user would, and waits until its health is good.
func (r *realVLLM) byHand(hands hands, id string) (pid int, took time.Duration, err error) {
	addr, err := harness.FreeAddress()
	if err != nil {
		return 0, 0, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, 0, err
	}
	log, err := os.CreateTemp(r.b.dir, "by-hand-*.log")
	if err != nil {
		return 0, 0, fmt.Errorf("cannot make the log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(r.b.engine, append(append([]string{"serve"}, r.arguments()...), "--host", "127.0.0.1", "--port", port)...)
	cmd.Stdout, cmd.Stderr = log, log
	// What it makes of sockets it never removes.
	cmd.Env = append(os.Environ(), "VLLM_RPC_BASE_PATH="+r.b.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	began := now()
	if err := cmd.Start(); err != nil {
		return 0, 0, fmt.Errorf("cannot start vLLM: %w", err)
	}
	hands[id] = &hand{cmd: cmd, url: "http://" + addr}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	err = eventually(r.b.ctx, "vLLM answers", func() (bool, error) {
		if len(session(cmd.Process.Pid)) == 0 {
			text, _ := os.ReadFile(log.Name())
			return false, fmt.Errorf("it ended:\n%s", text)
		}
		return ask(r.b.ctx, client, http.MethodGet, "http://"+addr+"/health") == nil, nil
	})
	return cmd.Process.Pid, now().since(began), err
}

// end ends a whole session, first as vLLM likes to be ended.
func (h *hand) end() error {
	t, err := hold(session(h.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer t.release()
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, t.kill)
	defer late.Stop()
	_ = h.cmd.Wait() // how vLLM ended is of no interest
	t.kill()
	return nil
}

func (all hands) end() error {
	var err error
	for _, h := range all {
		err = errors.Join(err, h.end())
	}
	return err
}

// renderStarts makes the table of the starts.
func renderStarts(ways []*starter) string {
	var b strings.Builder
	b.WriteString("| start | samples | median (fastest – slowest), s | times faster than by hand | one more instance takes (PSS) | less than by hand |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|\n")
	hand := ways[0]
	for _, w := range ways {
		fmt.Fprintf(&b, "| %s | %d | %s (%s – %s) | %.1f | %s | %s |\n", w.name, len(w.took), seconds(w.took.P50()), seconds(w.took.At(0)), seconds(w.took.At(1)),
			hand.took.P50().Seconds()/w.took.P50().Seconds(), gibOf(median(w.more)), gibOf(median(hand.more)-median(w.more)))
	}
	fork := ways[len(ways)-1]
	faster := hand.took.P50().Seconds() / fork.took.P50().Seconds()
	saved := median(hand.more) - median(fork.more)
	fmt.Fprintf(&b, "\nTargets for fork: at least %.0f times faster (met: %s), at least %s less (met: %s).\n",
		fasterThanByHand, figures.Verdict(faster >= fasterThanByHand), gibOf(memorySaved), figures.Verdict(saved >= memorySaved))
	return b.String()
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

func gibOf(bytes float64) string { return fmt.Sprintf("%.2f GiB", bytes/(1<<30)) }
