package decide

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decisionCase is a Model, and what is to be done about it.
type decisionCase struct {
	model *Model
	want  string
}

// checkAll checks the cases, and notes their rows.
func checkAll(t *testing.T, cases map[string]decisionCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, text(c.model, Decide(c.model))) })
	}
}

// orderedCases are the rows of acceptance about the order of entries, by their numbers.
var orderedCases = map[string]decisionCase{
	"14: the first entry carries the demand":       {model(80, entry("a", serves(1)), entry("b"), entry("c")), "a 1 stays; b 0 stays; c 0 stays"},
	"14: it carries more with another replica":     {model(101, entry("a", serves(1)), entry("b")), "a 2 demand; b 0 stays"},
	"14: a request is held and nothing serves":     {held(model(1, entry("a"), entry("b"))), "a 1 demand; b 0 stays"},
	"14: requests are held beside what serves":     {held(model(900, entry("a", serves(1)))), "a 1 stays"},
	"15: the first is at its maximum":              {model(350, entry("a", bounds(0, 2), serves(1)), entry("b")), "a 2 demand; b 2 demand"},
	"15: all are at their maximum":                 {model(350, entry("a", bounds(0, 1), serves(1)), entry("b", bounds(0, 1), serves(1))), "a 1 at its maximum; b 1 at its maximum"},
	"16: weights":                                  {model(650, entry("a", target(500), bounds(0, 1), serves(1)), entry("b", serves(1))), "a 1 at its maximum; b 2 demand"},
	"17: unschedulable, not for too long":          {model(1, entry("a", starts(1, 29*time.Second, unschedulable(29*time.Second))), entry("b")), "a 1 stays; b 0 stays"},
	"17: unschedulable for too long":               {model(1, entry("a", starts(1, 30*time.Second, unschedulable(30*time.Second))), entry("b")), "a 0 unschedulable too long, failures 1 Unschedulable for 30s; b 1 demand"},
	"17: one of two is unschedulable":              {model(150, entry("a", starts(1, time.Minute), starts(1, time.Minute, unschedulable(time.Minute))), entry("b")), "a 1 unschedulable too long xa2, failures 1 Unschedulable for 30s; b 1 demand"},
	"17: its Pod is gone":                          {model(1, entry("a", failed(1, time.Second)), entry("b", awaits(1))), "a 0 backs off; b 1 stays"},
	"18: quota":                                    {model(1, entry("a", awaits(1), refused), entry("b")), "a 0 creation refused, failures 1 QuotaExceeded for 30s; b 1 demand"},
	"18: quota for the second replica":             {model(150, entry("a", serves(1), awaits(1), refused), entry("b")), "a 1 creation refused, failures 1 QuotaExceeded for 30s; b 1 demand"},
	"18: quota is told of, and all Pods are there": {model(150, entry("a", serves(1), starts(1, 0), refused), entry("b")), "a 2 stays; b 0 stays"},
	"19: an engine fails at its start":             {model(1, entry("a", starts(1, 9*time.Second, fails)), entry("b")), "a 0 Pod failed, failures 1 EngineFailed for 30s; b 1 demand"},
	"19: the failed Pod is still there":            {model(1, entry("a", failed(1, time.Second), late(Pod{Failure: &Failure{}})), entry("b", awaits(1))), "a 0 Pod failed; b 1 stays"},
	"19: others of the same attempt fail later":    {model(250, entry("a", failed(1, time.Second), starts(1, time.Minute, fails), starts(1, time.Minute)), entry("b", awaits(2))), "a 1 Pod failed xa1; b 2 stays"},
	"19: not ready in time":                        {model(1, entry("a", starts(1, 10*time.Minute)), entry("b")), "a 0 not ready in time, failures 1 NotReadyInTime for 30s; b 1 demand"},
	"20: the input is wrong":                       {model(1, entry("a", invalid), entry("b")), "a 0 input wrong; b 1 demand"},
	"20: the input has become wrong":               {model(150, entry("a", invalid, bounds(3, 0), serves(1), starts(1, 0)), entry("b")), "a 1 input wrong; b 1 demand"},
	"20: the input was wrong before an edit":       {model(1, entry("a", func(e *Entry) { e.Record.LastFailure = &Failure{ReasonInvalid, "", ago(0)} }), entry("b")), "a 1 demand; b 0 stays"},
	"20: a Pod says that the input is wrong":       {model(1, entry("a", starts(1, 0, func(p *Pod) { p.Failure = &Failure{ReasonInvalid, "no image", now} })), entry("b")), "a 0 input wrong, failures 1 InvalidInput; b 1 demand"},
	"20: a Pod has said so":                        {model(1, entry("a", toldInvalid, late(Pod{Failure: &Failure{Reason: ReasonInvalid}})), entry("b")), "a 0 input wrong; b 1 demand"},
	"20: a Pod has said so, before an edit":        {model(1, entry("a", toldInvalid, func(e *Entry) { e.Hash = "other" }), entry("b")), "a 1 demand, failures 0; b 0 stays"},
	"20: one Pod of two says so":                   {model(150, entry("a", serves(1), starts(1, 0, func(p *Pod) { p.Failure = &Failure{ReasonInvalid, "no image", now} })), entry("b")), "a 1 input wrong, failures 1 InvalidInput; b 1 demand"},
	"20: other Pods fail later":                    {model(1, entry("a", toldInvalid, starts(1, 0, fails)), entry("b")), "a 0 input wrong; b 1 demand"},
	"20: the other members are asked":              {held(model(1, entry("a", in("g", 0), toldInvalid), entry("b", in("g", 0)))), "a 0 input wrong; b 1 races"},
	"20: an edit forgets the failures":             {model(1, entry("a", failed(9, 0), func(e *Entry) { e.Hash = "other" }), entry("b")), "a 1 demand, failures 0; b 0 stays"},
	"21: a and b have failed":                      {model(1, entry("a", failed(1, 20*time.Second)), entry("b", failed(1, 0)), entry("c")), "a 0 backs off; b 0 backs off; c 1 demand"},
	"21: c was not tried since a failed":           {model(1, entry("a", failed(1, time.Hour)), entry("b", failed(1, time.Second)), entry("c")), "a 0 stays; b 0 backs off; c 1 demand"},
	"21: all have failed, the first is next":       {model(1, entry("a", failed(1, 31*time.Second)), entry("b", failed(1, 20*time.Second)), entry("c", failed(1, 0))), "a 1 demand; b 0 backs off; c 0 backs off"},
	"21: a has failed again, b is next":            {model(1, entry("a", failed(2, 0)), entry("b", failed(1, 50*time.Second)), entry("c", failed(1, 40*time.Second))), "a 0 backs off; b 1 demand; c 0 stays"},
	"21: one that backs off holds up nobody":       {model(1, entry("a", failed(1, 40*time.Second)), entry("b", failed(7, time.Minute))), "a 1 demand; b 0 backs off"},
	"21: all back off":                             {model(1, entry("a", failed(1, 0)), entry("b", failed(1, 0))), "a 0 backs off; b 0 backs off"},
	"21: the second failure":                       {model(1, entry("a", failed(1, time.Minute), starts(1, time.Minute, fails))), "a 0 Pod failed, failures 2 EngineFailed for 1m0s"},
	"21: the pause is bounded":                     {model(1, entry("a", failed(40, time.Hour), starts(1, time.Minute, fails))), "a 0 Pod failed, failures 41 EngineFailed for 30m0s"},
	"21: a ready replica resets it":                {model(1, entry("a", failed(3, time.Minute), became(time.Second))), "a 1 stays +a1, failures 0"},
	"21: one that was ready before does not":       {model(101, entry("a", failed(3, time.Minute), serves(1))), "a 1 backs off"},
	"22: the back-off is over":                     {model(80, entry("a", failed(1, time.Minute)), entry("b", serves(1))), "a 1 back to the preferred; b 1 stays"},
	"22: it is not over":                           {model(80, entry("a", failed(1, 0)), entry("b", serves(1))), "a 0 backs off; b 1 stays"},
	"22: it is tried":                              {model(80, entry("a", starts(1, 0)), entry("b", serves(1))), "a 1 stays; b 1 stays"},
	"22: it is ready":                              {model(80, entry("a", became(0)), entry("b", serves(1))), "a 1 stays +a1; b 1 stays"},
	"22: it is tried, and another one failed":      {model(80, entry("a", failed(1, 0), starts(1, 0)), entry("b", serves(1))), "a 1 stays; b 1 stays"},
	"22: it serves":                                {model(80, entry("a", serves(1)), entry("b", serves(1))), "a 1 stays; b 0 less demand -b1"},
	"22: it carries less than the later one":       {model(80, entry("a", target(50), serves(1)), entry("b", serves(1))), "a 2 back to the preferred; b 1 stays"},
	"22: it cannot replace the later one":          {model(80, entry("a", target(50), bounds(0, 1)), entry("b", serves(1))), "a 0 stays; b 1 stays"},
	"22: two together can replace it":              {model(80, entry("a", target(50), bounds(0, 1)), entry("b", target(50), bounds(0, 1)), entry("c", serves(1))), "a 1 back to the preferred; b 0 stays; c 1 stays"},
	"22: the later one has its minimum":            {model(80, entry("a"), entry("b", bounds(1, 0), serves(1))), "a 0 stays; b 1 stays"},
	"22: the later one is of the same group":       {model(80, entry("a", in("g", 0)), entry("b", in("g", 0), serves(1))), "a 0 stays; b 1 stays"},
	"22: nothing is wanted any more":               {model(0, entry("a"), entry("b", serves(1))), "a 0 stays; b 0 less demand -b1"},
	"22: the total has no room":                    {totals(0, 1, model(80, entry("a"), entry("b", serves(1)))), "a 0 stays; b 1 stays"},
	"23: ready after it was taken back":            {model(80, entry("a", failed(1, time.Second), late(Pod{Ready: true, Since: ago(time.Minute)})), entry("b", serves(1))), "a 0 backs off; b 1 stays"},
	"23: ready late beside one that serves":        {model(80, entry("a", serves(1), late(Pod{Ready: true, Since: ago(2 * time.Hour)}))), "a 1 stays"},
	"24: the end of the list goes first":           {model(150, entry("a", bounds(0, 1), serves(1)), entry("b", serves(1)), entry("c", serves(1))), "a 1 stays; b 1 stays; c 0 less demand -c1"},
	"24: unready ones go first":                    {peaked(150, model(150, entry("a", serves(2), starts(1, 0)))), "a 2 less demand"},
	"24: hopeful ones of earlier entries":          {model(80, entry("a", starts(3, 0)), entry("b", serves(1))), "a 1 less demand; b 1 stays"},
	"25: the highest demand counts":                {peaked(150, model(0, entry("a", serves(2)))), "a 2 stays"},
	"25: fewer than the highest demand needs":      {peaked(150, model(0, entry("a", serves(4)))), "a 2 less demand -a3 -a4"},
	"25: the demand is not known":                  {unknown(model(0, entry("a", serves(2)))), "a 2 demand not known"},
	"26: the total minimum":                        {totals(2, 0, model(0, entry("a"), entry("b"))), "a 2 demand; b 0 stays"},
	"26: the total minimum, the first fails":       {totals(2, 0, model(0, entry("a", failed(1, 0), serves(1)), entry("b"))), "a 1 backs off; b 1 demand"},
	"26: minimums":                                 {model(0, entry("a", bounds(1, 0)), entry("b", bounds(2, 0), serves(1))), "a 1 minimum; b 2 minimum"},
	"26: the total minimum by what is ready":       {totals(1, 0, model(0, entry("a", starts(1, 0)), entry("b", serves(1)))), "a 1 stays; b 1 stays"},
	"26: the total maximum":                        {totals(0, 3, model(900, entry("a", bounds(0, 2), serves(1)), entry("b"))), "a 2 demand; b 1 demand"},
	"26: minimums above the total maximum":         {totals(0, 1, model(0, entry("a", bounds(1, 0)), entry("b", bounds(1, 0)))), "a 1 minimum; b 0 total maximum"},
	"26: the total maximum was lowered":            {totals(0, 1, model(300, entry("a", serves(1), starts(1, 0)), entry("b", serves(1)))), "a 1 total maximum; b 0 total maximum -b1"},
	"26: hopeful ones go before ready ones":        {totals(0, 2, model(300, entry("a", serves(1), starts(1, 0)), entry("b", serves(1)))), "a 1 total maximum; b 1 total maximum"},
	"26: a maximum was lowered":                    {model(300, entry("a", bounds(0, 1), serves(2)), entry("b", serves(1))), "a 1 at its maximum -a2; b 2 demand"},
	"27: hopeful ones are not asked twice":         {held(model(1000, entry("a", awaits(4), starts(6, 0)))), "a 10 stays"},
	"27: more come while they start":               {held(model(1001, entry("a", awaits(4), starts(6, 0)))), "a 11 demand"},
}

