package engine

import (
	"errors"
	"io/fs"
	"os"
	"path"
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
func (s llamaSettings) modelFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return s.ggufIn(path)
	case err == nil && s.pick != "":
		return path, inputError("", "--hf-file", "--hf-file says which file of a folder or of a model of the store is the model, and %s is a file: leave --hf-file out", path)
	}
	return path, nil // if it is not there, llama-server says so
}

// ggufIn returns the one model in a folder: its only GGUF file, or its first part, or that of
// --hf-file. If there is none, it looks in the folder's folders, where publishers put the parts of
// large models. With an error it returns the folder.
func (s llamaSettings) ggufIn(folder string) (string, error) {
	names, err := filesIn(folder)
	if err != nil {
		return folder, inputError("", "--model", "cannot read the model's folder %s: %s", folder, withoutPath(err))
	}
	found := s.models(names)
	top := slices.DeleteFunc(slices.Clone(found), func(name string) bool { return strings.Contains(name, "/") })
	if len(top) > 0 {
		found = top
	}
	switch {
	case len(found) == 1:
		return filepath.Join(folder, filepath.FromSlash(found[0])), nil
	case len(found) > 1:
		return folder, inputError("", "--model", "%s has several models: %s; say which by --hf-file, or pull one of them alone (include)", folder, strings.Join(found, ", "))
	case s.pick != "":
		return folder, inputError("", "--hf-file", "%s has no GGUF file %s; it has the models %s", folder, s.pick, strings.Join(llamaSettings{}.models(names), ", "))
	}
	return folder, inputError("", "--model", "there is no GGUF file in %s, and llama-server reads no other models", folder)
}

// filesIn returns the files in a folder and in its folders, by their paths below it.
func filesIn(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			names = append(names, entry.Name())
			continue
		}
		below, err := os.ReadDir(filepath.Join(folder, entry.Name()))
		if err != nil {
			continue // it may be somebody else's, and the model elsewhere
		}
		for _, file := range below {
			names = append(names, entry.Name()+"/"+file.Name())
		}
	}
	return names, nil
}

// models returns the files among these that are models, or first parts of some: those of --hf-file,
// if it is given. Files that begin with mmproj belong to models that see or hear, and are no models.
func (s llamaSettings) models(names []string) (found []string) {
	for _, name := range names {
		part := ggufPart.FindStringSubmatch(name)
		isModel := strings.HasSuffix(name, ".gguf") && !strings.HasPrefix(path.Base(name), "mmproj") && (part == nil || part[1] == "00001")
		if isModel && (s.pick == "" || name == s.pick || path.Base(name) == s.pick) {
			found = append(found, name)
		}
	}
	return found
}

// lacks returns which of the files that a selection leaves out llama-server needs: the missing parts
// of the models that it has, or, if it has no model, all that are left out.
func (s llamaSettings) lacks(has, leftOut []string) (lacks []string) {
	found := s.models(has)
	if len(found) == 0 {
		return leftOut
	}
	for _, name := range leftOut {
		part := ggufPart.FindStringSubmatchIndex(name)
		isPart := func(model string) bool {
			return len(model) == len(name) && model[:part[2]] == name[:part[2]] && model[part[3]:] == name[part[3]:]
		}
		if part != nil && slices.ContainsFunc(found, isPart) {
			lacks = append(lacks, name)
		}
	}
	return lacks
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
