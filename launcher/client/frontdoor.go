package client

import (
	"context"
	"net/http"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const frontDoorPath = "/v2/front-door"

// FrontDoor shows the models that the front door serves, and who waits for them. The error of a
// launcher without a front door has the code not_found ([IsNotFound]).
func (c *Client) FrontDoor(ctx context.Context) (launcherapi.FrontDoor, error) {
	return list(ctx, c, call{method: http.MethodGet, path: frontDoorPath}, "models", modelsOfFrontDoor)
}

// ChooseProfile chooses a profile of the configuration; empty: none. The error has the code
// invalid if there is no such profile.
func (c *Client) ChooseProfile(ctx context.Context, profile string) (launcherapi.FrontDoor, error) {
	what := call{method: http.MethodPut, path: frontDoorPath + "/profile", body: launcherapi.ProfileChoice{Profile: profile}}
	return list(ctx, c, what, "models", modelsOfFrontDoor)
}

func modelsOfFrontDoor(d *launcherapi.FrontDoor) *[]launcherapi.FrontDoorModel { return &d.Models }
