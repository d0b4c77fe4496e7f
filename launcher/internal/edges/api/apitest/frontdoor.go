package apitest

import (
	"sync"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// FrontDoor is an api.FrontDoor with one model. It has every profile.
type FrontDoor struct {
	mu      sync.Mutex
	profile string
}

// Show shows the model.
func (f *FrontDoor) Show() launcherapi.FrontDoor {
	f.mu.Lock()
	defer f.mu.Unlock()
	return launcherapi.FrontDoor{
		Address: "127.0.0.1:8000", Profile: f.profile, Models: []launcherapi.FrontDoorModel{{Names: []string{"m"}, State: "stopped"}},
	}
}

// Choose chooses a profile.
func (f *FrontDoor) Choose(profile string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.profile = profile
	return nil
}
