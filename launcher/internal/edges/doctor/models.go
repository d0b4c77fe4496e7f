package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// checkModels reads the models of the configuration, as serve does when it starts.
func checkModels(_ context.Context, e *examination) []Result {
	if e.File == "" {
		return nil
	}
	machine := catalogue.Machine{Engines: []string{new(engine.VLLM).Name(), new(engine.LlamaCpp).Name()}, Env: os.LookupEnv}
	for _, d := range e.gpus.devices {
		machine.GPUs = append(machine.GPUs, d.UUID)
	}
	c, err := catalogue.Load(e.File, machine)
	if err != nil {
		return one(Result{Name: "models", Status: Fail, Finding: strings.ReplaceAll(err.Error(), "\n", "; "), Remedy: "correct the configuration: serve does not start with it"})
	}
	return one(Result{Name: "models", Status: OK, Finding: fmt.Sprintf("%s describes %d", e.File, len(c.Models))})
}
