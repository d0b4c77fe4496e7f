package form

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// relay splits the labels that an input wants into those to put on the
// requester and those that the requester has with another value.
func (w *work) relay(wanted, own map[string]string, field string) {
	w.form.Labels = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		value := wanted[key]
		where := fmt.Sprintf("%s[%s]", field, key)
		if has, ok := own[key]; ok {
			if has != value {
				w.form.LeftAlone = append(w.form.LeftAlone, key)
			}
			continue
		}
		if theControllers(key) {
			w.invalid(where, "is the controller's own: choose a key with another prefix")
			continue
		}
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			w.invalid(where, "is no key of a label: "+wrong[0])
			continue
		}
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			w.invalid(where, fmt.Sprintf("%q is no value of a label: %s", value, wrong[0]))
			continue
		}
		w.form.Labels[key] = value
	}
}

// annotate takes annotations for the instance, but for those that speak of Pods.
func (w *work) annotate(wanted map[string]string, field string) {
	w.form.Annotations = map[string]string{}
	for key, value := range wanted {
		if theControllers(key) && key != launcherapi.AnnotationPinned {
			if key != podmeta.AnnotationLauncherConfig {
				w.form.Ignored = append(w.form.Ignored, fmt.Sprintf("%s[%s]", field, key))
			}
			continue
		}
		w.form.Annotations[key] = value
	}
}

func theControllers(key string) bool {
	return strings.HasPrefix(key, podmeta.Prefix) || strings.HasPrefix(key, podmeta.PrefixAlias) || strings.HasPrefix(key, podmeta.PrefixOwn)
}
