// Package provider says what binding asks of Pods that provide models. Launchers do all of it,
// over [nodeview.Set] and the launcher's client; a direct provider, which runs the engine of one
// requester, can do the same.
package provider

import (
	"context"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Provider has its models take turns. Each call is made once at a time for an instance, and may
// last as long as its swap.
type Provider interface {
	// SwapOnce begins a swap, or waits for the one that was begun with the same key.
	SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error)
	// CallOff has the swap of that key not begin if it still waits.
	CallOff(ctx context.Context, key string) error
	// Sleep and Delete return the instance as it is once the provider has taken the order in.
	Sleep(ctx context.Context, id string, req launcherapi.SleepRequest) (launcherapi.Instance, error)
	Delete(ctx context.Context, id string) (launcherapi.Instance, error)
}

// Set knows what the providers of all nodes tell of themselves, by the UID of their Pods.
type Set interface {
	Watch(key string, target nodeview.Target)
	Forget(key string)
	// View has all instances of a provider, One that of an id, and Pick those that are to be
	// kept: on a node with many of them the copy is most of the work.
	View(key string) nodeview.View
	One(key, id string) nodeview.View
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
	// Provider returns nil for a Pod that is not watched or has never answered.
	Provider(key string) Provider
}
