//go:build cluster

package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const launcherConfigs = "launcherconfigs.hotseat.dev"

// server starts an API server, and etcd, for a test.
func server(t *testing.T) (*cluster.Cluster, client.Client) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience.Wait())
	defer stop()
	c, err := cluster.Up(ctx, cluster.Options{Name: fmt.Sprintf("test-crds-%d", os.Getpid()), Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Down()) })
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	api, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c, api
}

func read(t *testing.T, api client.Client) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, api.Get(t.Context(), types.NamespacedName{Name: launcherConfigs}, &crd))
	return &crd
}

// wrong says what is wrong with the installation.
func wrong(t *testing.T, api client.Client) error {
	t.Helper()
	found, err := look(t.Context(), api, CheckOptions{Deployment: client.ObjectKey{Namespace: "hotseat-system", Name: "hotseat-controller"}})
	require.NoError(t, err)
	return found.wrong()
}

func TestDefinitionsAreMadeAndBroughtUpToDateAndADowngradeChangesNothing(t *testing.T) {
	_, api := server(t)
	require.NoError(t, ApplyCRDs(t.Context(), api))
	made := read(t, api)

	// A definition of an earlier version, which lacks something.
	older := made.DeepCopy()
	older.Spec.Versions[0].AdditionalPrinterColumns = nil
	require.NoError(t, api.Patch(t.Context(), older, client.MergeFrom(made)))
	const behind = "CustomResourceDefinition launcherconfigs.hotseat.dev is of another version than the controller"
	require.ErrorContains(t, wrong(t, api), behind)
	require.NoError(t, ApplyCRDs(t.Context(), api))
	assert.Equal(t, made.Spec, read(t, api).Spec)
	require.EqualError(t, wrong(t, api), "the controller's Deployment hotseat-system/hotseat-controller does not exist", "and that is all")
	upToDate := read(t, api).Generation
	require.NoError(t, ApplyCRDs(t.Context(), api))
	assert.Equal(t, upToDate, read(t, api).Generation, "what is up to date stays as it is")

	// A definition of a later version, in which objects are stored.
	was := read(t, api)
	later := was.DeepCopy()
	next := *later.Spec.Versions[0].DeepCopy()
	next.Name = "v1beta1"
	later.Spec.Versions[0].Storage = false
	later.Spec.Versions = append(later.Spec.Versions, next)
	require.NoError(t, api.Patch(t.Context(), later, client.MergeFrom(was)))
	require.Eventually(t, func() bool { return len(read(t, api).Status.StoredVersions) == 2 }, patience.Wait(), 20*time.Millisecond)
	before := read(t, api)
	err := ApplyCRDs(t.Context(), api)
	require.ErrorContains(t, err, "cannot downgrade: launcherconfigs.hotseat.dev has objects stored as v1beta1, which this version does not know; keep the newer version, or migrate the objects first")
	assert.Equal(t, before.ResourceVersion, read(t, api).ResourceVersion)

	require.NoError(t, DeleteCRDs(t.Context(), api))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(api.Get(t.Context(), types.NamespacedName{Name: launcherConfigs}, &apiextensionsv1.CustomResourceDefinition{}))
	}, patience.Wait(), 20*time.Millisecond)
	require.NoError(t, DeleteCRDs(t.Context(), api), "what is gone stays gone")
}
