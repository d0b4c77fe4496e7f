package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// maxConfigFile bounds a --config file, in bytes.
const maxConfigFile = 1 << 20

// readConfig reads a file given with --config, and flattens it to arguments as
// vLLM does (FlexibleArgumentParser.load_config_file). vLLM puts them before
// the arguments of the command line, which therefore win. A relative path is
// relative to the working directory that launcher and engine share.
func readConfig(path string) (data []byte, tokens []string, err error) {
	if !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".yml") {
		return nil, nil, errors.New("its name must end in .yaml or .yml")
	}
	data, err = readRegular(path)
	var where *fs.PathError
	if errors.As(err, &where) {
		return nil, nil, where.Err
	}
	if err != nil {
		return nil, nil, err
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // PyYAML drops this mark as well
	if at := bytes.IndexAny(data, "\u0085\u2028\u2029"); at >= 0 {
		r, _ := utf8.DecodeRune(data[at:])
		return nil, nil, fmt.Errorf("it has %U, which vLLM reads as the start of a new line: write \\n", r)
	}
	var config yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(data, &config, yaml.UseOrderedMap()); err != nil {
		// The lines of the file, which the error would show, are left out.
		return nil, nil, errors.New(yaml.FormatError(err, false, false))
	}
	if len(config) == 0 {
		return nil, nil, errors.New("it has no option")
	}
	for _, entry := range config {
		key, ok := entry.Key.(string)
		if !ok {
			return nil, nil, fmt.Errorf("its key %v is not text", entry.Key)
		}
		tokens = append(tokens, configTokens("--"+key, entry.Value)...)
	}
	return data, tokens, nil
}

// configTokens gives one entry as arguments.
func configTokens(flag string, value any) []string {
	switch v := value.(type) {
	case bool:
		return configSwitch(flag, v)
	case []any:
		if len(v) == 0 {
			return nil
		}
		tokens := []string{flag}
		for _, element := range v {
			if object, ok := element.(yaml.MapSlice); ok {
				element = configJSON(object)
			}
			tokens = append(tokens, fmt.Sprint(element))
		}
		return tokens
	case yaml.MapSlice:
		return []string{flag, configJSON(v)}
	case string:
		// vLLM's YAML reader takes these words for booleans.
		if vllmFlags[canonicalFlag(flag)] == "0" {
			switch strings.ToLower(v) {
			case "yes", "on":
				return configSwitch(flag, true)
			case "no", "off":
				return configSwitch(flag, false)
			}
		}
		return []string{flag, v}
	case nil:
		return []string{flag, "None"}
	default:
		return []string{flag, fmt.Sprint(v)}
	}
}

// configJSON gives a nested value as vLLM passes it on. The launcher reads it to
// find secrets only.
func configJSON(v yaml.MapSlice) string {
	text, err := yaml.MarshalWithOptions(v, yaml.JSON())
	if err != nil {
		return "{}"
	}
	return strings.TrimSpace(string(text))
}

func configSwitch(flag string, on bool) []string {
	if on {
		return []string{flag}
	}
	no := "--no-" + strings.TrimPrefix(flag, "--")
	if _, ok := vllmFlags[no]; ok {
		return []string{no}
	}
	return nil
}

// readRegular reads a regular file: reading a device or a pipe could hold the
// launcher for ever.
func readRegular(path string) (data []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Size() > maxConfigFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxConfigFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxConfigFile))
}
