package decide

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
)

// emptied has a requester be a seat that has no model.
func emptied(o *Observation) {
	o.Requester.Seat, o.Requester.Assigned, o.Requester.Input, o.Requester.Instance = true, "", podmeta.InputNone, ""
	o.Form = form.Form{LauncherConfig: o.Form.LauncherConfig}
}

// seated has a requester be a seat that was given a model.
func seated(o *Observation) {
	o.Requester.Seat, o.Requester.Assigned, o.Requester.Input = true, "h.1", podmeta.InputConfig
	if o.Record != nil {
		record := *o.Record
		record.ChangedBy, o.Record = "h.1", &record
	}
}

// reseated has a requester be a seat that was given another model than it has.
func reseated(o *Observation) {
	seated(o)
	o.Requester.Assigned, o.Form.Args = "h.2", []string{"org/other"}
}

// seats are examples of seats.
var seats = map[string]example{
	"a seat without a model":                            {"seat without a model", Tell, but(fresh(), emptied)},
	"a seat without a model, without a launcher":        {"no launcher", CreateLauncher, but(fresh(), func(o *Observation) { emptied(o); o.Launcher = nil })},
	"a seat that was given a model":                     {"no record", AddRecord, but(fresh(), seated)},
	"a seat whose model was edited just now":            {"seat's model not seen", Retry, but(fresh(), func(o *Observation) { seated(o); o.Requester.Behind = true })},
	"a seat that is served":                             {"", Nothing, but(servedOne(), seated)},
	"a served seat that was given another model":        {"unwanted, shown", Retract, but(servedOne(), reseated)},
	"the same, not shown any more":                      {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { reseated(o); o.Requester.Shown = false })},
	"the same, once its connections have ended":         {"resting, awake", Sleep, but(with("awake"), reseated)},
	"the same, once its model sleeps":                   {"resting, asleep or gone", RemoveRecord, but(with("sleeping"), func(o *Observation) { reseated(o); o.Attempt = Attempt{Asked: true, Over: true} })},
	"a served seat whose model was taken":               {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { seated(o); emptied(o); o.Requester.Shown = false })},
	"a seat whose model starts, and was taken":          {"resting, starting or failed", DeleteInstance, but(with("starting"), func(o *Observation) { seated(o); emptied(o) })},
	"a served seat whose model was edited":              {"", Nothing, but(servedOne(), func(o *Observation) { seated(o); o.Form.Args = []string{"org/edited"} })},
	"a requester of no pool that names what a seat has": {"", Nothing, but(servedOne(), func(o *Observation) { o.Requester.Assigned = "h.1" })},
}

func TestRecordOfASeatNamesItsAssignment(t *testing.T) {
	assert.Equal(t, "h.1", Decide(but(fresh(), seated)).Record.ChangedBy)
}

func TestStatusOfASeatSaysWhichModelItIsAbout(t *testing.T) {
	o := but(servedOne(), func(o *Observation) { seated(o); o.Requester.Gate = true })
	status := o.Bound().ServingStatus(podmeta.Status{})
	assert.False(t, o.GateSuffices(status), "a gate does not say which model a seat has")
	text, err := StatusText(&o, podmeta.Status{}, status)
	assert.NoError(t, err)
	assert.Contains(t, text, `"seat":"h.1"`)
	assert.Contains(t, text, `"gpus":["GPU-0"]`)
	o.Requester.Seat = false
	text, err = StatusText(&o, podmeta.Status{}, status)
	assert.NoError(t, err)
	assert.NotContains(t, text, "gpus")
}

func init() { maps.Copy(examples, seats) }
