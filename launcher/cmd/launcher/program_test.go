package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	onPath := executable(t, filepath.Join(dir, "path", "vllm"))
	standIn := executable(t, filepath.Join(dir, "bin", "enginesim"))
	spaced := executable(t, filepath.Join(dir, "with space", "vllm"))
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	bin, path, empty := filepath.Join(dir, "bin"), filepath.Join(dir, "path"), filepath.Join(dir, "empty")

	for name, c := range map[string]struct {
		vllm, path, folder string
		want               program
		wantErr            string
	}{
		"with nothing asked for, vllm on PATH is taken":            {"", path, bin, program{argv: []string{onPath}}, ""},
		"without a vllm on PATH, the stand-in is taken and said":   {"", empty, bin, program{argv: []string{standIn}, standIn: true}, ""},
		"with neither, the error says both ways out":               {"", empty, empty, program{}, "install vLLM, or name its program by --vllm"},
		"a path is taken as it is":                                 {standIn, path, bin, program{argv: []string{standIn}}, ""},
		"a path with a space in it needs no quotes":                {spaced, path, bin, program{argv: []string{spaced}}, ""},
		"a name is looked up on PATH":                              {"vllm", path, bin, program{argv: []string{onPath}}, ""},
		"a command keeps its arguments, quotes respected":          {"vllm --a 'b c'", path, bin, program{argv: []string{onPath, "--a", "b c"}}, ""},
		"a quoted path with a space is the command's program":      {"'" + spaced + "' -x", path, bin, program{argv: []string{spaced, "-x"}}, ""},
		"a program that is not there is an error that names it":    {"/no/such/vllm", path, bin, program{}, "/no/such/vllm"},
		"what cannot be run is an error that names it":             {plain, path, bin, program{}, plain},
		"an open quote is an error":                                {"vllm 'x", path, bin, program{}, "close every quote"},
		"blanks are no command":                                    {"  ", path, bin, program{}, "as a command"},
		"a program asked for is not replaced by one that is there": {"vllm", empty, bin, program{}, "cannot find the program of --vllm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			got, err := findProgram(c.vllm, c.folder)
			if c.wantErr != "" {
				require.ErrorContains(t, err, c.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func executable(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	return path
}
