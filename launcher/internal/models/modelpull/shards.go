package modelpull

import (
	"fmt"
	"regexp"
	"strconv"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// shard is how weights in several files are named, such as
// model-00001-of-00004.safetensors. Of N shards, the numbers are 1 to N, or 0 to N-1. A few
// models, such as gpt-oss, have one shard more: 0 to N.
var shard = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.(?:safetensors|bin|gguf|pt|pth))$`)

// checkShards refuses a model whose source lacks some of the files that its weights are in. A
// selection may leave them out.
func checkShards(m *fetchapi.Manifest) error {
	there := map[string]bool{}
	for _, name := range m.LeftOut {
		there[name] = true
	}
	for _, f := range m.Files {
		there[f.Path] = true
	}
	checked := map[string]bool{}
	for _, f := range m.Files {
		parts := shard.FindStringSubmatch(f.Path)
		if parts == nil || checked[parts[1]+parts[3]+parts[4]] {
			continue
		}
		checked[parts[1]+parts[3]+parts[4]] = true
		all, err := strconv.Atoi(parts[3])
		if err != nil {
			return err
		}
		named := func(n int) string { return fmt.Sprintf("%s-%05d-of-%s%s", parts[1], n, parts[3], parts[4]) }
		first, last := 1, all
		if there[named(0)] {
			first, last = 0, all-1
		}
		for n := first; n <= last; n++ {
			if name := named(n); !there[name] {
				return &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: fmt.Sprintf("%s has %s, but not %s: complete the source, or leave these weights out by --exclude", m.URI, f.Path, name)}
			}
		}
	}
	return nil
}
