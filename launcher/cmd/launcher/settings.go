package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
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

// newLogger makes the launcher's own log.
func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
