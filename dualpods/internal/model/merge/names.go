package merge

import (
	"cmp"
	"time"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// AdapterName is the name under which clients ask for an adapter of a model.
func AdapterName(model, adapter string) string { return model + "_" + adapter }

// Names returns the names by which clients may ask for a Model: its own, its aliases, and those of its adapters.
func Names(m *v1alpha1.Model) []string {
	all := append([]string{m.Name}, m.Spec.Aliases...)
	for _, adapter := range m.Spec.Adapters {
		all = append(all, AdapterName(m.Name, adapter.Name))
	}
	return all
}

// ByAge orders two Models by when they were created, and then by name. An alias of both stands for the first one.
func ByAge(created time.Time, name string, otherCreated time.Time, other string) int {
	return cmp.Or(created.Compare(otherCreated), cmp.Compare(name, other))
}
