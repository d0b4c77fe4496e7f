package cluster

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
)

// The modules of programs that tests install by their own Helm charts.
const (
	lwsModule     = "sigs.k8s.io/lws"
	volcanoModule = "volcano.sh/volcano"
)

// LeaderWorkerSet returns the path of the program that has the controllers and webhooks of
// LeaderWorkerSets and DisaggregatedSets (https://lws.sigs.k8s.io), and that of its Helm chart. It
// builds the program first if the cache does not have it. progress is told then.
func LeaderWorkerSet(ctx context.Context, progress io.Writer) (program, chart string, err error) {
	return lws.withChart(ctx, lwsModule, "charts/lws", progress)
}

// VolcanoScheduler does the same for Volcano's scheduler (https://volcano.sh).
func VolcanoScheduler(ctx context.Context, progress io.Writer) (program, chart string, err error) {
	return volcano.withChart(ctx, volcanoModule, "installer/helm/chart/volcano", progress)
}

// withChart builds the program, and returns its path and that of a folder of a module.
func (e external) withChart(ctx context.Context, module, chart string, progress io.Writer) (program, folder string, err error) {
	if program, err = e.build(ctx, progress); err != nil {
		return "", "", err
	}
	here, err := source(ctx)
	if err != nil {
		return "", "", err
	}
	has, err := downloadModule(ctx, filepath.Join(here, e.folder), module)
	if err != nil {
		return "", "", fmt.Errorf("cannot download %s: %w", module, err)
	}
	return program, filepath.Join(has.Dir, filepath.FromSlash(chart)), nil
}
