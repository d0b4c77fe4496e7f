// Package installation does what an installation takes beyond applying objects,
// and Helm leaves to hooks: CustomResourceDefinitions are brought up to date,
// nothing is held any more once the controller goes, and a test says whether the
// installation works.
package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/deploy/chart"
)

// FieldOwner is the field manager of server-side apply.
const FieldOwner = "hotseat"

// pollEvery is the interval of polls for changes that come once, within seconds. A watch is
// not worth it.
const pollEvery = 200 * time.Millisecond

// definitions returns the CustomResourceDefinitions of this version.
func definitions() ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(chart.CRDs, "crds/*.yaml")
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("the program was built without CustomResourceDefinitions"))
	}
	var all []*unstructured.Unstructured
	for _, name := range files {
		data, err := fs.ReadFile(chart.CRDs, name)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		all = append(all, crd)
	}
	return all, nil
}

// ApplyCRDs applies the CustomResourceDefinitions of this version, and returns once the API
// server serves them. It refuses a downgrade: objects are stored in a version of the
// definition that this program does not have.
func ApplyCRDs(ctx context.Context, api client.Client) error {
	crds, err := definitions()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := refuseDowngrade(ctx, api, crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		if err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("cannot apply %s: %w", crd.GetName(), err)
		}
		if err := established(ctx, api, crd.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func refuseDowngrade(ctx context.Context, api client.Client, crd *unstructured.Unstructured) error {
	var there apiextensionsv1.CustomResourceDefinition
	if err := api.Get(ctx, types.NamespacedName{Name: crd.GetName()}, &there); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("cannot read %s: %w", crd.GetName(), err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("cannot read the versions of %s: %w", crd.GetName(), err)
	}
	for _, stored := range there.Status.StoredVersions {
		if !slices.ContainsFunc(versions, func(v any) bool { m, ok := v.(map[string]any); return ok && m["name"] == stored }) {
			return fmt.Errorf("cannot downgrade: %s has objects stored as %s, which this version does not know; keep the newer version, or migrate the objects first", crd.GetName(), stored)
		}
	}
	return nil
}

// established waits until the API server serves a definition.
func established(ctx context.Context, api client.Client, name string) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := api.Get(ctx, types.NamespacedName{Name: name}, &crd); err != nil {
			return false, err
		}
		return isEstablished(&crd), nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait until %s is served: %w", name, err)
	}
	return nil
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// DeleteCRDs deletes the CustomResourceDefinitions, and every object of these kinds with
// them. It returns once they are gone, or when ctx ends. Objects with finalizers delay that.
func DeleteCRDs(ctx context.Context, api client.Client) error {
	crds, err := definitions()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := client.IgnoreNotFound(api.Delete(ctx, crd)); err != nil {
			return fmt.Errorf("cannot delete %s: %w", crd.GetName(), err)
		}
	}
	for _, crd := range crds {
		name := crd.GetName()
		err := poll(ctx, name+" is gone: an object of that kind may have a finalizer", func(ctx context.Context) (bool, error) {
			var left apiextensionsv1.CustomResourceDefinition
			err := api.Get(ctx, types.NamespacedName{Name: name}, &left)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
