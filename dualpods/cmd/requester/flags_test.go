package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func environ(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestAFlagCountsMoreThanTheEnvironment(t *testing.T) {
	s, err := parse(nil, environ())
	require.NoError(t, err)
	assert.Equal(t, []any{8080, 8081, 0, 0, "", "auto", 25 * time.Second, 5 * time.Second},
		[]any{s.options.ProbesPort, s.options.SPIPort, s.options.MetricsPort, s.options.DebugPort, s.options.Host, s.options.AcceleratorsFrom, s.options.TerminationGrace, s.options.ShutdownDelay})

	s, err = parse([]string{"--spi-port=1"}, environ(
		"HOTSEAT_REQUESTER_SPI_PORT", "2", "SPI_PORT", "3",
		"PROBES_PORT", "4", "HOTSEAT_REQUESTER_PROBES_PORT", "5",
		"HOTSEAT_REQUESTER_METRICS_PORT", "6", "HOTSEAT_REQUESTER_DEBUG_PORT", "7",
		"HOTSEAT_REQUESTER_TERMINATION_GRACE", "1m",
		"HOTSEAT_REQUESTER_SHUTDOWN_DELAY", "0s",
		"HOTSEAT_REQUESTER_ACCELERATORS_FROM", "env",
		"HOTSEAT_REQUESTER_HOST", "::1"))
	require.NoError(t, err)
	assert.Equal(t, []any{5, 1, 6, 7, "::1", "env", time.Minute, time.Duration(0)},
		[]any{s.options.ProbesPort, s.options.SPIPort, s.options.MetricsPort, s.options.DebugPort, s.options.Host, s.options.AcceleratorsFrom, s.options.TerminationGrace, s.options.ShutdownDelay})

	s, err = parse(nil, environ("PROBES_PORT", "4", "SPI_PORT", "tcp://10.96.0.5:8081"))
	require.NoError(t, err)
	assert.Equal(t, []int{4, 8081}, []int{s.options.ProbesPort, s.options.SPIPort}, "what Kubernetes says of a Service named spi is no port of ours")
}

func TestAWrongCommandLineIsToldWhatWouldBeRight(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag: --port":                    {"--port=1"},
		`unknown argument "serve"`:                {"serve"},
		"invalid argument \"x\" for \"--spi-port": {"--spi-port=x"},
		"--spi-port is 70000: give a port from":   {"--spi-port=70000"},
		"--probes-port is -1: give a port from":   {"--probes-port=-1"},
		"are both 8081: give two ports":           {"--probes-port=8081"},
		"--metrics-port is 65536: give a port":    {"--metrics-port=65536"},
		"--debug-port is -1: give a port from 1":  {"--debug-port=-1"},
		"--metrics-port and --debug-port are bot": {"--metrics-port=8083", "--debug-port=8083"},
		"--probes-port and --metrics-port are bo": {"--metrics-port=8080"},
		"give auto, nvml or env":                  {"--accelerators-from=smi"},
		"give 0s or more, such as 25s":            {"--termination-grace=-1s"},
		"give 0s or more, such as 5s":             {"--shutdown-delay=-1s"},
	} {
		_, err := parse(args, environ())
		require.ErrorContains(t, err, want)
	}
	_, err := parse(nil, environ("HOTSEAT_REQUESTER_TERMINATION_GRACE", "25"))
	require.ErrorContains(t, err, `HOTSEAT_REQUESTER_TERMINATION_GRACE is "25": give a value as for --termination-grace (duration)`)
	_, err = parse(nil, environ("SPI_PORT", "spi"))
	require.ErrorContains(t, err, `SPI_PORT is "spi"`)
}

func TestHelpListsEachFlagAndAWrongOneLeadsThere(t *testing.T) {
	var out, failed strings.Builder
	require.Equal(t, 0, run([]string{"--help"}, environ(), &out, &failed))
	for _, flag := range []string{"--probes-port", "--spi-port", "--metrics-port", "--debug-port", "--host", "--accelerators-from", "--termination-grace", "--shutdown-delay", "--version"} {
		assert.Contains(t, out.String(), flag)
	}
	assert.Empty(t, failed.String())
	out.Reset()
	require.Equal(t, exitUsage, run([]string{"--nothing"}, environ(), &out, &failed))
	assert.Equal(t, "requester: unknown flag: --nothing\nrequester --help lists the flags.\n", failed.String())
	assert.Empty(t, out.String())
	require.Equal(t, 0, run([]string{"--version"}, environ(), &out, &failed))
	assert.Equal(t, version+"\n", out.String())
}

func TestAFolderForTheAuthoritiesThatLacksThemIsNotServedWithoutTLS(t *testing.T) {
	dir := t.TempDir()
	file, err := mountedCA(filepath.Join(dir, "none"))
	require.NoError(t, err)
	assert.Empty(t, file, "nothing is mounted: anybody may give orders")

	_, err = mountedCA(dir)
	require.EqualError(t, err, dir+" exists, but has no ca.crt: mount the ConfigMap hotseat-ca there with that file, and without optional, so that the Pod waits for it")
	require.NoError(t, os.Symlink(filepath.Join("..data", "ca.crt"), filepath.Join(dir, "ca.crt"))) // as the kubelet mounts files, of which this one is gone
	_, err = mountedCA(dir)
	require.ErrorContains(t, err, "has no ca.crt")

	require.NoError(t, os.Mkdir(filepath.Join(dir, "..data"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..data", "ca.crt"), nil, 0o600))
	file, err = mountedCA(dir)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "ca.crt"), file)
}
