// Package systemd holds the unit of the launcher for machines without
// Kubernetes; its test is all the Go there is.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const unitFile = "hotseat-launcher.service"

// directives reads the unit: section and name to values, in their order.
func directives(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	found, section := map[string][]string{}, ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			name, value, ok := strings.Cut(line, "=")
			require.True(t, ok, line)
			key := section + "." + name
			found[key] = append(found[key], value)
		}
	}
	return found
}

func TestTheUnitKeepsEnginesAliveAndGivesThemWhatTheyNeed(t *testing.T) {
	unit := directives(t)
	for name, want := range map[string]string{
		"Service.ExecStart":                "/usr/local/bin/launcher init --misconfigured-exit-code 78 -- serve",
		"Service.KillMode":                 "process", // a crash of the launcher ends no engine
		"Service.Restart":                  "always",
		"Service.RestartPreventExitStatus": "78", // a wrong configuration stays wrong; a crash of a Go program has 2
		"Unit.StartLimitIntervalSec":       "0",  // what passes may take its time
		"Service.Delegate":                 "yes",
		"Service.StateDirectory":           "hotseat",
		"Service.OOMPolicy":                "continue",
		"Service.LimitMEMLOCK":             "infinity",
		"Service.LimitNOFILE":              "1048576",
		"Service.NoNewPrivileges":          "yes",
		"Install.WantedBy":                 "multi-user.target",
	} {
		require.Equal(t, []string{want}, unit[name], name)
	}
	require.Contains(t, strings.Join(unit["Service.Environment"], " "), "HOTSEAT_STATE_DIR=%S/hotseat")
	for _, harmful := range []string{
		"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", // close the GPUs
		"ProtectControlGroups", "ProtectKernelTunables", // close the control groups
		"MemoryDenyWriteExecute",   // stops compiled kernels
		"PrivateTmp", "PrivateIPC", // take what engines that outlive a restart have open
		"DynamicUser", // removes the engines' shared memory at a restart
	} {
		require.NotContains(t, unit, "Service."+harmful)
	}
}

func TestSystemdAcceptsTheUnit(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("SYSTEMD-ANALYZE IS NOT HERE: the unit is checked by its directives only")
		return
	}
	// The programs that the unit names need not be installed here.
	content, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), unitFile)
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(string(content), "/usr/local/bin/launcher", self)), 0o600))
	out, err := exec.Command(verify, "verify", unit).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
}
