package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kballard/go-shellquote"
)

// program is the engine's program.
type program struct {
	argv    []string // before the engine's own arguments; argv[0] is an absolute path
	standIn bool     // the program is the stand-in, for want of a vllm
}

// standInName is the file name of the stand-in engine, which `make build` puts
// beside the launcher.
const standInName = "enginesim"

// findProgram finds the program of --vllm:
//
//	a path or name of a program      that program
//	a shell-quoted command           its first word's program, with the other words
//	nothing                          vllm on PATH, else the stand-in in the folder of the launcher
func findProgram(vllm, folder string) (program, error) {
	if vllm == "" {
		return defaultProgram(folder)
	}
	if path, err := lookUp(vllm); err == nil {
		return program{argv: []string{path}}, nil
	}
	words, err := shellquote.Split(vllm)
	if err != nil || len(words) == 0 {
		return program{}, fmt.Errorf("cannot read --vllm %q as a command: close every quote", vllm)
	}
	path, err := lookUp(words[0])
	if err != nil {
		return program{}, fmt.Errorf("cannot find the program of --vllm: %w; give the path of vllm, or a command quoted as for a shell", err)
	}
	return program{argv: append([]string{path}, words[1:]...)}, nil
}

// findLlama finds the program of --llama-server, or llama-server on PATH. nil: there is none, and
// none was asked for.
func findLlama(asked string) ([]string, error) {
	if asked == "" {
		path, err := lookUp("llama-server")
		if err != nil {
			return nil, nil //nolint:nilerr // the engine is not used
		}
		return []string{path}, nil
	}
	path, err := lookUp(asked)
	if err != nil {
		return nil, fmt.Errorf("cannot find the program of --llama-server: %w; give the path of llama-server", err)
	}
	return []string{path}, nil
}

func defaultProgram(folder string) (program, error) {
	path, err := lookUp("vllm")
	if err == nil {
		return program{argv: []string{path}}, nil
	}
	if standIn, missing := lookUp(filepath.Join(folder, standInName)); missing == nil {
		return program{argv: []string{standIn}, standIn: true}, nil
	}
	return program{}, fmt.Errorf("cannot find an engine: %w, and there is no stand-in (%s) in %s; install vLLM, or name its program by --vllm", err, standInName, folder)
}

// lookUp gives the absolute path of a program that can be run.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// ownFolder is the folder of the launcher's executable.
func ownFolder() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", errors.New("cannot tell where the launcher's executable is: name the engine's program by --vllm")
	}
	return filepath.Dir(own), nil
}
