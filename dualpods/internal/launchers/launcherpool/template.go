package launcherpool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Where a launcher Pod has what the controller gives it.
const (
	programDir     = "/hotseat"               // the launcher, copied in
	trustDir       = mtls.Dir                 // by what the launcher and the controller know each other
	stateDir       = "/var/lib/hotseat/state" // what a launcher remembers
	sharedDir      = "/dev/shm"               // shared memory of the engines
	modelsDir      = "/var/lib/hotseat/models"
	tokenKey       = "token"            // of the Secret, of launchers that were made before there were certificates
	copier         = "copy-launcher"    // the init container
	fieldTemplate  = "spec.podTemplate" // field of a LauncherConfig
	fieldContainer = fieldTemplate + ".spec.containers[" + podmeta.ServingContainer + "]"
	devicesEnv     = "NVIDIA_VISIBLE_DEVICES" // read by NVIDIA's container runtime

	programVolume, trustVolume, stateVolume, sharedVolume, kubeletVolume = "hotseat-program", "hotseat-tls", "hotseat-state", "hotseat-shm", "hotseat-pod-resources"
	claimVolume                                                          = "hotseat-claim" // and a number
)

// Image is where the launcher comes from.
type Image struct {
	Name string // its file /launcher is the launcher, /podresources the program beside it, /modelfetch what fetches models
	Port int32  // where launchers have their control API
}

// Template makes the Pod template of the launchers of a LauncherConfig, which
// find their certificate in the Secret of that name, and keep models as the group
// says; nil: none. Its annotation podmeta.AnnotationTemplateHash tells it from
// others. With problems it should not be used.
func Template(config *v1alpha1.LauncherConfig, image Image, secret string, group *v1alpha1.ModelCacheNodeGroup) (corev1.PodTemplateSpec, []podmeta.Problem) {
	theirs, problems := config.Template()
	main := podmeta.Container(&theirs.Spec, podmeta.ServingContainer)
	if len(problems) > 0 || main == nil {
		return theirs, problems
	}
	w := &making{config: config, image: image, secret: secret, group: group, pod: &theirs.Spec, main: main}
	w.refuse()
	w.run()
	w.probe()
	w.mount()
	w.place()
	w.haveModels()
	w.askKubelet()
	made := corev1.PodTemplateSpec{Spec: theirs.Spec}
	made.Labels, made.Annotations = maps.Clone(theirs.Labels), maps.Clone(theirs.Annotations)
	if made.Labels == nil {
		made.Labels = map[string]string{}
	}
	maps.Copy(made.Labels, Labels(config.Name))
	delete(made.Labels, podmeta.LabelModelNodeGroup)
	if group != nil {
		made.Labels[podmeta.LabelModelNodeGroup] = group.Name
	}
	if made.Annotations == nil {
		made.Annotations = map[string]string{}
	}
	delete(made.Annotations, podmeta.AnnotationTemplateHash)
	text, err := json.Marshal(made)
	if err != nil {
		w.problem(fieldTemplate, "cannot be written as JSON: "+err.Error())
	}
	sum := sha256.Sum256(text)
	made.Annotations[podmeta.AnnotationTemplateHash] = hex.EncodeToString(sum[:8])
	return made, w.problems
}

// Labels are those of the launchers of a LauncherConfig.
func Labels(config string) map[string]string {
	return map[string]string{
		podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: config, podmeta.LabelManagedBy: podmeta.ManagedBy,
	}
}

// making is a Pod template under way.
type making struct {
	config   *v1alpha1.LauncherConfig
	image    Image
	secret   string
	group    *v1alpha1.ModelCacheNodeGroup // nil: no models are kept
	pod      *corev1.PodSpec
	main     *corev1.Container
	problems []podmeta.Problem
}

func (w *making) problem(field, message string) {
	w.problems = append(w.problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message})
}

