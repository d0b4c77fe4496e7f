package engine

import (
	"errors"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
)

// commandLine is what the launcher has read from an instance's arguments.
type commandLine struct {
	settings    settings
	rest        []string // the arguments without model, address and --config
	compiled    []string // the words that may decide what the engine compiles
	config      []byte   // content of the --config file
	configPath  string
	configWords []string // the content as arguments
	notes       []string
	headless    bool // the engine is a worker: a rank that serves no HTTP
}

// readCommandLine reads the arguments and the file that they name with
// --config. Instances listen on instanceHost and no wider. r is the rank of the engine; nil:
// it has none.
func readCommandLine(tokens []string, instanceHost string, r *rank.Rank) (commandLine, error) {
	items, err := readItems(tokens)
	if err != nil {
		return commandLine{}, err
	}
	line := commandLine{settings: defaultSettings()}
	line.settings.ranked, line.headless = r != nil, r != nil && r.IsWorker()
	if err := line.readConfigOf(items); err != nil {
		return commandLine{}, err
	}
	if err := line.chooseModel(items); err != nil {
		return commandLine{}, err
	}
	for _, it := range items {
		if err := line.settings.read(it); err != nil {
			return commandLine{}, err
		}
		line.noteCompiled(it)
		switch it.flag {
		case "", "--model", "--host", "--port", "--config":
		case "--api-server-count":
			if !line.headless { // vLLM refuses it beside --headless
				line.rest = append(line.rest, it.raw...)
			}
		default:
			line.rest = append(line.rest, it.raw...)
		}
	}
	if line.headless {
		line.settings.host, line.settings.port = "", 0 // it listens nowhere
	}
	note, err := readHost(line.settings.host, instanceHost)
	if note != "" {
		line.notes = append(line.notes, note)
	}
	return line, err
}

// readConfigOf reads the settings of the file named by --config.
func (l *commandLine) readConfigOf(items []item) error {
	var paths []string
	for _, it := range items {
		if it.flag == "--config" && !it.dotted {
			paths = append(paths, it.values...)
		}
	}
	switch {
	case len(paths) == 0:
		return nil
	case len(paths) > 1:
		return inputError("", "--config", "--config is given twice: vLLM reads one file only")
	}
	path := paths[0]
	data, tokens, err := readConfig(path)
	if err != nil {
		return inputError("", "--config", "cannot read the --config file %s: %v", path, err)
	}
	l.config, l.configPath, l.configWords = data, path, tokens
	if err := l.readEntries(tokens); err != nil {
		var input *InputError
		if errors.As(err, &input) {
			return inputError("", input.Flag, "the --config file %s: %s", path, input.Message)
		}
		return err
	}
	return nil
}

func (l *commandLine) readEntries(tokens []string) error {
	items, err := readItems(tokens)
	if err != nil {
		return err
	}
	for _, it := range items {
		if l.headless && it.flag == "--api-server-count" {
			return inputError("", it.flag, "vLLM refuses it for a rank other than the entry; move it to the arguments, of which the launcher gives it to the entry alone")
		}
		if err := l.settings.read(it); err != nil {
			return err
		}
		l.noteCompiled(it)
	}
	return nil
}

// chooseModel finds the model: the argument that belongs to no flag, or --model, or
// else that of the configuration file.
func (l *commandLine) chooseModel(items []item) error {
	var found []string
	unsure := ""
	for _, it := range items {
		switch {
		case it.flag == "", it.flag == "--model" && !it.dotted:
			found = append(found, it.values...)
		case !it.known && !it.inline && !it.dotted && len(it.values) > 0:
			unsure = it.flag
		}
	}
	switch {
	case len(found) > 1:
		return inputError("", "--model", "more than one model is given, or an argument too many: %q", found)
	case len(found) == 1:
		l.settings.model = found[0]
	case l.settings.model != "":
	case unsure != "":
		return inputError("", "--model", "it is not clear which argument is the model, and which belongs to %s: put the model first", unsure)
	default:
		l.settings.model = vllmDefaultModel
		l.notes = append(l.notes, "no model is named: vLLM's default, "+vllmDefaultModel+", is served")
	}
	if m := l.settings.model; m == "" || m[0] == '-' {
		return inputError("", "--model", "%q is not a model: give a name or a folder", m)
	}
	return nil
}
