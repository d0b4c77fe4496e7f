package launcherpool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Paths, names and fields of what the controller adds to a launcher Pod.
const (
	programDir     = "/hotseat" // the launcher program
	trustDir       = mtls.Dir   // certificates of the launcher and its authorities
	stateMount     = "/var/lib/hotseat/state"
	stateDir       = stateMount + "/launcher" // the launcher creates it: others may write to the volume itself
	sharedDir      = "/dev/shm"               // shared memory of the engines
	modelsDir      = "/var/lib/hotseat/models"
	tokenKey       = "token"            // key in the Secret of launchers that predate certificates
	copier         = "copy-launcher"    // the init container that copies the programs
	fieldTemplate  = "spec.podTemplate" // of a LauncherConfig
	fieldContainer = fieldTemplate + ".spec.containers[" + podmeta.ServingContainer + "]"
	devicesEnv     = "NVIDIA_VISIBLE_DEVICES" // read by NVIDIA's container runtime
	rankAddressEnv = "HOTSEAT_RANK_ADDRESS"   // read by the launcher as --rank-address

	rankAddressFlag = "rank-address"

	programVolume, trustVolume, stateVolume, sharedVolume = "hotseat-program", "hotseat-tls", "hotseat-state", "hotseat-shm"
	claimVolume                                           = "hotseat-claim" // a number follows
)

// Image is the container image with the launcher's programs.
type Image struct {
	Name string // has the files /launcher, /copier and /modelfetch
	Port int32  // the launcher's control port
}

// Template returns the Pod template of the launchers of a LauncherConfig. The Secret of
// that name has their certificate. The group says how they keep models; nil: they keep
// none. The PriorityClass is that of launchers whose template names none; empty: none.
// The annotation podmeta.AnnotationTemplateHash has the template's hash. A template with
// problems must not be used.
func Template(config *v1alpha1.LauncherConfig, image Image, secret string, group *v1alpha1.ModelCacheNodeGroup, priorityClass string) (corev1.PodTemplateSpec, []podmeta.Problem) {
	theirs, problems := config.Template()
	main := podmeta.Container(&theirs.Spec, podmeta.ServingContainer)
	if len(problems) > 0 || main == nil {
		return theirs, problems
	}
	w := &templateBuilder{config: config, image: image, secret: secret, group: group, pod: &theirs.Spec, main: main}
	w.refuseContainerFields()
	w.runLauncher()
	w.secureProbes()
	w.addVolumes()
	w.selectNodes()
	w.addModels()
	w.protect(priorityClass)
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

// Labels returns the labels of the launchers of a LauncherConfig.
func Labels(config string) map[string]string {
	return map[string]string{
		podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: config, podmeta.LabelManagedBy: podmeta.ManagedBy,
	}
}

// templateBuilder builds a Pod template.
type templateBuilder struct {
	config   *v1alpha1.LauncherConfig
	image    Image
	secret   string
	group    *v1alpha1.ModelCacheNodeGroup // nil: the launchers keep no models
	pod      *corev1.PodSpec
	main     *corev1.Container
	problems []podmeta.Problem
}

func (w *templateBuilder) problem(field, message string) {
	w.problems = append(w.problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message})
}

// reservedFlags are the flags of `launcher serve` that a template must not set, and what sets
// them.
var reservedFlags = map[string]string{
	"listen": "the controller", "instance-host": "the controller",
	"token-file": "the controller", "tls-cert": "the controller", "tls-key": "the controller", "client-ca": "the controller", "insecure-public": "the controller", "state-dir": "the controller",
	"budgets-max-instances": "spec.maxInstances", "budgets-max-sleepers-per-gpu": "spec.budgets.maxSleepersPerGPU",
	"budgets-max-sleeper-bytes-per-gpu": "spec.budgets.maxSleeperBytesPerGPU",
	"budgets-max-host-sleeper-bytes":    "spec.budgets.maxHostSleeperBytes", "budgets-min-residency": "spec.budgets.minResidency",
	"model-store": "spec.modelCache", "model-claims": "spec.modelCache.claims", "model-user": "the controller", "model-storage-limit": "the ModelCacheNodeGroup of spec.modelCache",
	"model-streams": "the ModelCacheNodeGroup of spec.modelCache", "model-bytes-per-second": "the ModelCacheNodeGroup of spec.modelCache",
}

// refuseContainerFields reports what a template must not have.
func (w *templateBuilder) refuseContainerFields() {
	if len(w.main.Command) > 0 {
		w.problem(fieldContainer+".command", "must be empty, because the container runs the launcher: remove it; args are those of `launcher serve`")
	}
	for _, arg := range w.main.Args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if who, ok := reservedFlags[name]; ok && strings.HasPrefix(arg, "-") {
			w.problem(fieldContainer+".args", fmt.Sprintf("%s is set by %s: remove it", arg, who))
		}
	}
	for _, e := range w.main.Env {
		if e.Name == devicesEnv && (e.Value != "all" || e.ValueFrom != nil) {
			w.problem(fieldContainer+".env["+devicesEnv+"]", "must be all, so that the launcher sees every GPU of its node: remove it")
		}
	}
	w.refuseRankAddress()
	for _, m := range w.main.VolumeMounts {
		if at := strings.TrimRight(m.MountPath, "/"); at == programDir || at == trustDir {
			w.problem(fieldContainer+".volumeMounts["+m.MountPath+"]", "is reserved for the controller: mount at another path")
		}
	}
	w.refusePodFields()
}

