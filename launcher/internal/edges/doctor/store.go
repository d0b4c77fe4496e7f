package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
)

// checkModelStore looks for what other users could do, or have done, to the model store.
func checkModelStore(ctx context.Context, e *examination) []Result {
	if e.ModelStore == "" {
		return nil
	}
	looked := make(chan Result, 1)
	go func() { looked <- lookAtStore(e.ModelStore) }()
	timer := time.NewTimer(diskTime)
	defer timer.Stop()
	select {
	case r := <-looked:
		return one(r)
	case <-timer.C:
	case <-ctx.Done():
	}
	return one(Result{
		Name: "model store", Status: Fail, Finding: fmt.Sprintf("the disk of %s does not answer", e.ModelStore),
		Remedy: "see the kernel log, and the mount or volume that it is on, or choose another by --model-store",
	})
}

func lookAtStore(dir string) Result {
	r := Result{Name: "model store", Status: OK, Finding: dir}
	if bad, ok := errors.AsType[*modelstore.LayoutError](modelstore.CheckLayout(dir)); ok {
		r.Status, r.Finding = Fail, bad.Error() // it says what to do
	} else if exposed := modelstore.Exposed(dir); exposed != "" {
		r.Status, r.Finding = Warn, exposed
	}
	return r
}
