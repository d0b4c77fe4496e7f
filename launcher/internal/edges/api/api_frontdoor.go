package api

import (
	"context"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// noFrontDoor is the answer of a launcher without a front door.
func noFrontDoor() error {
	e := launcher.NotFound("")
	e.Detail = "this launcher has no front door; start it with --front-door ADDRESS"
	return e
}

func (s *Server) frontDoor(context.Context, *none) (*body[launcherapi.FrontDoor], error) {
	if s.opts.FrontDoor == nil {
		return answer(launcherapi.FrontDoor{}, noFrontDoor())
	}
	return answer(s.opts.FrontDoor.Show(), nil)
}

type profileInput struct {
	Body launcherapi.ProfileChoice
}

func (s *Server) chooseProfile(_ context.Context, in *profileInput) (*body[launcherapi.FrontDoor], error) {
	if s.opts.FrontDoor == nil {
		return answer(launcherapi.FrontDoor{}, noFrontDoor())
	}
	if err := s.opts.FrontDoor.Choose(in.Body.Profile); err != nil {
		return answer(launcherapi.FrontDoor{}, err)
	}
	return answer(s.opts.FrontDoor.Show(), nil)
}
