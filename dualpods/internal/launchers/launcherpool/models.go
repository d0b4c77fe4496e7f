package launcherpool

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// addModels adds the node's model store with the program that fetches models, and
// the claims that have models. A LauncherConfig without either gets an unchanged
// template, so that its hash stays the same.
func (w *templateBuilder) addModels() {
	if w.group != nil {
		w.addModelStore()
	}
	var claims []string
	if of := w.config.Spec.ModelCache; of != nil {
		claims = of.Claims
	}
	var mounted []string
	for n, claim := range claims {
		name, dir := fmt.Sprintf("%s-%d", claimVolume, n), podmeta.ClaimDir(claim)
		w.pod.Volumes = append(w.pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		w.main.VolumeMounts = append(w.main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir, ReadOnly: true})
		mounted = append(mounted, claim+"="+dir)
	}
	if len(mounted) > 0 {
		w.main.Args = append([]string{"--model-claims=" + strings.Join(mounted, ",")}, w.main.Args...)
	}
}

func (w *templateBuilder) addModelStore() {
	spec := &w.group.Spec
	kind := corev1.HostPathDirectoryOrCreate
	w.addVolume(modelsDir, false, corev1.Volume{Name: podmeta.VolumeModels, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: spec.Path, Type: &kind},
	}})
	copying := &w.pod.InitContainers[0]
	copying.Command = []string{"/copier", "/launcher", "/modelfetch", programDir}
	// The next launcher of the LauncherConfig on this node drops the leases of this user.
	flags := []string{"--model-store=" + modelsDir, "--model-user=" + w.config.Namespace + "/" + w.config.Name}
	if q := spec.StorageLimit; q != nil {
		flags = append(flags, "--model-storage-limit="+strconv.FormatInt(q.Value(), 10))
	}
	if n := spec.PerNode.Streams; n != nil {
		flags = append(flags, fmt.Sprintf("--model-streams=%d", *n))
	}
	if q := spec.PerNode.BytesPerSecond; q != nil {
		flags = append(flags, "--model-bytes-per-second="+strconv.FormatInt(q.Value(), 10))
	}
	w.main.Args = append(flags, w.main.Args...)
	for _, t := range spec.Tolerations {
		if !slices.ContainsFunc(w.pod.Tolerations, func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) }) {
			w.pod.Tolerations = append(w.pod.Tolerations, t)
		}
	}
}

// modelGroup returns the ModelCacheNodeGroup that a LauncherConfig names: nil when it
// names none, and a problem when the group does not exist or is not for its namespace.
func (p *Pool) modelGroup(ctx context.Context, config *v1alpha1.LauncherConfig) (*v1alpha1.ModelCacheNodeGroup, []podmeta.Problem, error) {
	if config.Spec.ModelCache == nil || config.Spec.ModelCache.NodeGroup == "" {
		return nil, nil, nil
	}
	var group v1alpha1.ModelCacheNodeGroup
	err := p.opts.API.Get(ctx, client.ObjectKey{Name: config.Spec.ModelCache.NodeGroup}, &group)
	if apierrors.IsNotFound(err) {
		return nil, []podmeta.Problem{{
			Kind: podmeta.Invalid, Field: "spec.modelCache.nodeGroup",
			Message: fmt.Sprintf("there is no ModelCacheNodeGroup %s: create it, or name another one", config.Spec.ModelCache.NodeGroup),
		}}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read ModelCacheNodeGroup %s: %w", config.Spec.ModelCache.NodeGroup, err)
	}
	if !group.Admits(config.Namespace) {
		return nil, []podmeta.Problem{{
			Kind: podmeta.Invalid, Field: "spec.modelCache.nodeGroup",
			Message: fmt.Sprintf("spec.namespaces of ModelCacheNodeGroup %s does not list namespace %s: have it added, or name another group", group.Name, config.Namespace),
		}}, nil
	}
	return &group, nil, nil
}

// missingClaims returns a problem for each claim that a LauncherConfig names and that
// does not exist. The launcher's Pod would stay Pending until it does.
func (p *Pool) missingClaims(ctx context.Context, config *v1alpha1.LauncherConfig) (problems []podmeta.Problem, err error) {
	if config.Spec.ModelCache == nil {
		return nil, nil
	}
	for n, claim := range config.Spec.ModelCache.Claims {
		err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: claim}, &corev1.PersistentVolumeClaim{})
		if apierrors.IsNotFound(err) {
			problems = append(problems, podmeta.Problem{
				Kind: podmeta.Invalid, Field: fmt.Sprintf("spec.modelCache.claims[%d]", n),
				Message: fmt.Sprintf("there is no PersistentVolumeClaim %s in namespace %s: create it, create a ModelCache that creates it, or name another one", claim, config.Namespace),
			})
		} else if err != nil {
			return nil, fmt.Errorf("cannot read PersistentVolumeClaim %s: %w", claim, err)
		}
	}
	return problems, nil
}
