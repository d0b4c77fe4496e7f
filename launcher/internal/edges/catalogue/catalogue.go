// Package catalogue reads which models a launcher offers: the sections commands, models,
// selectors and profiles of its configuration file, and of the files of the folder conf.d beside it.
// It finds all mistakes at once, tells what changed between two catalogues, and says what
// a client's model name means. It starts nothing.
package catalogue

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Catalogue is what a launcher offers, checked, in the order of its files.
type Catalogue struct {
	Commands  []Command
	Models    []Model
	Selectors []Selector
	Profiles  []Profile

	commands map[string]Place // where the command lines of the models stand, by their names
}

// CommandPlace returns where the command line of a model stands.
func (c *Catalogue) CommandPlace(model string) Place { return c.commands[model] }

// Model is one engine that the launcher starts when clients ask for it.
type Model struct {
	Name    string
	Aliases []string
	Engine  string
	// Options is the engine's command line as one string, Args the same as a list. The
	// other one is empty.
	Options string
	Args    []string
	GPUs    GPUs
	// GPUMemory is how many bytes of each GPU a model of a command takes; 0: it is not known.
	GPUMemory int64
	// Env has values as they were written, with ${env:X}; see [Model.EnvVars].
	Env map[string]launcherapi.EnvValue

	Priority int  // of its requests; the larger one goes first
	Pinned   bool // it never goes for another model
	Preload  bool // it is awake after a start of the launcher

	SleepAfter  time.Duration // without requests; 0: never
	SleepLevel  int           // of that sleep
	StopAfter   time.Duration // without requests; 0: never
	Concurrency int           // requests at once; 0: no limit

	StartMethod string // empty: the launcher's
	Restart     string // RestartOnFailure or RestartNever

	Params inference.Params // of requests by any name
	// Variants are further names of the model, each with a change of the request's
	// parameters that is made after Params. A name or alias of the model may be one.
	Variants map[string]inference.Params
}

// Values of Model.Restart: whether an engine that failed is started again.
const (
	RestartOnFailure = "on-failure"
	RestartNever     = "never"
)

// GPUs are those of a model: a count of any, or chosen ones. If both are empty, the
// engine's arguments say how many the model needs.
type GPUs struct {
	Count int
	UUIDs []string
}

// Selector is a name that stands for one of several models at each request.
type Selector struct {
	Name     string
	Strategy string
	Models   []string // names, aliases or variants of models, those first that are preferred
	N        int      // with StrategySpillover: requests of a model before the next one gets some
}

// The strategies of selectors. nearest takes a model that is awake, else sleeping, else
// starting, else any. pin takes the first one. spillover fills them in order.
const (
	StrategyNearest   = "nearest"
	StrategyPin       = "pin"
	StrategySpillover = "spillover"
)

// Profile is a set of pins, which are in force while the profile is chosen.
type Profile struct {
	Name string
	// Pins say which model, variant or selector a name stands for. With an empty one the
	// name is turned off.
	Pins map[string]string
}

// Machine is what the catalogue is checked against.
type Machine struct {
	Engines []string // the names of the engines without those of commands, the default first
	GPUs    []string // UUIDs; nil: unknown, and not checked
	Env     func(string) (string, bool)
	// LookPath finds a program; nil: programs are not looked for.
	LookPath func(string) (string, error)
}

// Folder is where further files with models stand: the folder conf.d beside the
// configuration file.
func Folder(file string) string { return filepath.Join(filepath.Dir(file), "conf.d") }

// model is the index of the model with the name, or -1.
func (c *Catalogue) model(name string) int {
	return slices.IndexFunc(c.Models, func(m Model) bool { return m.Name == name })
}

// Names are all names of the model: its own, its aliases, and its variants.
func (m *Model) Names() []string {
	all := append([]string{m.Name}, m.Aliases...)
	for _, variant := range sortedKeys(m.Variants) {
		if !slices.Contains(all, variant) {
			all = append(all, variant)
		}
	}
	return all
}

// EnvVars gives the engine's variables, with the launcher's own in place of ${env:X}.
func (m *Model) EnvVars(env func(string) (string, bool)) map[string]launcherapi.EnvValue {
	all := make(map[string]launcherapi.EnvValue, len(m.Env))
	for name, v := range m.Env {
		v.Value, _ = expand(v.Value, env)
		all[name] = v
	}
	return all
}

// expand replaces each ${env:X} of a text. It gives the variables that are not set too.
func expand(text string, env func(string) (string, bool)) (expanded string, unset []string) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${env:")
		out.WriteString(before)
		if !found {
			return out.String(), unset
		}
		name, after, closed := strings.Cut(rest, "}")
		value, set := "", false
		if closed {
			value, set = env(name)
		}
		if !set {
			unset = append(unset, name)
		}
		out.WriteString(value)
		text = after
	}
}
