package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/edges/ownlog"
)

// settings are the flags of serve, which init and doctor read as well.
type settings struct{ loader *config.Loader }

func addSettings(flags *pflag.FlagSet) settings {
	flags.SortFlags = false // help shows them in the order of their table
	return settings{config.Register(flags)}
}

// load reads the settings. A mistake in them is an error of usage, in one line.
func (s settings) load() (config.Config, error) {
	cfg, err := s.loader.Load(os.LookupEnv)
	if err != nil {
		return cfg, &exitError{code: exitUsage, cause: err}
	}
	return cfg, nil
}

// openLog makes the launcher's own log, of serve or of init. From now on nothing that this
// process writes to standard error waits for its reader, and a reader that goes away does
// not end the process. closeLog closes the log.
func (c *cli) openLog(cfg config.Config) *slog.Logger {
	// A signal that is caught, and not ignored, has its default meaning again in engines.
	brokenPipe := make(chan os.Signal, 1)
	signal.Notify(brokenPipe, syscall.SIGPIPE)
	to := ownlog.New(c.err, func(lines int) []byte {
		var notice bytes.Buffer
		newLogger(cfg, &notice).Error("dropped lines of this log: standard error was not read in time", "lines", lines)
		return notice.Bytes()
	})
	c.err = to
	c.closeLog = func() {
		to.Close()
		signal.Stop(brokenPipe)
	}
	log := newLogger(cfg, to)
	slog.SetDefault(log) // libraries use it, and package log with it
	return log
}

// newLogger makes a log.
func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