// groupCases are those about groups.
var groupCases = map[string]decisionCase{
	"28: a member sleeps on free GPUs":            {held(model(1, entry("a", in("g", 0)), entry("b", in("g", 0), asleep(1)))), "a 0 stays; b 1 wakes on free GPUs"},
	"28: sleepers carry not all":                  {held(model(150, entry("a", in("g", 0)), entry("b", in("g", 0), asleep(1)))), "a 2 races; b 2 races"},
	"28: the sleeper has failed":                  {held(model(1, entry("a", in("g", 0), asleep(1), failed(1, time.Hour)), entry("b", in("g", 0), failed(1, time.Minute)))), "a 1 races; b 1 races"},
	"28: the sleeper is on its way":               {held(model(1, entry("a", in("g", 0)), entry("b", in("g", 0), starts(1, 0)))), "a 0 stays; b 1 stays"},
	"34: each member is asked":                    {held(model(1, entry("a", in("g", 0)), entry("b", in("g", 0)), entry("c", in("g", 0)))), "a 1 races; b 1 races; c 1 races"},
	"34: each is asked for what it takes":         {held(model(500, entry("a", in("g", 0)), entry("b", in("g", 0), target(300)), entry("c"))), "a 5 races; b 2 races; c 0 stays"},
	"34: b is ready first":                        {model(1, entry("a", in("g", 1), starts(1, 0)), entry("b", in("g", 1), became(0)), entry("c", in("g", 1), starts(1, 0))), "a 0 race is over; b 1 stays +b1; c 0 race is over"},
	"35: two are ready in one pass":               {model(1, entry("a", in("g", 1), became(0)), entry("b", in("g", 1), became(time.Minute))), "a 1 stays +a1; b 0 race is over"},
	"36: two of one entry":                        {model(150, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0), became(0))), "a 0 race is over; b 2 stays +b1 +b2"},
	"36: one of each":                             {model(150, entry("a", in("g", 150), became(0), starts(1, 0)), entry("b", in("g", 150), became(0), starts(1, 0))), "a 1 race is over +a1; b 1 race is over +b1"},
	"36: the first of two":                        {model(150, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0), starts(1, 0))), "a 2 stays; b 2 stays +b1"},
	"36: the demand falls for a moment":           {peaked(150, model(90, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0), starts(1, 0)))), "a 2 stays; b 2 stays +b1"},
	"36: the demand falls, and is not known":      {unknown(model(80, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0), starts(1, 0)))), "a 2 stays; b 2 stays +b1"},
	"36: the demand falls for long":               {model(80, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0), starts(1, 0))), "a 0 race is over; b 1 race is over +b1"},
	"36: the demand grows beyond the goal":        {model(350, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0), became(0))), "a 2 stays; b 2 stays +b1 +b2"},
	"36: each is asked for all that it lacks":     {model(350, entry("a", in("g", 150), starts(1, 0)), entry("b", in("g", 150), starts(2, 0))), "a 4 races; b 4 races"},
	"36: the demand grows":                        {model(350, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), starts(2, 0))), "a 4 races; b 4 races"},
	"36: the demand is gone":                      {model(0, entry("a", in("g", 150), starts(2, 0)), entry("b", in("g", 150), became(0))), "a 0 race is over; b 1 stays +b1"},
	"34: a loser fails before it is deleted":      {model(1, entry("a", in("g", 0), late(Pod{Cost: goesFirst, Failure: &Failure{}})), entry("b", in("g", 1), serves(1))), "a 0 stays; b 1 stays"},
	"37: a member has failed, another comes":      {held(model(150, entry("a", in("g", 150), failed(1, time.Hour)), entry("b", in("g", 150), bounds(0, 1), starts(1, 0)))), "a 0 stays; b 1 stays"},
	"37: a member fails":                          {held(model(1, entry("a", in("g", 1), starts(1, 0, fails)), entry("b", in("g", 1), starts(1, 0)))), "a 0 Pod failed, failures 1 EngineFailed for 30s; b 1 stays"},
	"37: all have failed":                         {held(model(1, entry("a", in("g", 0), failed(1, time.Minute)), entry("b", in("g", 0), failed(1, 0)), entry("c"))), "a 0 stays; b 0 backs off; c 1 demand"},
	"37: all have failed, and there is no other":  {held(model(1, entry("a", in("g", 0), failed(1, time.Minute)), entry("b", in("g", 0), failed(1, 0)))), "a 0 group backs off; b 0 group backs off"},
	"37: a member whose input is wrong":           {held(model(1, entry("a", in("g", 0), invalid), entry("b", in("g", 0), failed(1, time.Hour)), entry("c", in("g", 0), failed(1, 0)))), "a 0 input wrong; b 0 group backs off; c 0 group backs off"},
	"37: the group failed last":                   {held(model(1, entry("a", in("g", 0), invalid), entry("b", in("g", 0), failed(1, 40*time.Second)), entry("c", failed(1, 50*time.Second)))), "a 0 input wrong; b 0 stays; c 1 demand"},
	"37: the back-off of all is over":             {held(model(1, entry("a", in("g", 0), failed(1, 2*time.Minute)), entry("b", in("g", 0), failed(1, time.Minute)))), "a 1 races; b 1 races"},
	"38: the winner was told, the rest was not":   {model(1, entry("a", in("g", 1), starts(1, 0)), entry("b", in("g", 1), serves(1)), entry("c", in("g", 1), became(0))), "a 0 race is over; b 1 stays; c 0 race is over"},
	"38: the controller died as the race began":   {held(model(1, entry("a", in("g", 1), starts(1, 0)), entry("b", in("g", 0)), entry("c", in("g", 0)))), "a 1 stays; b 1 races; c 1 races"},
	"38: the winner has died since":               {held(model(1, entry("a", in("g", 1), starts(1, 0)), entry("b", in("g", 0), became(0)))), "a 0 race is over; b 1 stays +b1"},
	"39: the total is spent in list order":        {totals(0, 3, held(model(150, entry("a", in("g", 0)), entry("b", in("g", 0)), entry("c", in("g", 0))))), "a 2 races; b 1 races; c 0 total maximum"},
	"39: a maximum within the group":              {held(model(150, entry("a", in("g", 0), bounds(0, 1)), entry("b", in("g", 0)))), "a 1 races; b 2 races"},
	"39: a minimum does not race":                 {model(1, entry("a", in("g", 1), bounds(1, 0), starts(2, 0)), entry("b", in("g", 1), became(0))), "a 1 race is over; b 1 stays +b1"},
	"39: a minimum serves whoever else does":      {model(1, entry("a", in("g", 1), bounds(1, 0), became(0)), entry("b", in("g", 1), serves(1))), "a 1 stays +a1; b 1 stays"},
	"39: the total minimum":                       {totals(1, 0, model(0, entry("a", in("g", 0)), entry("b", in("g", 0)))), "a 1 races; b 1 races"},
	"39: the total minimum, b is first":           {totals(1, 0, model(0, entry("a", in("g", 1), starts(1, 0)), entry("b", in("g", 1), became(0)))), "a 0 race is over; b 1 stays +b1"},
	"22: a group is tried one by one":             {model(80, entry("a", in("g", 0)), entry("b", in("g", 0)), entry("c", serves(1))), "a 1 back to the preferred; b 0 stays; c 1 stays"},
	"a Pod that has served before comes back":     {model(1, entry("a", in("g", 0), became(0, func(p *Pod) { p.Admitted = true })), entry("b", in("g", 0))), "a 1 stays +a1; b 0 stays"},
	"a Pod takes the place of one that serves":    {model(1, entry("a", in("g", 0), serves(1), late(Pod{Ready: true, Since: now}), func(e *Entry) { e.Pods[0].Leaving = true })), "a 1 stays +a2 -a1"},
	"34: an entry before the group is on its way": {model(150, entry("o", bounds(0, 1), starts(1, 0)), entry("a", in("g", 150), starts(1, 0)), entry("b", in("g", 150), became(0))), "o 1 stays; a 0 race is over; b 1 stays +b1"},
	"what an entry before carries is not missed":  {held(model(150, entry("o", bounds(0, 1), starts(1, 0)), entry("a", in("g", 0)), entry("b", in("g", 0)))), "o 1 at its maximum; a 1 races; b 1 races"},
}

