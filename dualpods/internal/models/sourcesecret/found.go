package sourcesecret

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Named is what a cache names for credentials; the zero value: nothing.
type Named struct {
	Namespace string
	Secret    string
	Account   string // a ServiceAccount
	Runs      bool   // a Pod that fetches runs as the account, so that no Secret may be needed
}

// Found is what was found of that.
type Found struct {
	Named
	Version string   // the account's resource version; empty: it is not there
	Secrets []Secret // the one that is named, or else those that the account lists, in its order
	More    int      // that it lists and that were not looked at
	Unread  string   // why some of it could not be read; empty: it was
}

// Secret is one, as it was read.
type Secret struct {
	Name    string
	Version string               // its resource version; empty: it is not there
	Data    fetchapi.Credentials // by its keys
}

// Reader reads what caches name. Its functions' errors are those of the API server.
type Reader struct {
	Secret  func(context.Context, client.ObjectKey) (*corev1.Secret, error)
	Account func(context.Context, client.ObjectKey) (*corev1.ServiceAccount, error)
}

// Read reads it. An error is told by Found, too.
func (r Reader) Read(ctx context.Context, named Named) (Found, error) {
	f := Found{Named: named}
	var secrets []string
	var errs []error
	if named.Account != "" {
		account, err := r.Account(ctx, client.ObjectKey{Namespace: named.Namespace, Name: named.Account})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("cannot read %s: %w", f.account(), err))
		default:
			f.Version, secrets = account.ResourceVersion, listed(account)
			f.More = max(len(secrets)-mostListed, 0)
			secrets = secrets[:len(secrets)-f.More]
		}
	}
	if named.Secret != "" {
		secrets, f.More = []string{named.Secret}, 0
	}
	for _, name := range secrets {
		secret, err := r.secret(ctx, client.ObjectKey{Namespace: named.Namespace, Name: name})
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot read Secret %s/%s: %w", named.Namespace, name, err))
		}
		f.Secrets = append(f.Secrets, secret)
	}
	err := errors.Join(errs...)
	if err != nil {
		f.Unread = err.Error()
	}
	return f, err
}

// mostListed is how many of the Secrets that an account lists are looked at. Each is a
// question to the API server, whoever may write the account, and others wait meanwhile.
const mostListed = 32

// listed are the names of the Secrets that an account lists, those of registries last.
func listed(account *corev1.ServiceAccount) (names []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, s := range account.Secrets {
		add(s.Name)
	}
	for _, s := range account.ImagePullSecrets {
		add(s.Name)
	}
	return names
}

func (r Reader) secret(ctx context.Context, key client.ObjectKey) (Secret, error) {
	s := Secret{Name: key.Name}
	is, err := r.Secret(ctx, key)
	if err != nil {
		return s, client.IgnoreNotFound(err)
	}
	s.Version, s.Data = is.ResourceVersion, fetchapi.Credentials{}
	for name, value := range is.Data {
		s.Data[name] = string(value)
	}
	return s, nil
}

// Versions tell this from what is found later, once something of it is another.
func (f Found) Versions() string {
	all := f.Version
	for _, s := range f.Secrets {
		if all != "" {
			all += ","
		}
		all += s.Version
	}
	return all
}

func (f Found) account() string { return "ServiceAccount " + f.Namespace + "/" + f.Account }
