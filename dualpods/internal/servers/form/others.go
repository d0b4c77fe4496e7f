package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// What a patch may say of the Pod and of its serving container besides what is
// read elsewhere: true is passed over, for the requester has been placed, the
// launcher Pod has its own resources and the launcher watches its engines
// itself. A field that is not here is one that an engine cannot have.
var (
	podFields = map[string]bool{
		"containers": false, "initContainers": false, "volumes": false, // seen to by other means

		"activeDeadlineSeconds": true, "affinity": true, "enableServiceLinks": true, "imagePullSecrets": true,
		"nodeName": true, "nodeSelector": true, "overhead": true, "preemptionPolicy": true, "priority": true,
		"priorityClassName": true, "readinessGates": true, "resources": true, "restartPolicy": true,
		"schedulerName": true, "schedulingGates": true, "terminationGracePeriodSeconds": true,
		"tolerations": true, "topologySpreadConstraints": true,
	}
	containerFields = map[string]bool{
		"args": false, "command": false, "env": false, "envFrom": false, "image": false, "name": false,
		"ports": false, "volumeMounts": false,

		"imagePullPolicy": true, "livenessProbe": true, "readinessProbe": true, "resources": true,
		"startupProbe": true, "terminationMessagePath": true, "terminationMessagePolicy": true,
	}
)

const ofThePod = "an engine has what its launcher Pod has: let the podTemplate of the LauncherConfig say it, or leave it out"

// others sees to the fields that nobody has read, as far as the patch changed
// them.
func (w *work) others(pod, base *corev1.Pod, theirs, own *corev1.Container) {
	w.changed(fields(pod.Spec), fields(base.Spec), podFields, "spec.")
	w.changed(fields(theirs), fields(own), containerFields, containerField+".")
	w.moreContainers(pod.Spec.InitContainers, base.Spec.InitContainers, "spec.initContainers")
	w.moreContainers(pod.Spec.Containers, base.Spec.Containers, "spec.containers")
}

func (w *work) changed(now, before map[string]json.RawMessage, known map[string]bool, prefix string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if bytes.Equal(now[name], before[name]) {
			continue
		}
		switch ignored, ok := known[name]; {
		case !ok:
			w.cannotGive(prefix+name, ofThePod)
		case ignored:
			w.form.Ignored = append(w.form.Ignored, prefix+name)
		}
	}
}

func (w *work) moreContainers(now, before []corev1.Container, field string) {
	for _, c := range now {
		same := func(o corev1.Container) bool { return equality.Semantic.DeepEqual(o, c) }
		if field+"["+c.Name+"]" != containerField && !slices.ContainsFunc(before, same) {
			w.cannotGive(fmt.Sprintf("%s[%s]", field, c.Name), "an engine has no containers beside it: let the podTemplate of the LauncherConfig have this one, or leave it out")
		}
	}
}

// fields returns what is set in a part of a Pod, as JSON by its names there.
func fields(part any) map[string]json.RawMessage {
	text, err := json.Marshal(part)
	if err != nil {
		return nil
	}
	set := map[string]json.RawMessage{}
	_ = json.Unmarshal(text, &set)
	return set
}
