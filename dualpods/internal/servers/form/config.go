package form

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// FromConfig reduces an InferenceServerConfig, for a requester that names it.
// The requester's own problems are those that podmeta.ReadRequester tells.
func FromConfig(requester *corev1.Pod, config *v1alpha1.InferenceServerConfig) (Form, []podmeta.Problem) {
	who, _ := podmeta.ReadRequester(requester)
	w := ofConfig(config, who.OwnLabels(requester))
	w.form.GPUs, w.form.ModelCache = who.GPUs, who.ModelCache
	if named := who.LauncherConfig; named != "" && named != config.Spec.LauncherConfigName {
		w.invalid("spec.launcherConfigName", fmt.Sprintf("%s is another than the requester's annotation %s, which is %s: keep one of the two",
			config.Spec.LauncherConfigName, podmeta.AnnotationLauncherConfig, named))
	}
	w.checkPort(requester, who.AdminPort, configPath+".port")
	return w.done()
}

// CheckConfig reduces an InferenceServerConfig that no requester names yet, and
// finds what is wrong with it whoever names it. The form has no GPUs.
func CheckConfig(config *v1alpha1.InferenceServerConfig) (Form, []podmeta.Problem) {
	w := ofConfig(config, nil)
	return w.done()
}

const configPath = "spec.modelServerConfig"

// ofConfig reads what an InferenceServerConfig says by itself. own are the labels
// of the requester.
func ofConfig(config *v1alpha1.InferenceServerConfig, own map[string]string) work {
	const path = configPath
	server := &config.Spec.ModelServerConfig
	w := work{form: Form{
		Env:            map[string]string{},
		Port:           server.Port,
		LauncherConfig: config.Spec.LauncherConfigName,
		Generation:     config.Generation,
	}}
	args, field := server.Args, path+".args"
	switch {
	case server.Options != nil && len(server.Args) > 0, server.Options == nil && len(server.Args) == 0:
		w.invalid(path, "give either options or args")
	case server.Options != nil:
		var err error
		field = path + ".options"
		if args, err = launcherapi.SplitOptions(*server.Options); err != nil {
			w.invalid(field, fmt.Sprintf("cannot be split into words: %v", err))
		}
	}
	var port int32
	w.form.Args, port = w.takeAddress(args, field)
	if port != 0 && port != server.Port {
		w.invalid(field, fmt.Sprintf("--port %d is another than %s.port, which is %d: leave --port out", port, path, server.Port))
	}
	if server.Port < 1 || server.Port > 65535 {
		w.invalid(path+".port", fmt.Sprintf("%d is no port: it should be a number from 1 to 65535", server.Port))
	}
	for _, env := range server.Env {
		where := fmt.Sprintf("%s.env[%s]", path, env.Name)
		if _, twice := w.form.Env[env.Name]; twice {
			w.invalid(where, "stands there twice: keep one")
			continue
		}
		w.setEnv(env.Name, env.Value, where)
	}
	wanted := map[string]string{}
	for key, value := range server.Labels {
		wanted[key] = string(value)
	}
	w.relay(wanted, own, path+".labels")
	w.annotate(server.Annotations, path+".annotations")
	return w
}
