package secrets

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// maxEnvFile bounds a file that holds the value of a variable, in bytes.
const maxEnvFile = 64 << 10

// Environment returns the variables of a create call and the secrets among them. It reads
// values that come from files; each file must be in one of the folders. The error has the
// code invalid.
func Environment(variables map[string]launcherapi.EnvValue, folders []string) (env map[string]string, found Set, err error) {
	env = make(map[string]string, len(variables))
	for name, v := range variables {
		value := v.Value
		if v.FromFile != "" {
			read, err := readEnvFile(v.FromFile, folders)
			if err != nil {
				return nil, found, launcher.Invalidf("body.env_vars."+name, "cannot read the value of %s from its file: %w", name, err)
			}
			value = read
		}
		if v.FromFile != "" || IsName(name) {
			found.add(value)
		}
		env[name] = value
	}
	return env, found, nil
}

func readEnvFile(path string, folders []string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s is not an absolute path", path)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("cannot find the file: %w", err)
	}
	if !within(target, folders) {
		return "", fmt.Errorf("%s is outside the folders of env_file_dirs (%s); move the file, or add its folder to env_file_dirs", path, strings.Join(folders, ", "))
	}
	f, err := os.OpenFile(target, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would hold the launcher for ever
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	if len(data) > maxEnvFile {
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxEnvFile)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}

// within reports whether a file is in one of the folders, or below one.
func within(target string, folders []string) bool {
	for _, dir := range folders {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(dir, target); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}