// decided are the flags of `launcher serve` that are not the template's to give,
// and who decides them.
var decided = map[string]string{
	"listen": "the controller", "instance-host": "the controller",
	"token-file": "the controller", "tls-cert": "the controller", "tls-key": "the controller", "client-ca": "the controller", "insecure-public": "the controller", "state-dir": "the controller",
	"budgets-max-instances": "spec.maxInstances", "budgets-max-sleepers-per-gpu": "spec.budgets.maxSleepersPerGPU",
	"budgets-max-sleeper-bytes-per-gpu": "spec.budgets.maxSleeperBytesPerGPU",
	"budgets-max-host-sleeper-bytes":    "spec.budgets.maxHostSleeperBytes", "budgets-min-residency": "spec.budgets.minResidency",
	"model-store": "spec.modelCache", "model-claims": "spec.modelCache.claims", "model-user": "the controller", "model-storage-limit": "the ModelCacheNodeGroup of spec.modelCache",
	"model-streams": "the ModelCacheNodeGroup of spec.modelCache", "model-bytes-per-second": "the ModelCacheNodeGroup of spec.modelCache",
}

// refuse finds what a template may not say.
func (w *making) refuse() {
	if len(w.main.Command) > 0 {
		w.problem(fieldContainer+".command", "is there, and the launcher runs in its place: leave it out; args are those of `launcher serve`")
	}
	for _, arg := range w.main.Args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if who, ok := decided[name]; ok && strings.HasPrefix(arg, "-") {
			w.problem(fieldContainer+".args", fmt.Sprintf("%s is decided by %s: leave it out", arg, who))
		}
	}
	for _, e := range w.main.Env {
		if e.Name == devicesEnv && (e.Value != "all" || e.ValueFrom != nil) {
			w.problem(fieldContainer+".env["+devicesEnv+"]", "is not all, and a launcher must see every GPU of its node: leave it out")
		}
	}
	for _, m := range w.main.VolumeMounts {
		if at := strings.TrimRight(m.MountPath, "/"); at == programDir || at == trustDir {
			w.problem(fieldContainer+".volumeMounts["+m.MountPath+"]", "is where the controller mounts something of its own: mount at another path")
		}
	}
	w.refuseOfPod()
}

// refuseOfPod finds what it may not say outside its main container.
func (w *making) refuseOfPod() {
	for _, v := range w.pod.Volumes {
		if slices.Contains([]string{programVolume, trustVolume, stateVolume, sharedVolume, kubeletVolume, podmeta.VolumeModels}, v.Name) || strings.HasPrefix(v.Name, claimVolume+"-") {
			w.problem(fieldTemplate+".spec.volumes["+v.Name+"]", "has the name of a volume of the controller: choose another")
		}
	}
	for _, c := range slices.Concat(w.pod.InitContainers, w.pod.Containers) {
		if c.Name == copier || c.Name == podmeta.PodResourcesContainer {
			w.problem(fieldTemplate+".spec.containers["+c.Name+"]", "has the name of a container of the controller: choose another")
		}
	}
	if p := w.pod.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		w.problem(fieldTemplate+".spec.restartPolicy", fmt.Sprintf("is %s: a launcher is always started again; leave it out", p))
	}
	if w.pod.NodeName != "" {
		w.problem(fieldTemplate+".spec.nodeName", "is there: say by spec.population.nodeSelector which nodes have launchers")
	}
}

// run has the main container run the launcher.
func (w *making) run() {
	copying := corev1.Container{
		Name: copier, Image: w.image.Name, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:      []string{"/copier", "/launcher", programDir},
		VolumeMounts: []corev1.VolumeMount{{Name: programVolume, MountPath: programDir}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	w.pod.InitContainers = slices.Insert(w.pod.InitContainers, 0, copying)
	w.main.Command = []string{programDir + "/launcher", "init", "--", "serve"}
	w.main.Args = slices.Concat(w.flags(), w.main.Args)
	if !slices.ContainsFunc(w.main.Env, func(e corev1.EnvVar) bool { return e.Name == devicesEnv }) {
		w.main.Env = append(w.main.Env, corev1.EnvVar{Name: devicesEnv, Value: "all"})
	}
	if !slices.ContainsFunc(w.main.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == w.image.Port }) {
		w.main.Ports = append(w.main.Ports, corev1.ContainerPort{Name: "control", ContainerPort: w.image.Port})
	}
	if w.main.ReadinessProbe == nil { // this path needs no certificate of the client
		w.main.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(w.image.Port), Scheme: corev1.URISchemeHTTPS},
		}}
	}
	if w.pod.AutomountServiceAccountToken == nil { // neither launcher nor engine asks the API server
		w.pod.AutomountServiceAccountToken = new(bool)
	}
	if w.pod.EnableServiceLinks == nil { // a Service named hotseat would look like settings
		w.pod.EnableServiceLinks = new(bool)
	}
}

