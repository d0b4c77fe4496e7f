package modelpull

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
)

func TestModelWithoutAllOfItsShardsIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files, leftOut []string
		lacks          string
	}{
		"whole":                    {[]string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, nil, ""},
		"one is missing":           {[]string{"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}, nil, "has model-00001-of-00003.safetensors, but not model-00002-of-00003.safetensors"},
		"one is left out":          {[]string{"model-00002-of-00002.safetensors"}, []string{"model-00001-of-00002.safetensors"}, ""},
		"all that is there is out": {[]string{"config.json"}, []string{"model-00001-of-00002.safetensors"}, ""},
		"numbered from zero":       {[]string{"m-00000-of-00002.bin", "m-00001-of-00002.bin"}, nil, ""},
		"one, numbered zero":       {[]string{"m-00000-of-00001.bin"}, nil, ""},
		"numbered zero to all":     {[]string{"m-00000-of-00002.bin", "m-00001-of-00002.bin", "m-00002-of-00002.bin"}, nil, ""},
		"zero is left out":         {[]string{"m-00001-of-00002.bin"}, []string{"m-00000-of-00002.bin"}, ""},
		"the last after zero":      {[]string{"m-00000-of-00003.bin", "m-00001-of-00003.bin"}, nil, "but not m-00002-of-00003.bin"},
		"one between zero and all": {[]string{"m-00000-of-00002.bin", "m-00002-of-00002.bin"}, nil, "but not m-00001-of-00002.bin"},
		"zero itself is missing":   {[]string{"m-00001-of-00002.bin"}, nil, "but not m-00002-of-00002.bin"},
		"in a folder":              {[]string{"q4/m-00001-of-00002.gguf", "q8/m-00002-of-00002.gguf"}, nil, "but not q4/m-00002-of-00002.gguf"},
		"of another number":        {[]string{"m-00001-of-00001.bin", "m-00001-of-00002.bin"}, nil, "but not m-00002-of-00002.bin"},
		"what is no weights":       {[]string{"data-00001-of-00002.parquet"}, nil, ""},
	} {
		m := &fetchapi.Manifest{URI: "x://m", LeftOut: c.leftOut}
		for _, name := range c.files {
			m.Files = append(m.Files, fetchapi.File{Path: name})
		}
		err := checkShards(m)
		if c.lacks == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.lacks, name)
		assert.True(t, failedFor(err, fetchapi.ReasonInvalid), name)
	}
}
