package config

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

const fileKey = "config"

// FlagGroup is the annotation of a flag that names the group which help shows it in.
const FlagGroup = "hotseat.dev/flag-group"

// Loader registers flags, and reads the configuration when these have been parsed.
type Loader struct {
	flags map[string]*flagValue // by key
	uid   int
}

// flagValue only keeps the texts of a flag, so that Load finds every mistake and
// tells each in the same way.
type flagValue struct {
	kind, standard string
	texts          []string
}

func (f *flagValue) String() string { return f.standard }
func (f *flagValue) Type() string   { return f.kind }
func (f *flagValue) Set(s string) error {
	f.texts = append(f.texts, s)
	return nil
}

// Register adds the flags of all settings, and --config, to the flag set.
func Register(flags *pflag.FlagSet) *Loader {
	l := &Loader{flags: map[string]*flagValue{}, uid: os.Geteuid()}
	add := func(key, kind, standard, help string) *pflag.Flag {
		f := &flagValue{kind: kind, standard: standard}
		l.flags[key] = f
		flag := flags.VarPF(f, strings.TrimPrefix(flagName(key), "--"), "", help)
		if kind == "bool" {
			flag.NoOptDefVal = "true"
		}
		return flag
	}
	add(fileKey, "path", "", "YAML or JSON file with settings: the names of the flags, with underscores")
	for _, group := range sections(&Config{}) {
		for _, s := range group.settings {
			add(s.key, s.value.kind, s.standard, s.help).Annotations = map[string][]string{FlagGroup: {group.title}}
		}
	}
	return l
}

// Load reads the configuration: flags, then the environment (os.LookupEnv or
// the like; an empty variable counts as none), then the file of --config or
// HOTSEAT_CONFIG, then defaults. Every source is checked whole, also where
// another one wins. The error is an *Error.
func (l *Loader) Load(env func(string) (string, bool)) (Config, error) {
	var c Config
	settings := table(&c)
	file := l.file(env)
	given, err := l.gather(settings, file, env)
	if err != nil {
		return Config{}, err
	}
	origin := map[string]string{}
	for _, s := range settings {
		sources := append([]assignment{{key: s.key, texts: s.value.split(s.standard), where: flagName(s.key)}}, given[s.key]...)
		for _, from := range sources {
			if err := s.value.set(from.texts); err != nil {
				return Config{}, &Error{from.where, err.Error()}
			}
			origin[s.key] = from.where
		}
	}
	c.FrontDoorAsked = len(given[frontDoorKey]) > 0
	if file != "" {
		if c.File, err = filepath.Abs(file); err != nil {
			return Config{}, &Error{flagName(fileKey), err.Error()}
		}
	}
	if c.StateDir == "" {
		if c.StateDir, err = defaultStateDir(l.uid, env); err != nil {
			return Config{}, err
		}
	}
	if err := c.check(func(key string) string { return origin[key] }); err != nil {
		return Config{}, err
	}
	return c, nil
}

// assignment is the value of a setting in one source.
type assignment struct {
	key   string
	texts []string
	where string
}

// file gives the path of the configuration file; empty: none.
func (l *Loader) file(env func(string) (string, bool)) string {
	file, _ := env(envName(fileKey))
	if texts := l.flags[fileKey].texts; len(texts) > 0 {
		file = texts[len(texts)-1]
	}
	return file
}

// gather gives the assignments of each setting, the one that counts most last.
func (l *Loader) gather(settings []setting, file string, env func(string) (string, bool)) (map[string][]assignment, error) {
	given := map[string][]assignment{}
	add := func(a assignment) { given[a.key] = append(given[a.key], a) }
	if file != "" {
		data, err := readFile(file)
		if err != nil {
			return nil, err
		}
		assignments, err := parseFile(file, data, settings)
		if err != nil {
			return nil, err
		}
		for _, a := range assignments {
			add(a)
		}
	}
	for _, s := range settings {
		if text, _ := env(envName(s.key)); text != "" {
			add(assignment{s.key, s.value.split(text), envName(s.key)})
		}
	}
	for _, s := range settings {
		if texts := l.flags[s.key].texts; len(texts) > 0 {
			if !s.value.list {
				texts = texts[len(texts)-1:]
			}
			add(assignment{s.key, s.value.split(texts...), flagName(s.key)})
		}
	}
	return given, nil
}

// split parts the texts of a list by commas. An empty text is an empty list.
func (v value) split(texts ...string) []string {
	if !v.list {
		return texts
	}
	var all []string
	for _, t := range texts {
		if t != "" {
			all = append(all, strings.Split(t, ",")...)
		}
	}
	return all
}
