package modelsource

import (
	"errors"
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"

	"hotseat.dev/hotseat/spec/modelref"
)

// The types of the layers of a model of Ollama, as its program makes them (server/create.go
// of github.com/ollama/ollama). A layer has no file name.
const (
	ollamaTypes     = "application/vnd.ollama.image."
	ollamaModel     = ollamaTypes + "model"
	ollamaProjector = ollamaTypes + "projector"
	ollamaAdapter   = ollamaTypes + "adapter"
	ollamaTensor    = ollamaTypes + "tensor"
	ollamaLicense   = ollamaTypes + "license"
)

// newOllama returns a model of Ollama's registry, or of another one in the same form. Its
// files are the GGUF files and the licences. The template and the parameters, which are
// for Ollama's own server, are left out: the GGUF file has a template of its own.
func newOllama(uri string, o Options) (Source, error) {
	name := modelref.ParseOllama(uri)
	if !name.IsValid() {
		return nil, invalid("%s", modelref.NoOllama(uri))
	}
	return newModelAt(registry.Reference{Registry: name.Registry, Repository: name.Repository, Reference: name.Tag}, modelref.Address(uri), ollamaFile, o)
}

// ollamaFile names the file of a layer.
func ollamaFile(layer ocispec.Descriptor, before int) (string, error) {
	number := ""
	if before > 0 {
		number = fmt.Sprintf("-%d", before+1)
	}
	switch kind, _, _ := strings.Cut(layer.MediaType, ";"); kind {
	case ollamaModel:
		return "model" + number + ".gguf", nil
	case ollamaProjector:
		return "mmproj-model" + number + ".gguf", nil
	case ollamaLicense:
		return "LICENSE" + number, nil
	case ollamaAdapter:
		return "", errors.New("the model has an adapter, and llama-server would answer without it: choose a model without adapters")
	case ollamaTensor:
		return "", errors.New("the model has tensors in layers of their own, which only Ollama reads: choose a model whose weights are a GGUF file")
	default:
		return "", nil
	}
}
