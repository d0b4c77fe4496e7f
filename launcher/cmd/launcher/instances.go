package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// namedInstances is how many ids an error names.
const namedInstances = 10

// noInstanceError says that there is no such instance, and what there is.
type noInstanceError struct {
	id    string
	there []launcherapi.Instance
}

func (e *noInstanceError) Error() string {
	if len(e.there) == 0 {
		return fmt.Sprintf("no instance %q; there are none: launcher run starts one", e.id)
	}
	known := ids(e.there)
	text := fmt.Sprintf("no instance %q; there are: %s", e.id, strings.Join(known[:min(len(known), namedInstances)], ", "))
	if more := len(known) - namedInstances; more > 0 {
		text += fmt.Sprintf(" and %d more (launcher ps lists them)", more)
	}
	if near := e.nearest(); near != "" {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	return text
}

// nearest is the id that was probably meant: that of the instance with such a model,
// or the one that is spelt almost so.
func (e *noInstanceError) nearest() string {
	for _, i := range e.there {
		if i.Model == e.id || slices.Contains(i.ServedModelNames, e.id) {
			return i.InstanceID
		}
	}
	return config.Nearest(e.id, ids(e.there))
}

// nameInstances replaces the error for an instance that does not exist by one that
// says which there are. Where the launcher does not list them, it returns err.
func nameInstances(ctx context.Context, cl *client.Client, err error) error {
	missing, ok := errors.AsType[*launcher.Error](err)
	if !ok || missing.Code != launcherapi.CodeNotFound || missing.InstanceID == "" {
		return err
	}
	list, listErr := cl.List(ctx)
	if listErr != nil {
		return err
	}
	return &noInstanceError{missing.InstanceID, list.Instances}
}