// standbyCases are those about standbys.
var standbyCases = map[string]decisionCase{
	"29: nothing is wanted":                       {model(0, entry("a"), standby("s")), "a 0 stays; s 1 standby alone"},
	"29: the standby alone":                       {model(1, entry("a"), standby("s", serves(1))), "a 1 demand; s 1 standby alone"},
	"29: a is ready":                              {model(1, entry("a", became(0)), standby("s", serves(1))), "a 1 stays +a1; s 1 standby alone"},
	"29: a serves":                                {model(1, entry("a", serves(1)), standby("s", serves(1))), "a 1 stays; s 0 standby rests -s1"},
	"30: the last one would go":                   {model(0, entry("a", serves(1)), standby("s")), "a 1 last one stays; s 1 standby before the last goes"},
	"30: the standby is not ready yet":            {model(0, entry("a", serves(1)), standby("s", starts(1, 0))), "a 1 last one stays; s 1 standby before the last goes"},
	"30: the standby has no label yet":            {model(0, entry("a", serves(1)), standby("s", became(0))), "a 1 last one stays; s 1 standby before the last goes +s1"},
	"30: the standby serves":                      {model(0, entry("a", serves(1)), standby("s", serves(1))), "a 0 less demand -a1; s 1 standby alone"},
	"30: one of two standby replicas serves":      {model(0, entry("a", serves(1)), standby("s", bounds(2, 0), serves(1), starts(1, 0))), "a 1 last one stays; s 2 standby before the last goes"},
	"30: the last but one goes freely":            {model(0, entry("a", serves(1)), entry("b", serves(1)), standby("s")), "a 1 last one stays; b 0 less demand -b1; s 1 standby before the last goes"},
	"30: the demand is not known":                 {unknown(model(0, entry("a", serves(1)), standby("s"))), "a 1 demand not known; s 0 standby rests"},
	"31: a is gone":                               {held(model(1, entry("a", awaits(1)), standby("s"))), "a 1 stays; s 1 standby alone"},
	"31: a is not ready":                          {held(model(1, entry("a", starts(1, 0, func(p *Pod) { p.Serving, p.Admitted = true, true })), standby("s"))), "a 1 stays -a1; s 1 standby alone"},
	"32: the standby has failed":                  {model(0, entry("a", serves(1)), standby("s", starts(1, 0, fails))), "a 1 last one stays; s 0 Pod failed, failures 1 EngineFailed for 30s"},
	"32: the standby's input is wrong":            {model(0, entry("a", serves(1)), standby("s", invalid)), "a 1 last one stays; s 0 input wrong"},
	"33: the first standby":                       {model(0, entry("a"), standby("s"), standby("t")), "a 0 stays; s 1 standby alone; t 0 later standby"},
	"33: the first standby fails":                 {model(0, entry("a"), standby("s", starts(1, 0, fails)), standby("t")), "a 0 stays; s 0 Pod failed, failures 1 EngineFailed for 30s; t 1 standby alone"},
	"33: the first standby is tried again":        {model(0, entry("a"), standby("s", failed(1, time.Hour)), standby("t", serves(1))), "a 0 stays; s 1 standby alone; t 1 standby alone"},
	"33: the second serves until the first does":  {model(0, standby("s", became(0)), standby("t", serves(1))), "s 1 standby alone +s1; t 1 standby alone"},
	"33: a part of the second serves":             {model(0, standby("s", starts(1, 0)), standby("t", bounds(2, 0), serves(1))), "s 1 standby alone; t 1 later standby"},
	"33: a part of the first serves, and another": {model(0, standby("s", bounds(2, 0), failed(1, 0), serves(1)), standby("t")), "s 1 backs off; t 1 standby alone"},
	"33: the first one serves":                    {model(0, standby("s", serves(1)), standby("t", serves(1))), "s 1 standby alone; t 0 later standby -t1"},
	"33: a standby whose minimum was lowered":     {model(0, standby("s", serves(2))), "s 1 standby alone -s2"},
	"a standby without a minimum":                 {model(0, entry("a", serves(1)), standby("s", bounds(0, 0))), "a 0 less demand -a1; s 0 standby without replicas"},
	"totals do not count standbys":                {totals(1, 1, model(0, entry("a"), standby("s", serves(1)))), "a 1 demand; s 1 standby alone"},
	"a standby is no entry to fall back to":       {model(1, entry("a", failed(1, 0)), standby("s", serves(1))), "a 0 backs off; s 1 standby alone"},
	"entries that wait go without a standby":      {model(0, entry("a", starts(1, 0)), standby("s", serves(1))), "a 0 less demand; s 1 standby alone"},
	"a standby that is ready too late is no loss": {model(1, entry("a", serves(1)), standby("s", became(0))), "a 1 stays; s 0 standby rests"},
}

