package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/spec/launcherapi"
)

type leaseInput struct {
	ID   string `path:"instance_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" patternDescription:"usable as an instance id: a letter or digit, then letters, digits, '.', '_' or '-', at most 128 in all" doc:"Id of the instance that is to take the ports." example:"qwen3-8b-0"`
	Body launcherapi.PortLeaseRequest
}

func (s *Server) leasePorts(_ context.Context, in *leaseInput) (*body[launcherapi.PortLease], error) {
	return answer(s.opts.PortLeases.Lease(in.ID, in.Body.Count))
}

func docLeasePorts(op *huma.Operation, _ huma.Registry) {
	op.Description = "The ports are free at every address of the machine, and no other process or instance gets them before the engine starts. An instance that is created with this id takes them over, and they are free again when its engine has ended. At most 32 leases wait at once (503). Without such an instance the lease expires after 60 s; the same call again gives it 60 s more. A call with another count is refused (409). While an instance has the ports, the answer has no expires_at, and the call has no effect."
}

type giveBackInput struct {
	ID string `path:"instance_id" doc:"Id that the ports were leased for." example:"qwen3-8b-0"`
}

func (s *Server) giveBackPorts(_ context.Context, in *giveBackInput) (*body[launcherapi.PortLease], error) {
	return answer(s.opts.PortLeases.GiveBack(in.ID))
}
