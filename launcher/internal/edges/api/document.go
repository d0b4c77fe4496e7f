package api

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const jsonContentType = "application/json"

// config is huma's configuration: JSON alone, no routes of its own, and the
// head of the OpenAPI document.
func config() huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[problem](), reflect.TypeFor[launcherapi.Problem]())
	schemas.RegisterTypeAlias(reflect.TypeFor[launcherapi.Duration](), reflect.TypeFor[durationSchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[launcherapi.EnvValue](), reflect.TypeFor[envValueSchema]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       launcherapi.ServiceName,
				Version:     launcherapi.ServiceVersion,
				Description: description,
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "Needed when the launcher was started with --token-file, unless the client shows a certificate signed by an authority in --client-ca. Without both flags, clients need nothing."},
				},
			},
			Servers: []*huma.Server{{URL: "/", Description: "The launcher that serves this document, by default at http://127.0.0.1:8001."}},
			Tags: []*huma.Tag{
				{Name: tagInstances, Description: "Engines that the launcher supervises."},
				{Name: tagGPUs, Description: "Swaps, and what is on the GPUs."},
				{Name: tagPorts, Description: "Ports that an instance is told by $(PORT_0) to $(PORT_7), known before it is created."},
				{Name: tagDoor, Description: "The address at which all models are served by their names."},
				{Name: tagCompiled, Description: "Code that engines compiled when they started, kept for the next start. When the launcher keeps none, each of these operations answers 404."},
				{Name: tagModels, Description: "Models in the folder of --model-store. When the launcher has none, each of these operations answers 404."},
				{Name: tagService, Description: "The launcher itself."},
			},
		},
		Formats:       map[string]huma.Format{jsonContentType: jsonFormat, "json": jsonFormat},
		DefaultFormat: jsonContentType,
	}
}

const description = `Control API of the hotseat launcher, which supervises ` + "`vllm serve`" + ` processes and swaps them on the node's GPUs.

Paths, names and status codes under /v2/vllm/instances are those of the llm-d launcher. Durations are strings such as "1m30s" or numbers of seconds, and 0 is the default; answers give milliseconds in fields that end in _ms and bytes in fields that end in _bytes. Times are RFC 3339 in UTC. Unknown fields of a request are refused; null in one that is not required is the same as leaving it out. A body is smaller than 10 MiB.

Errors are RFC 9457 problem documents, also where no operation is: 404, or 405 with Allow for another method than a path takes. Any operation may answer 403 (a web page of another site, or a launcher without a token called by a name that is not its own), 408 and 413 (the body came too slowly, or is too large) and 500. HEAD is answered as GET is, without the body, and OPTIONS by 204 with Allow.`

var jsonFormat = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		if p, ok := v.(*problem); ok {
			v = p.Problem
		}
		document := buffers.Get().(*bytes.Buffer)
		defer buffers.Put(document)
		document.Reset()
		if pieces, ok := v.(encoded); ok {
			for _, piece := range pieces {
				document.Write(piece)
			}
		} else if err := encode(document, v); err != nil {
			return err
		}
		_, _ = document.WriteTo(w) // the client may be gone
		return nil
	},
	Unmarshal: decode,
}

// buffers are the buffers that answers are written in.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// encoded is a JSON document in pieces.
type encoded [][]byte

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// durationSchema and envValueSchema describe types whose JSON has more than one
// form.
type (
	durationSchema struct{}
	envValueSchema struct{}
)

const (
	// durationPattern matches the durations that [time.ParseDuration] reads,
	// without the negative ones.
	durationPattern = `^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	maxSeconds      = math.MaxInt64 / int64(time.Second)
)

func (durationSchema) Schema(huma.Registry) *huma.Schema {
	zero, most := 0.0, float64(maxSeconds)
	return &huma.Schema{
		Description: "A string such as \"1m30s\", or a number of seconds. Not negative, and not above 292 years.",
		Examples:    []any{"1m30s", 90},
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Pattern: durationPattern},
			{Type: huma.TypeNumber, Minimum: &zero, Maximum: &most},
		},
	}
}

func (envValueSchema) Schema(huma.Registry) *huma.Schema {
	atLeast := 1
	return &huma.Schema{
		Description: "A string, or the content of a file below one of the folders that the launcher allows.",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{
				Type:                 huma.TypeObject,
				Properties:           map[string]*huma.Schema{"from_file": {Type: huma.TypeString, MinLength: &atLeast}},
				Required:             []string{"from_file"},
				AdditionalProperties: false,
			},
		},
	}
}

// noForm says which forms a value may have, for an error about one that has none of
// them. In a request only the two types above have several.
func noForm(location string) string {
	if strings.Contains(location, ".env_vars.") {
		return `write a string, or {"from_file": path}`
	}
	return `write a duration such as "1m30s", or a number of seconds, not a negative one and not above 292 years`
}
