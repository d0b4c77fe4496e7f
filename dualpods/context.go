package dualpods

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

type requesterKey struct{}

// ForRequester returns the context of a call that is made for a requester. [RequesterIn] reads it.
func ForRequester(ctx context.Context, uid types.UID) context.Context {
	return context.WithValue(ctx, requesterKey{}, uid)
}

// RequesterIn returns the requester that a call to a launcher, or to a requester program, is made
// for. ok is false for a call that is made for none.
func RequesterIn(ctx context.Context) (uid types.UID, ok bool) {
	uid, ok = ctx.Value(requesterKey{}).(types.UID)
	return uid, ok
}