// modeCases are those about modes, and about what others write.
var modeCases = map[string]decisionCase{
	"57: the total is spread by order":      {external(3, entry("a", bounds(0, 2)), entry("b")), "a 2 demand; b 1 demand"},
	"57: a stockout moves on":               {external(2, entry("a", starts(2, time.Minute, unschedulable(time.Minute))), entry("b")), "a 0 unschedulable too long, failures 1 Unschedulable for 30s; b 2 demand"},
	"57: fewer":                             {external(1, entry("a", serves(1)), entry("b", serves(1))), "a 1 stays; b 0 less demand -b1"},
	"57: none, with a standby":              {external(0, entry("a", serves(1)), standby("s")), "a 1 last one stays; s 1 standby before the last goes"},
	"57: a minimum":                         {external(0, entry("a", bounds(1, 0))), "a 1 minimum"},
	"57: back to the preferred":             {external(1, entry("a"), entry("b", serves(1))), "a 1 back to the preferred; b 1 stays"},
	"57: a group":                           {external(1, entry("a", in("g", 0)), entry("b", in("g", 0))), "a 1 races; b 1 races"},
	"60: scaled up by somebody else":        {model(80, entry("a", serves(1), func(e *Entry) { e.Replicas = 5 })), "a 1 stays"},
	"60: scaled up, and another Pod serves": {model(80, entry("a", serves(2), func(e *Entry) { e.Asked.Replicas = 1 })), "a 1 stays -a2"},
	"60: scaled down by somebody else":      {model(80, entry("a", awaits(1), func(e *Entry) { e.Replicas = 0 })), "a 1 stays"},
	"60: scaled by hand in mode Off":        {off(model(900, entry("a", serves(2), func(e *Entry) { e.Asked.Replicas = 1 }), entry("b", late(Pod{Ready: true})), standby("s"))), "a 2 scaling is off; b 0 scaling is off; s 0 scaling is off"},
	"60: a Pod becomes ready in mode Off":   {off(model(0, entry("a", became(0)))), "a 1 scaling is off +a1"},
	"60: a Pod fails in mode Off":           {off(model(0, entry("a", starts(1, 0, fails)))), "a 1 scaling is off, failures 1 EngineFailed for 30s"},
}

