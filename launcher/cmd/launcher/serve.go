package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/edges/daemon"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the launcher: supervise engines and serve the API",
		Long: `Run the launcher: supervise engines and serve the API.

Every flag has an environment variable (--state-dir is HOTSEAT_STATE_DIR) and a
key in the file of --config (state_dir, and budgets: {max_instances: …}). A flag
overrides a variable, and a variable overrides the file.

SIGTERM or SIGINT ends the launcher in order. Another one, more than a second later,
ends it at once and leaves the engines running, as a kill does; the next launcher with
the same state folder takes them over.`,
		Example: `  launcher serve
  launcher serve --gpus simulated:2 --state-dir ~/hotseat
  launcher serve --listen 0.0.0.0:8001 --token-file /etc/hotseat/token --config /etc/hotseat/launcher.yaml`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	from := addSettings(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := from.load()
		if err != nil {
			return err
		}
		return c.serve(cmd.Context(), cfg)
	}
	return cmd
}

func (c *cli) serve(ctx context.Context, cfg config.Config) error {
	log := c.openLog(cfg)
	for _, line := range config.Ignored(os.Environ()) {
		log.Warn(line)
	}
	engine, err := engineOf(cfg)
	if err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	if engine.standIn {
		log.Warn("NO VLLM FOUND: USING THE STAND-IN ENGINE, WHOSE ANSWERS ARE MADE UP. Install vLLM, or name it by --vllm", "program", engine.argv[0])
	}
	reload := make(chan struct{}, 1)
	ctx, stop := c.untilTold(ctx, reload, log)
	defer stop()
	options := daemon.Options{Config: cfg, Program: engine.argv, Logger: log, Stderr: c.err, Serving: c.init.Ready, Reload: reload, Last: c.init.IsLast()}
	if options.LlamaServer, err = findLlama(cfg.LlamaServer); err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	if options.ModelFetch, err = fetchProgram(cfg); err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	for _, source := range cfg.ModelSources {
		scheme, _, _ := strings.Cut(source, "=")
		options.ModelSchemes = append(options.ModelSchemes, scheme+"://")
	}
	d, err := daemon.New(options)
	if err != nil {
		_, wrong := errors.AsType[*gpu.SourceError](err)
		return &exitError{code: exitUsage, cause: remedy(ctx, err, cfg), passing: !wrong}
	}
	err = d.Run(ctx)
	if ctx.Err() != nil {
		c.init.Closed()
	}
	return err
}

func engineOf(cfg config.Config) (program, error) {
	folder, err := ownFolder()
	if err != nil {
		return program{}, err
	}
	return findProgram(cfg.VLLM, folder)
}

// fetchProgram is the program that fetches models, with its flags. Where it is
// missing each pull says so.
func fetchProgram(cfg config.Config) ([]string, error) {
	folder, err := ownFolder()
	if err != nil {
		return nil, err
	}
	program := []string{filepath.Join(folder, fetcherName), "--streams", strconv.Itoa(cfg.ModelStreams)}
	for _, source := range cfg.ModelSources {
		program = append(program, "--"+fetchapi.ProgramFlag, source)
	}
	if cfg.ModelBytesPerSecond > 0 {
		program = append(program, "--bytes-per-second", strconv.FormatInt(cfg.ModelBytesPerSecond, 10))
	}
	for _, claim := range slices.Sorted(maps.Keys(cfg.ModelClaims)) {
		program = append(program, "--claim", claim+"="+cfg.ModelClaims[claim])
	}
	return program, nil
}

// remedy adds to an error of daemon.New which setting helps, where the error does
// not say so itself.
func remedy(ctx context.Context, err error, cfg config.Config) error {
	if strings.Contains(err.Error(), "--front-door") {
		return err // it names the settings of the other address
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		if isLauncher(ctx, cfg.Listen) {
			return fmt.Errorf("%w; a launcher serves there already: use that one (launcher ps --server %s), stop it, or choose another address by --listen", err, cfg.Listen)
		}
		return fmt.Errorf("%w; end what listens at %s, or choose another address by --listen", err, cfg.Listen)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok && onTheWay(e.Path, cfg.StateDir) {
		return fmt.Errorf("%w; make the state folder %s writable, or choose another by --state-dir", err, cfg.StateDir)
	}
	return err
}

// isLauncher says whether a launcher answers at an address, without TLS. It waits a second
// at most.
func isLauncher(ctx context.Context, address string) bool {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	cl, err := client.New(client.Options{Server: address, Reconnect: time.Second})
	if err != nil {
		return false
	}
	defer cl.Close()
	service, err := cl.Service(ctx)
	return err == nil && service.Name == launcherapi.ServiceName
}

// onTheWay says whether one of two absolute paths leads to the other.
func onTheWay(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", strings.TrimSuffix(a, "/")+"/")
}

// together is the time within which signals count as one: timeout(1) and some
// shells send a signal to the process and then to its group.
const together = time.Second

// untilTold ends the context at the first SIGTERM or SIGINT, and the process at the
// next one that comes more than together later. SIGHUP reads the models again. If init runs serve
// a last time, the context has ended.
func (c *cli) untilTold(parent context.Context, reload chan<- struct{}, log *slog.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	over, done := make(chan struct{}), make(chan struct{})
	var told time.Time
	if c.init.IsLast() {
		told = time.Now()
		cancel()
	}
	go func() {
		defer close(done)
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGHUP {
					log.Info("SIGHUP: reading the models of the configuration again; its settings are read only when the launcher starts")
					select {
					case reload <- struct{}{}:
					default: // it is told already
					}
					continue
				}
				if told.IsZero() {
					told = time.Now()
					log.Info("ending; a signal more than a second from now ends the launcher at once and leaves the engines running", "signal", sig.String())
					cancel()
				} else if time.Since(told) > together {
					log.Warn("ending at once: the engines are left running for the next launcher with the same state folder", "signal", sig.String())
					c.init.Closed()
					os.Exit(128 + int(sig.(syscall.Signal)))
				}
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-done
		cancel()
	}
}
