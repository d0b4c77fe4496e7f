package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"hotseat.dev/hotseat/dualpods/internal/trust/admission"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
)

// setUpAdmission has the API server ask the replica that leads whether a model cache
// may be deleted. A controller that keeps no model caches is not asked.
func setUpAdmission(mgr ctrl.Manager, keeper *authority.Keeper, on *trust, guard *admission.Guard, opts Options) error {
	if opts.AdmissionPort == 0 || opts.Namespace != "" {
		return nil
	}
	address, err := netip.ParseAddr(opts.PodIP)
	if err != nil {
		return fmt.Errorf("cannot be asked by the API server: --pod-ip: %w", err)
	}
	namespace, err := authority.Namespace(cmp.Or(opts.CANamespace, opts.LeaseNamespace))
	if err != nil {
		return err
	}
	server := admission.NewServer(opts.AdmissionPort, keeper.Serving(admission.ServerName(namespace)), guard)
	publisher := &admission.Publisher{
		API: mgr.GetClient(), Namespace: namespace, Address: address, Port: int32(opts.AdmissionPort),
		Certificates: func(ctx context.Context) ([]byte, error) {
			now, err := keeper.Current(ctx)
			if err != nil {
				return nil, err
			}
			return now.Certificates(), nil
		},
	}
	return errors.Join(
		mgr.Add(manager.RunnableFunc(server.Start)), // in the replica that leads
		publisher.SetupWithManager(mgr, on.asked.source()),
	)
}
