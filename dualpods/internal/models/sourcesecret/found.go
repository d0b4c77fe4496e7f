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

// Named says where a cache has its credentials. It is zero if the cache names none.
type Named struct {
	Namespace string
	Secret    string
	Account   string // a ServiceAccount
	Runs      bool   // the Pod that fetches runs as the account, and may need no Secret
}

// Found has the objects that Named names.
type Found struct {
	Named
	Version string   // resource version of the account; empty: it does not exist
	Secrets []Secret // the named Secret, or else those that the account lists, in its order
	More    int      // how many more the account lists, which were not read
	Unread  string   // why a read failed; empty: none failed
}

// Secret is a Secret as it was read.
type Secret struct {
	Name    string
	Version string               // resource version; empty: it does not exist
	Data    fetchapi.Credentials // values by key
}

// Reader reads Secrets and ServiceAccounts. Its functions return the errors of the API server.
type Reader struct {
	Secret  func(context.Context, client.ObjectKey) (*corev1.Secret, error)
	Account func(context.Context, client.ObjectKey) (*corev1.ServiceAccount, error)
}

// Read reads the objects that named names. Found has the error too.
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

// mostListed is how many Secrets of an account are read at most. Each is a call to the API
// server, and other caches wait meanwhile.
const mostListed = 32

// listed returns the names of the Secrets that an account lists, imagePullSecrets last.
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

// Versions returns a text that changes when one of the objects changes.
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
