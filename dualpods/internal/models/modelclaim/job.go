package modelclaim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Names and paths in the Pods of Jobs.
const (
	container  = "modelfetch"
	claimDir   = "/claim"
	sourceDir  = "/source"
	caDir      = "/ca"
	caFile     = "ca.crt"
	resultFile = corev1.TerminationMessagePathDefault
)

// brokenOff is the number of failed Pods that a Job replaces. Disruptions do not count, and
// the exit codes ExitRefused and ExitUsage fail the Job at once.
//
// keptFor is how long Kubernetes keeps an ended Job that no controller deletes, in seconds.
const (
	brokenOff = 6
	keptFor   = 24 * 60 * 60
)

// SourceClaim returns the name of the claim that has the folder that a cache copies; empty: the
// source is not a claim.
func SourceClaim(c *v1alpha1.ModelCache) string {
	rest, ok := strings.CutPrefix(c.Spec.Source.URI, fetchapi.ClaimScheme)
	if !ok {
		return ""
	}
	u, err := url.Parse(fetchapi.ClaimScheme + rest)
	if err != nil {
		return ""
	}
	return u.Host
}

// newJob returns the Job that fetches the model. tries is the number of this try, from 1.
func (w *World) newJob(creds sourcesecret.Shown, tries int32) *batchv1.Job {
	c := w.Cache
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.Namespace, Name: JobName(c.Name), Labels: labelsOf(c),
		OwnerReferences: []metav1.OwnerReference{ownedBy(c)},
	}}
	backoff, ttl, one := int32(brokenOff), int32(keptFor), int32(1)
	job.Spec = batchv1.JobSpec{
		BackoffLimit: &backoff, TTLSecondsAfterFinished: &ttl, Parallelism: &one, Completions: &one,
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{fetchapi.ExitRefused, fetchapi.ExitUsage},
			}},
			{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			}},
		}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(c)}, Spec: w.podSpec(creds)},
	}
	job.Annotations = map[string]string{
		podmeta.AnnotationTemplateHash: hashOf(job.Spec),
		annotationInputs:               w.inputs(),
		annotationTries:                strconv.Itoa(int(tries)),
	}
	main := &job.Spec.Template.Spec.Containers[0]
	main.Args = append([]string{fmt.Sprintf("--storage-limit=%d", capacity(w.Claim))}, main.Args...)
	if nodes := w.nodesOfUsers(); w.oneNode() && len(nodes) > 0 {
		job.Spec.Template.Spec.Affinity = onNodes(nodes)
	}
	return job
}

// Annotations of a Job. annotationInputs has the inputs outside the Job's specification whose
// change may let another try succeed. annotationTries has the number of the try.
const (
	annotationInputs = podmeta.PrefixOwn + "inputs"
	annotationTries  = podmeta.PrefixOwn + "tries"
)

// inputs returns possible causes of a failure that are not in the Job's specification: the size
// of the claim, and the versions of the credentials.
func (w *World) inputs() string {
	return fmt.Sprintf("room=%d secret=%s", capacity(w.Claim), w.Found.Versions())
}

func hashOf(spec batchv1.JobSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error() // cannot happen: the specification is plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// triesOf returns the number of a Job's try, from 1.
func triesOf(job *batchv1.Job) int32 {
	n, err := strconv.ParseInt(job.Annotations[annotationTries], 10, 32)
	if err != nil {
		return 1
	}
	return int32(n)
}

func labelsOf(c *v1alpha1.ModelCache) map[string]string {
	return map[string]string{podmeta.LabelManagedBy: podmeta.ManagedBy, podmeta.LabelModelCache: c.Name, podmeta.LabelModelCacheUID: string(c.UID)}
}

func ownedBy(c *v1alpha1.ModelCache) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, v1alpha1.GroupVersion.WithKind("ModelCache"))
}

func (w *World) podSpec(creds sourcesecret.Shown) corev1.PodSpec {
	c, fetch := w.Cache, &w.Cache.Spec.Fetch
	account := Names(c).Account
	user := int64(65532)
	if fetch.RunAsUser != nil {
		user = *fetch.RunAsUser
	}
	yes, no, token, nonRoot, onRoot := true, false, account != "", user != 0, corev1.FSGroupChangeOnRootMismatch
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: account, AutomountServiceAccountToken: &token, EnableServiceLinks: &no,
		NodeSelector: fetch.NodeSelector, Tolerations: fetch.Tolerations,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, FSGroupChangePolicy: &onRoot, RunAsNonRoot: &nonRoot,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{volumeOf("claim", w.claimName())},
		Containers: []corev1.Container{{
			Name: container, Image: w.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/modelfetch", "pull"}, Args: w.args(), Env: w.env(creds),
			VolumeMounts:             []corev1.VolumeMount{{Name: "claim", MountPath: claimDir}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	main := &spec.Containers[0]
	if fetch.CAConfigMap != "" {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: fetch.CAConfigMap}, Items: []corev1.KeyToPath{{Key: caFile, Path: caFile}},
		}}})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "ca", MountPath: caDir, ReadOnly: true})
		main.Env = append(main.Env, corev1.EnvVar{Name: "SSL_CERT_FILE", Value: caDir + "/" + caFile})
	}
	if source := SourceClaim(c); source != "" {
		spec.Volumes = append(spec.Volumes, volumeOf("source", source))
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "source", MountPath: sourceDir, ReadOnly: true})
	}
	return spec
}

func volumeOf(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// args returns the arguments of `modelfetch pull`.
func (w *World) args() []string {
	spec := &w.Cache.Spec
	args := []string{"--store=" + claimDir + "/" + fetchapi.ClaimStore, "--result=" + resultFile, "--holder=" + Holder(w.Cache)}
	if n := spec.Fetch.Streams; n != nil {
		args = append(args, fmt.Sprintf("--streams=%d", *n))
	}
	if q := spec.Fetch.BytesPerSecond; q != nil {
		args = append(args, fmt.Sprintf("--bytes-per-second=%d", q.Value()))
	}
	for _, p := range spec.Source.Include {
		args = append(args, "--include="+p)
	}
	for _, p := range spec.Source.Exclude {
		args = append(args, "--exclude="+p)
	}
	if source := SourceClaim(w.Cache); source != "" {
		args = append(args, "--claim="+source+"="+sourceDir)
	}
	uri := spec.Source.URI
	if spec.Source.Revision != "" {
		uri += "@" + spec.Source.Revision
	}
	return append(args, "--", uri)
}

// env returns the environment of the container: spec.fetch.env, and the credentials by
// references to the Secret. A credential wins over a variable of spec.fetch.env.
func (w *World) env(creds sourcesecret.Shown) (env []corev1.EnvVar) {
	for _, name := range slices.Sorted(maps.Keys(w.Cache.Spec.Fetch.Env)) {
		if _, given := creds.Keys[name]; !given {
			env = append(env, corev1.EnvVar{Name: name, Value: w.Cache.Spec.Fetch.Env[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(creds.Keys)) {
		env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: creds.Secret}, Key: creds.Keys[name],
		}}})
	}
	return env
}

// onNodes returns an affinity that requires one of some nodes.
func onNodes(nodes []string) *corev1.Affinity {
	var terms []corev1.NodeSelectorTerm
	for _, node := range nodes {
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}
