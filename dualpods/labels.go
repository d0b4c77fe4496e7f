package dualpods

import (
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetLabels gives an object labels, and reports whether it lacked any of them. Other labels stay. The map of labels that it
// had stays as it is: a copy of the object may share it.
func SetLabels(o client.Object, labels map[string]string) (lacked bool) {
	has := maps.Clone(o.GetLabels())
	if has == nil {
		has = map[string]string{}
	}
	for key, value := range labels {
		if is, ok := has[key]; !ok || is != value {
			has[key], lacked = value, true
		}
	}
	if lacked {
		o.SetLabels(has)
	}
	return lacked
}
