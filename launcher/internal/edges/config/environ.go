package config

import (
	"regexp"
	"slices"
	"strings"
)

const envPrefix = "HOTSEAT_"

// elsewhere are variables with the prefix of the settings' that are read by other
// parts of the launcher, by its client, or by its build and tests.
var elsewhere = []string{
	"HOTSEAT_SERVER", "HOTSEAT_TOKEN", // the client's
	"HOTSEAT_SIMGPU_DIR", "HOTSEAT_NVML_LIBRARY", "HOTSEAT_CRASH_AT", "HOTSEAT_EXIT_DIR",
	"HOTSEAT_INSTANCE", "HOTSEAT_LAUNCHER", "HOTSEAT_PUBLIC", "HOTSEAT_PAD", // marks of engines
	"HOTSEAT_CACHE", "HOTSEAT_CLUSTER", "HOTSEAT_TEST_LONG",
}

// ofAService matches the variables that Kubernetes gives every container for a
// Service whose name begins with hotseat.
var ofAService = regexp.MustCompile(`^HOTSEAT_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Ignored gives a line about each variable of an environment (as of [os.Environ])
// that looks like a setting and is none: most likely it was misspelt.
func Ignored(environ []string) []string {
	keys := []string{fileKey}
	for _, s := range table(&Config{}) {
		keys = append(keys, s.key)
	}
	var told []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		asked, ours := strings.CutPrefix(name, envPrefix)
		if !ours || slices.Contains(elsewhere, name) || ofAService.MatchString(name) ||
			slices.ContainsFunc(keys, func(key string) bool { return envName(key) == name }) {
			continue
		}
		line := "the environment variable " + name + " is no setting and is ignored"
		if instead := Removed(asked); instead != "" {
			line += instead
		} else if meant := NearestKey(asked, keys); meant != "" {
			line += ": did you mean " + envName(meant) + "?"
		}
		told = append(told, line)
	}
	slices.Sort(told)
	return told
}
