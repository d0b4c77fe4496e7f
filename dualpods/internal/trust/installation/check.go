package installation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// checkEvery is how often an installation that does not work yet is looked at.
const checkEvery = time.Second

// CheckOptions configure [Check].
type CheckOptions struct {
	Deployment client.ObjectKey // the controller's
	Namespace  string           // the only one that the controller looks at; empty for all
	Log        logr.Logger
}

// Check says whether an installation works: the controller is available, the API
// server serves the definitions of this version, and every LauncherConfig has the
// launchers that it asks for, each of which answers its kubelet. It waits for
// that until ctx ends, and then says what is wrong.
func Check(ctx context.Context, api client.Client, opts CheckOptions) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, checkEvery, true, func(ctx context.Context) (bool, error) {
		found, err := look(ctx, api, opts)
		if err == nil {
			err = found.wrong()
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		if last != nil {
			err = last // it says more than that the time is over
		}
		return fmt.Errorf("the installation does not work: %w", err)
	}
	opts.Log.Info("the installation works", "deployment", opts.Deployment.String())
	return nil
}

// installed has the objects of an installation that Check examines.
type installed struct {
	deployment string // its name
	controller *appsv1.Deployment
	expected   []apiextensionsv1.CustomResourceDefinition
	served     map[string]*apiextensionsv1.CustomResourceDefinition
	configs    []v1alpha1.LauncherConfig
}

// look reads these objects. A missing object is no error.
func look(ctx context.Context, api client.Client, opts CheckOptions) (*installed, error) {
	found := &installed{deployment: opts.Deployment.String(), served: map[string]*apiextensionsv1.CustomResourceDefinition{}}
	var controller appsv1.Deployment
	switch err := api.Get(ctx, opts.Deployment, &controller); {
	case err == nil:
		found.controller = &controller
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cannot read Deployment %s: %w", opts.Deployment, err)
	}
	crds, err := definitions()
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		var expected, there apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &expected); err != nil {
			return nil, fmt.Errorf("cannot read CustomResourceDefinition %s of this version: %w", crd.GetName(), err)
		}
		found.expected = append(found.expected, expected)
		switch err := api.Get(ctx, client.ObjectKey{Name: expected.Name}, &there); {
		case err == nil:
			found.served[expected.Name] = &there
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("cannot read %s: %w", expected.Name, err)
		}
	}
	var configs v1alpha1.LauncherConfigList
	if err := api.List(ctx, &configs, client.InNamespace(opts.Namespace)); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot list LauncherConfigs: %w", err)
	}
	found.configs = configs.Items
	return found, nil
}

// wrong returns what does not work; nil: everything works.
func (i *installed) wrong() error {
	var all []error
	if i.controller == nil {
		all = append(all, fmt.Errorf("the controller's Deployment %s does not exist", i.deployment))
	} else if c := availability(i.controller); c == nil || c.Status != corev1.ConditionTrue {
		message := "its status does not say so yet"
		if c != nil {
			message = c.Message
		}
		all = append(all, fmt.Errorf("the controller's Deployment %s is not available: %s", i.deployment, message))
	}
	for n := range i.expected {
		all = append(all, i.definition(&i.expected[n]))
	}
	for n := range i.configs {
		all = append(all, launchersOf(&i.configs[n]))
	}
	return errors.Join(all...)
}

func availability(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	for i, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && d.Status.ObservedGeneration == d.Generation {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

func (i *installed) definition(expected *apiextensionsv1.CustomResourceDefinition) error {
	there, ok := i.served[expected.Name]
	if !ok {
		return fmt.Errorf("CustomResourceDefinition %s does not exist: apply deploy/chart/crds", expected.Name)
	}
	if !isEstablished(there) {
		return fmt.Errorf("CustomResourceDefinition %s is not established", expected.Name)
	}
	if !reflect.DeepEqual(there.Spec.Versions, expected.Spec.Versions) {
		return fmt.Errorf("CustomResourceDefinition %s is of another version than the controller: helm upgrade with crds.upgrade=true updates it", expected.Name)
	}
	return nil
}

// launchersOf returns an error unless the controller reports that a LauncherConfig is accepted
// and that its launchers are ready.
func launchersOf(config *v1alpha1.LauncherConfig) error {
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable} {
		c := meta.FindStatusCondition(config.Status.Conditions, kind)
		switch {
		case c == nil || c.ObservedGeneration != config.Generation:
			return fmt.Errorf("the controller has not reconciled LauncherConfig %s yet", client.ObjectKeyFromObject(config))
		case c.Status != metav1.ConditionTrue:
			return fmt.Errorf("LauncherConfig %s: %s is %s: %s", client.ObjectKeyFromObject(config), kind, c.Status, c.Message)
		}
	}
	return nil
}