// refuseRankAddress reports an address for ranks that only the launcher's own Pod can reach. The
// launcher itself would refuse each rank, since the controller names the entry by its Pod's address.
func (w *templateBuilder) refuseRankAddress() {
	refuse := func(field, address string) {
		if net.ParseIP(address).IsLoopback() || address == "localhost" {
			w.problem(field, address+" is an address that other launchers cannot reach, so no server over several nodes could run: remove it, and ranks listen at the address of their Pod")
		}
	}
	for n, arg := range w.main.Args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name != rankAddressFlag || !strings.HasPrefix(arg, "-") {
			continue
		}
		if !joined && n+1 < len(w.main.Args) {
			value = w.main.Args[n+1]
		}
		refuse(fieldContainer+".args", value)
	}
	for _, e := range w.main.Env {
		if e.Name == rankAddressEnv {
			refuse(fieldContainer+".env["+rankAddressEnv+"]", e.Value)
		}
	}
}

// refusePodFields reports what it must not have outside the main container.
func (w *templateBuilder) refusePodFields() {
	for _, v := range w.pod.Volumes {
		if slices.Contains([]string{programVolume, trustVolume, stateVolume, sharedVolume, podmeta.VolumeModels}, v.Name) || strings.HasPrefix(v.Name, claimVolume+"-") {
			w.problem(fieldTemplate+".spec.volumes["+v.Name+"]", "has a name that is reserved for the controller: choose another")
		}
	}
	for _, c := range slices.Concat(w.pod.InitContainers, w.pod.Containers) {
		if c.Name == copier {
			w.problem(fieldTemplate+".spec.containers["+c.Name+"]", "has a name that is reserved for the controller: choose another")
		}
	}
	if p := w.pod.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		w.problem(fieldTemplate+".spec.restartPolicy", fmt.Sprintf("is %s, but the kubelet must always restart a launcher: remove it", p))
	}
	if w.pod.NodeName != "" {
		w.problem(fieldTemplate+".spec.nodeName", "must be empty: select the nodes by spec.population.nodeSelector")
	}
}

// runLauncher makes the main container run the launcher.
func (w *templateBuilder) runLauncher() {
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
	podIP := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}
	for _, added := range []corev1.EnvVar{{Name: devicesEnv, Value: "all"}, {Name: rankAddressEnv, ValueFrom: podIP}} {
		if !slices.ContainsFunc(w.main.Env, func(e corev1.EnvVar) bool { return e.Name == added.Name }) {
			w.main.Env = append(w.main.Env, added)
		}
	}
	if !slices.ContainsFunc(w.main.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == w.image.Port }) {
		w.main.Ports = append(w.main.Ports, corev1.ContainerPort{Name: "control", ContainerPort: w.image.Port})
	}
	if w.main.ReadinessProbe == nil { // this path needs no client certificate
		w.main.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(w.image.Port), Scheme: corev1.URISchemeHTTPS},
		}}
	}
	if w.pod.AutomountServiceAccountToken == nil { // neither launcher nor engine calls the API server
		w.pod.AutomountServiceAccountToken = new(bool)
	}
	if w.pod.EnableServiceLinks == nil { // variables of a Service named hotseat would look like settings
		w.pod.EnableServiceLinks = new(bool)
	}
}

// trustFlags are the TLS flags of the launcher.
var trustFlags = []string{
	"--tls-cert=" + trustDir + "/" + mtls.CertFile, "--tls-key=" + trustDir + "/" + mtls.KeyFile, clientCAFlag,
}

// clientCAFlag makes a launcher ask for a client certificate.
const clientCAFlag = "--client-ca=" + trustDir + "/" + mtls.CAFile

func (w *templateBuilder) flags() []string {
	flags := []string{
		fmt.Sprintf("--listen=0.0.0.0:%d", w.image.Port), "--instance-host=0.0.0.0", "--front-door=",
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

// addVolumes adds the volumes of the main container. The template may have its own volumes
// for the state folder and for shared memory.
func (w *templateBuilder) addVolumes() {
	mode := int32(0o444) // the container may run as any user
	w.addVolume(programDir, true, corev1.Volume{Name: programVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	w.addVolume(trustDir, true, corev1.Volume{Name: trustVolume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: w.secret, DefaultMode: &mode},
	}})
	w.addVolume(stateMount, false, corev1.Volume{Name: stateVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	w.addVolume(sharedDir, false, corev1.Volume{Name: sharedVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
	}})
}

func (w *templateBuilder) addVolume(path string, readOnly bool, volume corev1.Volume) {
	there := func(m corev1.VolumeMount) bool { return strings.TrimRight(m.MountPath, "/") == path }
	if slices.ContainsFunc(w.main.VolumeMounts, there) {
		return
	}
	w.pod.Volumes = append(w.pod.Volumes, volume)
	w.main.VolumeMounts = append(w.main.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: path, ReadOnly: readOnly})
}

// selectNodes restricts the launchers to the nodes of spec.population.
func (w *templateBuilder) selectNodes() {
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
