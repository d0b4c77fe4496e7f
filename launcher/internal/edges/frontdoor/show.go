package frontdoor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Show returns what the front door serves.
func (f *FrontDoor) Show() launcherapi.FrontDoor {
	offers := f.fleet.offers.Load()
	out := launcherapi.FrontDoor{Address: f.Addr(), Profile: f.Profile(), Models: []launcherapi.FrontDoorModel{}}
	for _, p := range offers.catalogue.Profiles {
		out.Profiles = append(out.Profiles, p.Name)
	}
	all, _ := f.opts.Instances.List()
	for n := range offers.models {
		o := &offers.models[n]
		m := launcherapi.FrontDoorModel{Names: o.Names(), State: string(launcher.Stopped), Priority: o.Priority, Pinned: o.Pinned}
		out.Models = append(out.Models, f.show(m, o.Name, f.fleet.findIn(all, o.Name)))
	}
	for n := range all {
		if i := &all[n]; offers.offerOf(i) == nil && len(i.ServedModelNames) > 0 {
			m := launcherapi.FrontDoorModel{Names: i.ServedModelNames, Pinned: i.Annotations[launcherapi.AnnotationPinned] == "true"}
			out.Models = append(out.Models, f.show(m, made(i.InstanceID), i))
		}
	}
	return out
}

// show adds to a model what its instance and the scheduler know; i is nil if it has no instance.
func (f *FrontDoor) show(m launcherapi.FrontDoorModel, name string, i *launcherapi.Instance) launcherapi.FrontDoorModel {
	if i != nil {
		m.InstanceID, m.State = i.InstanceID, i.State
	}
	d := f.sched.Show(name)
	m.Waiting, m.InFlight, m.Why = d.Waiting, d.InFlight, d.Why
	m.Failures, m.Failure, m.HeldBack, m.RetryAt = d.Failures, d.Failure, d.HeldBack, d.NotBefore
	m.TookMS = float64(d.Took.Microseconds()) / 1000
	return m
}

// profileRecord is the name of the record of the profile that is chosen.
const profileRecord = "profile"

// Profile returns the name of the profile that is chosen; empty: none is.
func (f *FrontDoor) Profile() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.profile
}

// Choose chooses a profile; empty: none. It is kept in the state folder. The error has code
// invalid, if the configuration has no such profile, or storage.
func (f *FrontDoor) Choose(profile string) error {
	if err := f.checkProfile(profile); err != nil {
		return err
	}
	f.choosing.Lock() // the record says what was chosen last
	defer f.choosing.Unlock()
	if err := f.opts.Records.Put(profileRecord, launcherapi.ProfileChoice{Profile: profile}); err != nil {
		return launcher.Storagef("cannot keep the profile: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.profile = profile
	return nil
}

func (f *FrontDoor) checkProfile(profile string) error {
	names := []string{}
	for _, p := range f.fleet.offers.Load().catalogue.Profiles {
		names = append(names, p.Name)
	}
	if profile == "" || slices.Contains(names, profile) {
		return nil
	}
	if len(names) == 0 {
		return launcher.Invalidf("body.profile", "there is no profile %q: the configuration has none", profile)
	}
	return launcher.Invalidf("body.profile", "there is no profile %q; the configuration has %s", profile, strings.Join(names, ", "))
}

// ReadProfile reads the record of the profile that is chosen.
func ReadProfile(found statedir.Found) (string, error) {
	var choice launcherapi.ProfileChoice
	if err := json.Unmarshal(found.Record, &choice); err != nil {
		return "", fmt.Errorf("cannot read the profile: %w", err)
	}
	return choice.Profile, nil
}
