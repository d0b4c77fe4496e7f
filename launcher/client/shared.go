package client

import (
	"unique"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// sharing is a model whose texts are those of equal ones, as far as these are held
// somewhere: who follows a thousand launchers hears each text a thousand times.
func sharing(m launcherapi.Model) launcherapi.Model {
	for _, text := range []*string{&m.ID, &m.URI, &m.Ref, &m.Revision, &m.State, &m.Reason, &m.Cause, &m.Path, &m.HubCache, &m.Retention, &m.PageCache} {
		*text = unique.Make(*text).Value()
	}
	for _, texts := range [][]string{m.Include, m.Exclude, m.Lacks, m.Refs, m.WantedBy, m.LRUBy, m.PrivateBy, m.WarmBy, m.InUseBy} {
		for i := range texts {
			texts[i] = unique.Make(texts[i]).Value()
		}
	}
	return m
}
