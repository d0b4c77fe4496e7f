package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// openAuthority has the certificate authority kept by the replica that leads. Its
// Secret, in a namespace that may not be among those that are looked at, has a
// cache of its own. The trust is what follows when there is another
// authority.
func openAuthority(ctx context.Context, mgr ctrl.Manager, config *rest.Config, opts Options, configs *requests) (*authority.Keeper, *trust, error) {
	namespace, err := authority.Namespace(cmp.Or(opts.CANamespace, opts.LeaseNamespace))
	if err != nil {
		return nil, nil, err
	}
	secrets, err := cache.New(config, cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, authority.SecretName)}},
		}},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot watch the certificate authority: %w", err)
	}
	api, err := client.New(config, client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), Cache: &client.CacheOptions{Reader: secrets},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot keep the certificate authority: %w", err)
	}
	follows := &trust{api: mgr.GetClient(), configs: configs}
	keeper := authority.New(authority.Options{
		API: api, Namespace: namespace, Now: time.Now, Log: opts.Log.WithName("authority"),
		Changed: func() { follows.changed(ctx) },
	})
	return keeper, follows, keeper.SetupWithManager(ctx, mgr, secrets)
}

// trust is what follows when there is another certificate authority.
type trust struct {
	api        client.Client
	configs    *requests // LauncherConfigs
	namespaces requests  // where it is published
	asked      requests  // whom the API server asks
}

// changed has every LauncherConfig looked at, every namespace, and what the API server
// is told.
func (c *trust) changed(ctx context.Context) {
	c.asked.add("")
	var configs v1alpha1.LauncherConfigList
	var published corev1.ConfigMapList
	if errors.Join(c.api.List(ctx, &configs, client.UnsafeDisableDeepCopy), c.api.List(ctx, &published, client.UnsafeDisableDeepCopy)) != nil {
		return // the cache has not begun, and each will be looked at
	}
	for i := range configs.Items {
		c.configs.addLater(client.ObjectKeyFromObject(&configs.Items[i]))
	}
	for i := range published.Items {
		c.namespaces.add(published.Items[i].Namespace)
	}
}