func TestEntriesAreScaledInOrder(t *testing.T)   { checkAll(t, orderedCases) }
func TestMembersOfAGroupRace(t *testing.T)       { checkAll(t, groupCases) }
func TestStandbyServesWhileNoOther(t *testing.T) { checkAll(t, standbyCases) }
func TestModesAndWritesOfOthers(t *testing.T)    { checkAll(t, modeCases) }

func TestEachRowHasACase(t *testing.T) {
	has := map[Row]bool{}
	for _, cases := range []map[string]decisionCase{orderedCases, groupCases, standbyCases, modeCases} {
		for _, c := range cases {
			for _, e := range Decide(c.model).Entries {
				has[e.Row] = true
			}
		}
	}
	for _, row := range rows {
		assert.True(t, has[row], "no case has the row %q", row)
	}
}

func TestTableOfTheDocumentHasTheRows(t *testing.T) {
	page, err := os.ReadFile("../../../../spec/model.md")
	require.NoError(t, err)
	var written []Row
	for _, table := range regexp.MustCompile(`(?m)^\| row \|.*\n\|-.*\n((?:\|.*\n)+)`).FindAllStringSubmatch(string(page), -1) {
		for _, line := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table[1], -1) {
			written = append(written, Row(line[1]))
		}
	}
	assert.Equal(t, rows, written)
	code, err := os.ReadFile("rows.go")
	require.NoError(t, err)
	var coded []Row
	for _, found := range regexp.MustCompile(`(?m)^\tRow\w+ +Row = "(.*)"$`).FindAllStringSubmatch(string(code), -1) {
		coded = append(coded, Row(found[1]))
	}
	assert.Equal(t, rows, coded)
	assert.LessOrEqual(t, len(slices.Compact(coded)), 25)
}
