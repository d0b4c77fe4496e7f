package form

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// variables are what $(NAME) is expanded from, as the kubelet does it.
type variables struct {
	values   map[string]string
	withheld map[string]bool // those that are there in a Pod of its own alone
}

// environment reads the container's variables, in their order, into the form. Those that
// LeaderWorkerSet adds to its Pods differ between Pods that run the same server, so they are no
// part of what runs, unless the patch refers to them as $(NAME) or sets them itself.
func (w *work) environment(theirs, own *corev1.Container) variables {
	vars := variables{map[string]string{}, map[string]bool{}}
	for _, env := range theirs.Env {
		field := fmt.Sprintf("%s.env[%s]", containerField, env.Name)
		inherited := slices.ContainsFunc(own.Env, func(o corev1.EnvVar) bool { return reflect.DeepEqual(o, env) })
		switch {
		case inherited && requestersOwn(env):
			vars.withheld[env.Name] = true
		case env.ValueFrom != nil:
			vars.withheld[env.Name] = true
			w.cannotGive(field+".valueFrom", fmt.Sprintf("an engine cannot have a value from %s: let the podTemplate of the LauncherConfig set %s, which all of its engines then have, or write the value plainly", source(env.ValueFrom), env.Name))
		default:
			value := w.expand(env.Value, vars, field)
			vars.values[env.Name] = value
			delete(vars.withheld, env.Name)
			if !inherited || !podmeta.IsLeaderWorkerSetEnv(env.Name) {
				w.setEnv(env.Name, value, field)
			}
		}
	}
	if len(theirs.EnvFrom) > 0 && !reflect.DeepEqual(theirs.EnvFrom, own.EnvFrom) {
		w.cannotGive(containerField+".envFrom", "an engine cannot have variables from Secrets or ConfigMaps: let the podTemplate of the LauncherConfig set them, or write them plainly under env")
	}
	return vars
}

// requestersOwn tells whether a variable of the requester speaks of the
// requester: of its Pod, or to the requester program.
func requestersOwn(env corev1.EnvVar) bool {
	return env.ValueFrom != nil || strings.HasPrefix(env.Name, "HOTSEAT_") || env.Name == "PROBES_PORT" || env.Name == "SPI_PORT"
}

func source(from *corev1.EnvVarSource) string {
	switch {
	case from.SecretKeyRef != nil:
		return "a Secret"
	case from.ConfigMapKeyRef != nil:
		return "a ConfigMap"
	case from.FieldRef != nil:
		return "a field of its Pod"
	case from.ResourceFieldRef != nil:
		return "its container's resources"
	}
	return "elsewhere"
}

// expand replaces $(NAME) by the variable's value. $$ stands for $, and what
// names no variable stays as it is.
// https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
func (w *work) expand(text string, vars variables, field string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		text = text[i:]
		end := strings.IndexByte(text, ')')
		switch {
		case text[1] == '$':
			out.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && end >= 0:
			name := text[2:end]
			value, ok := vars.values[name]
			switch {
			case vars.withheld[name]:
				w.cannotGive(field, fmt.Sprintf("refers to $(%s), which an engine does not have: write its value plainly", name))
			case !ok:
				value = text[:end+1]
			}
			out.WriteString(value)
			text = text[end+1:]
		default:
			out.WriteByte('$')
			text = text[1:]
		}
	}
}

// mounts reads what the patch mounts. A /dev/shm in memory each launcher has.
func (w *work) mounts(pod *corev1.Pod, theirs, own *corev1.Container) {
	for _, mount := range theirs.VolumeMounts {
		if slices.ContainsFunc(own.VolumeMounts, func(o corev1.VolumeMount) bool { return reflect.DeepEqual(o, mount) }) {
			continue
		}
		field := fmt.Sprintf("%s.volumeMounts[%s]", containerField, mount.MountPath)
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		switch {
		case i < 0:
			w.invalid(field, fmt.Sprintf("names the volume %q, which spec.volumes does not have", mount.Name))
		case mount.SubPathExpr != "" || mount.MountPropagation != nil:
			w.cannotGive(field, "an engine has no mounts of its own, and so no subPathExpr or mountPropagation: let the podTemplate of the LauncherConfig mount what it needs")
		default:
			source := pod.Spec.Volumes[i].VolumeSource
			if mount.MountPath == "/dev/shm" && source.EmptyDir != nil && source.EmptyDir.Medium == corev1.StorageMediumMemory {
				continue
			}
			w.form.Mounts = append(w.form.Mounts, dualpods.Mount{Field: field, Path: mount.MountPath, SubPath: mount.SubPath, ReadOnly: mount.ReadOnly, Source: source})
		}
	}
}

// On settles the form for launchers of a Pod template: their image is the
// form's. An image that is another and mounts that they lack are problems.
func (f Form) On(launcher *corev1.PodSpec) (Form, []podmeta.Problem) {
	need := f.Need()
	lacks := need.Lacks(launcher)
	if c := podmeta.Container(launcher, podmeta.ServingContainer); c != nil {
		f.Image, f.Mounts = c.Image, nil
	}
	return f, lacks
}