// trustFlags are those of the launcher and of the program beside it.
var trustFlags = []string{
	"--tls-cert=" + trustDir + "/" + mtls.CertFile, "--tls-key=" + trustDir + "/" + mtls.KeyFile, clientCAFlag,
}

// clientCAFlag is of launchers that ask for a certificate.
const clientCAFlag = "--client-ca=" + trustDir + "/" + mtls.CAFile

func (w *making) flags() []string {
	flags := []string{
		fmt.Sprintf("--listen=0.0.0.0:%d", w.image.Port), "--instance-host=0.0.0.0",
		"--state-dir=" + stateDir, "--public-metrics",
	}
	flags = append(flags, trustFlags...)
	b := w.config.Spec.Budgets
	for _, n := range []struct {
		flag  string
		value *int32
	}{{"max-instances", w.config.Spec.MaxInstances}, {"max-sleepers-per-gpu", b.MaxSleepersPerGPU}} {
		if n.value != nil {
			flags = append(flags, fmt.Sprintf("--budgets-%s=%d", n.flag, *n.value))
		}
	}
	if q := b.MaxSleeperBytesPerGPU; q != nil {
		flags = append(flags, "--budgets-max-sleeper-bytes-per-gpu="+strconv.FormatInt(q.Value(), 10))
	}
	if q := b.MaxHostSleeperBytes; q != nil {
		flags = append(flags, "--budgets-max-host-sleeper-bytes="+strconv.FormatInt(q.Value(), 10))
	}
	if d := b.MinResidency; d != nil {
		flags = append(flags, "--budgets-min-residency="+d.Duration.String())
	}
	return flags
}

// mount gives the main container its volumes. For what is remembered and what is
// shared the template may have better ones.
func (w *making) mount() {
	mode := int32(0o444) // whoever runs in the Pod is whom the key is for, by whatever user id
	w.give(programDir, true, corev1.Volume{Name: programVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	w.give(trustDir, true, corev1.Volume{Name: trustVolume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: w.secret, DefaultMode: &mode},
	}})
	w.give(stateDir, false, corev1.Volume{Name: stateVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	w.give(sharedDir, false, corev1.Volume{Name: sharedVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
	}})
}

func (w *making) give(path string, readOnly bool, volume corev1.Volume) {
	there := func(m corev1.VolumeMount) bool { return strings.TrimRight(m.MountPath, "/") == path }
	if slices.ContainsFunc(w.main.VolumeMounts, there) {
		return
	}
	w.pod.Volumes = append(w.pod.Volumes, volume)
	w.main.VolumeMounts = append(w.main.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: path, ReadOnly: readOnly})
}

// place says which nodes may have a launcher.
func (w *making) place() {
	for _, key := range slices.Sorted(maps.Keys(w.config.Spec.Population.NodeSelector)) {
		value := w.config.Spec.Population.NodeSelector[key]
		if own, ok := w.pod.NodeSelector[key]; ok && own != value {
			w.problem("spec.population.nodeSelector["+key+"]", fmt.Sprintf("is %q, and %s.spec.nodeSelector says %q: no node has both", value, fieldTemplate, own))
			continue
		}
		if w.pod.NodeSelector == nil {
			w.pod.NodeSelector = map[string]string{}
		}
		w.pod.NodeSelector[key] = value
	}
}
