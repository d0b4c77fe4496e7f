package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// openAuthority has the certificate authority kept by the replica that leads. The trust is
// what follows when there is another authority.
func openAuthority(ctx context.Context, mgr ctrl.Manager, config *rest.Config, namespace string, log logr.Logger, configs *requests) (*authority.Keeper, *trust, error) {
	secrets, api, err := openSecret(mgr, config, namespace, authority.SecretName)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot watch the certificate authority: %w", err)
	}
	follows := &trust{api: mgr.GetClient(), configs: configs}
	keeper := authority.New(authority.Options{
		API: api, Namespace: namespace, Now: time.Now, Log: log.WithName("authority"),
		Changed: func() { follows.changed(ctx) },
	})
	return keeper, follows, keeper.SetupWithManager(ctx, mgr, secrets)
}

// setUpServers has the certificates of the agents and of the front doors kept.
func setUpServers(mgr ctrl.Manager, config *rest.Config, namespace string, keeper *authority.Keeper, on *trust) error {
	for _, s := range []struct {
		authority.Servers
		others *requests
	}{
		{authority.Servers{Kind: "agents", Secret: podmeta.AgentSecret, Name: mtls.AgentName(namespace)}, &on.agents},
		{authority.Servers{Kind: "frontdoorcertificates", Secret: podmeta.FrontDoorSecret, Name: mtls.FrontDoorName(namespace)}, &on.frontDoors},
	} {
		secrets, api, err := openSecret(mgr, config, namespace, s.Secret)
		if err != nil {
			return fmt.Errorf("cannot watch Secret %s: %w", s.Secret, err)
		}
		servers := &s.Servers
		servers.API, servers.Namespace, servers.Current, servers.Now = api, namespace, keeper.Current, time.Now
		if err := servers.SetupWithManager(mgr, secrets, s.others.source()); err != nil {
			return err
		}
	}
	return nil
}

// openSecret makes a cache of one Secret alone, whose namespace may not be among those that are
// watched, and a client that reads from it.
func openSecret(mgr ctrl.Manager, config *rest.Config, namespace, name string) (cache.Cache, client.Client, error) {
	secrets, err := cache.New(config, cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}},
		}},
	})
	if err != nil {
		return nil, nil, err
	}
	api, err := client.New(config, client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), Cache: &client.CacheOptions{Reader: secrets},
	})
	return secrets, api, err
}

// trust is what follows when there is another certificate authority.
type trust struct {
	api        client.Client
	configs    *requests // LauncherConfigs
	namespaces requests  // where it is published
	asked      requests  // whom the API server asks
	agents     requests  // their certificate
	frontDoors requests  // likewise
}

// changed has every LauncherConfig looked at, every namespace, what the API server is told,
// and the certificates of the agents and of the front doors.
func (c *trust) changed(ctx context.Context) {
	c.asked.add("")
	c.agents.add("")
	c.frontDoors.add("")
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
