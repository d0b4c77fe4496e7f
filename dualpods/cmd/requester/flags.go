package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/dualpods/internal/requesters/requester"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// settings are what the command line and the environment say.
type settings struct {
	options requester.Options
	version bool
	help    string
}

// defaultGrace ends before the 30 seconds that Kubernetes gives a Pod unless it
// says otherwise (terminationGracePeriodSeconds).
const defaultGrace = 25 * time.Second

// defaultDelay is longer than a Service takes to lead nowhere else than to Pods that are
// not being deleted: EndpointSlices are written after a tenth of a second to one second,
// and kube-proxy follows them within a second, unless it has thousands of Services.
const defaultDelay = 5 * time.Second

// alias are environment variables of the llm-d community's requester.
var alias = map[string]string{"probes-port": "PROBES_PORT", "spi-port": "SPI_PORT"}

const intro = `The requester runs in the container "inference-server" of a server-requesting Pod, or in
its sidecar, the init container "requester".
It holds the Pod's GPUs. The controller binds it to an inference server, and it forwards
connections at the Pod's serving port to that server. The controller calls it by its SPI,
and names the serving port there.

Usage: requester [flags]
       requester wait      only wait for SIGTERM: for the container "inference-server" beside the sidecar

Each flag can be given by an environment variable: --spi-port by HOTSEAT_REQUESTER_SPI_PORT.
The flag counts when both are given. PROBES_PORT and SPI_PORT are read as well.

`

// parse reads flags, and for those that are not given the environment.
func parse(args []string, env func(string) (string, bool)) (settings, error) {
	var s settings
	flags := pflag.NewFlagSet("requester", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	o := &s.options
	flags.IntVar(&o.ProbesPort, "probes-port", requesterapi.DefaultProbesPort, "`port` of /ready, /healthz and /metrics")
	flags.IntVar(&o.SPIPort, "spi-port", requesterapi.DefaultSPIPort, "`port` of the SPI, which the controller uses")
	flags.IntVar(&o.MetricsPort, "metrics-port", 0, "`port` of /metrics alone; 0: there is none, and --probes-port has /metrics in any case")
	flags.IntVar(&o.DebugPort, "debug-port", 0, "`port` of the program's profiles, /debug/pprof/, on the Pod's 127.0.0.1: kubectl port-forward leads there; 0: there is none")
	flags.StringVar(&o.Host, "host", "", "`address` to listen on; empty listens on all addresses of the Pod. The port of profiles is on 127.0.0.1 in any case")
	flags.StringVar(&o.ClientCAFile, "client-ca", "", "`file` of the certificate authorities that may sign the certificates of SPI clients; empty: "+clientCA+" if it exists, else any client may use the SPI")
	flags.StringVar(&o.AcceleratorsFrom, "accelerators-from", "auto", "`source` of the UUIDs of the Pod's GPUs: env (NVIDIA_VISIBLE_DEVICES), nvml, or auto, which is env if it has UUIDs, else nvml")
	flags.DurationVar(&o.TerminationGrace, "termination-grace", defaultGrace, "how long to stay bound after SIGTERM; `duration` shorter than the Pod's terminationGracePeriodSeconds")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", defaultDelay, "how long to go on serving after SIGTERM, because proxies may still lead clients here; `duration`, of which at most half of --termination-grace counts. 0s frees the GPU at once, and loses the requests of these clients")
	flags.BoolVar(&s.version, "version", false, "print the version and exit")
	s.help = intro + flags.FlagUsages()
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return s, fmt.Errorf("unknown argument %q: the requester takes flags, or the one word wait", rest[0])
	}
	if err := fromEnvironment(flags, env); err != nil {
		return s, err
	}
	if o.ClientCAFile == "" && !s.version {
		var err error
		if o.ClientCAFile, err = mountedCA(mtls.Dir); err != nil {
			return s, err
		}
	}
	return s, s.check()
}

// clientCA is where a Pod mounts the ConfigMap that the controller publishes.
const clientCA = mtls.Dir + "/" + mtls.CAFile

// mountedCA is the file of the authorities in the folder where a Pod mounts their
// ConfigMap; empty where there is no such folder. A folder without the file is an
// error: the controller, which sees the mount, would ask by TLS a program that
// serves without. The kubelet starts the program again, and puts the file there
// meanwhile where it may.
func mountedCA(dir string) (string, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	file := filepath.Join(dir, mtls.CAFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s exists, but has no %s: mount the ConfigMap %s there with that file, and without optional, so that the Pod waits for it", dir, mtls.CAFile, mtls.ConfigMap)
	}
	return file, nil // where it cannot be looked at, reading it fails, and nobody is let in
}

func fromEnvironment(flags *pflag.FlagSet, env func(string) (string, bool)) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "version" {
			return
		}
		name := "HOTSEAT_REQUESTER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := env(name)
		if other, has := alias[f.Name]; !ok && has {
			name = other
			value, ok = env(name)
		}
		if !ok || value == "" || strings.HasPrefix(value, "tcp://") {
			return // tcp://: Kubernetes names the ports of a Service called "spi" so
		}
		if err := f.Value.Set(value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s is %q: give a value as for --%s (%s)", name, value, f.Name, f.Value.Type()))
		}
	})
	return errors.Join(wrong...)
}

// check says what is wrong with values that can be read.
func (s *settings) check() error {
	o := s.options
	if err := s.checkPorts(); err != nil {
		return err
	}
	switch {
	case o.AcceleratorsFrom != "auto" && o.AcceleratorsFrom != "env" && o.AcceleratorsFrom != "nvml":
		return fmt.Errorf("--accelerators-from is %q: give auto, nvml or env", o.AcceleratorsFrom)
	case o.TerminationGrace < 0:
		return fmt.Errorf("--termination-grace is %s: give 0s or more, such as 25s", o.TerminationGrace)
	case o.ShutdownDelay < 0:
		return fmt.Errorf("--shutdown-delay is %s: give 0s or more, such as 5s", o.ShutdownDelay)
	}
	return nil
}

func (s *settings) checkPorts() error {
	o := s.options
	ports := []struct {
		flag string
		port int
		zero string
	}{
		{"--probes-port", o.ProbesPort, "any free port"}, {"--spi-port", o.SPIPort, "any free port"},
		{"--metrics-port", o.MetricsPort, "none"}, {"--debug-port", o.DebugPort, "none"},
	}
	for n, p := range ports {
		if p.port < 0 || p.port > 65535 {
			return fmt.Errorf("%s is %d: give a port from 1 to 65535, or 0 for %s", p.flag, p.port, p.zero)
		}
		for _, other := range ports[:n] {
			if p.port == other.port && p.port != 0 {
				return fmt.Errorf("%s and %s are both %d: give two ports", other.flag, p.flag, p.port)
			}
		}
	}
	return nil
}
