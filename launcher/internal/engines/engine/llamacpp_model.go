package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// This file finds the GGUF files of a model, and reckons what memory they need.

// ggufPart is the end of the name of one part of a model: its number, and how many there are.
var ggufPart = regexp.MustCompile(`-(\d{5})-of-(\d{5})\.gguf$`)

// modelFile returns the file that llama-server is given for a model: the path itself, or, of a
// folder, the model in it.
func modelFile(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ggufIn(path)
	}
	return path, nil // if it is not there, llama-server says so
}

// ggufIn returns the one model in a folder: its only GGUF file, or its first part. Files that
// begin with mmproj belong to models that see or hear, and are no models. With an error it returns
// the folder.
func ggufIn(folder string) (string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return folder, inputError("", "--model", "cannot read the model's folder %s: %s", folder, withoutPath(err))
	}
	var found []string
	for _, entry := range entries {
		name := entry.Name()
		part := ggufPart.FindStringSubmatch(name)
		if strings.HasSuffix(name, ".gguf") && !strings.HasPrefix(name, "mmproj") && (part == nil || part[1] == "00001") {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return folder, inputError("", "--model", "there is no GGUF file in %s, and llama-server reads no other models", folder)
	case 1:
		return filepath.Join(folder, found[0]), nil
	}
	return folder, inputError("", "--model", "%s has several models: %s; give the path of one of them, or pull one of them alone (include)", folder, strings.Join(found, ", "))
}

// ggufParts are the files of the model that begins with this one.
func ggufParts(file string) []string {
	part := ggufPart.FindStringSubmatchIndex(file)
	if part == nil {
		return []string{file}
	}
	parts, err := filepath.Glob(globLiteral(file[:part[2]]) + "[0-9][0-9][0-9][0-9][0-9]" + globLiteral(file[part[3]:]))
	if err != nil || len(parts) == 0 {
		return []string{file}
	}
	slices.Sort(parts)
	return parts
}

// globLiteral makes a pattern that matches a text alone.
func globLiteral(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// overhead is what an engine takes of each GPU beside weights and cache: the context of CUDA, and
// buffers to compute in.
const overhead = 512 << 20

// memory is what a model takes of each of so many GPUs: its files, in which weights are as they
// are in memory, and the cache of its context in 16 bits, divided among the GPUs, and the
// overhead. It is an estimate from above: flags may leave weights in main memory
// (--n-gpu-layers), or make the cache smaller (--cache-type-k). A file that cannot be read
// counts nothing; llama-server says then what is wrong.
func (s llamaSettings) memory(file string, gpus int) DeviceMemory {
	if s.devices == "none" {
		return DeviceMemory{}
	}
	var bytes uint64
	for _, part := range append(ggufParts(file), s.files...) {
		if info, err := os.Stat(part); err == nil {
			bytes += uint64(info.Size())
		}
	}
	shape, err := readShape(file)
	if err == nil {
		context := uint64(s.context)
		if context == 0 {
			context = shape.context
		}
		bytes += context * shape.cachePerToken()
	}
	return DeviceMemory{Bytes: bytes/uint64(gpus) + overhead}
}

// withoutPath is the reason of an error about a file that the message has named already.
func withoutPath(err error) error {
	if where, ok := errors.AsType[*fs.PathError](err); ok {
		return where.Err
	}
	return err
}
