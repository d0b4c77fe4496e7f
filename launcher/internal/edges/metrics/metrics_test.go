package metrics

import (
	"net/http/httptest"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

type world struct{}

func (world) List() ([]launcherapi.Instance, uint64) {
	return []launcherapi.Instance{{InstanceID: "a", State: "awake", InFlight: 3, Held: 2}}, 1
}

func (world) GPUs() launcherapi.GPUList {
	return launcherapi.GPUList{HostSleepers: 7, QueuedSwaps: 1, ActiveSwaps: 1, GPUs: []launcherapi.GPU{{
		UUID: "GPU-0", MemoryTotalBytes: 80, MemoryFreeBytes: 20, ForeignBytes: 5, ReservedBytes: 1,
		Awake: []launcherapi.GPUHolder{{InstanceID: "a", State: "awake", Bytes: 50}},
	}}}
}

// scrape gives the text of a registry in which every metric has a value.
func scrape(t *testing.T) string {
	t.Helper()
	m := New()
	m.Watch(world{}, func() launcherapi.PreloaderList { return launcherapi.PreloaderList{} }, func() time.Time { return time.Time{} })
	m.WatchModels(func() (launcherapi.ModelList, error) {
		return launcherapi.ModelList{UsedBytes: 9, LimitBytes: 10, Models: []launcherapi.Model{{State: launcherapi.ModelReady}}}, nil
	})
	m.WatchFrontDoor(func() map[string]int { return map[string]int{"qwen": 3} })
	m.FrontDoorRequest("answered")
	m.FrontDoorWait("answered", time.Second)
	m.FrontDoorTransition("wake", "done")
	m.Pulled("done", 9)
	m.Evicted(8)
	m.Transition(launcher.Starting, launcher.Failed, "")
	m.Phase("drain", time.Second)
	m.Refused("does_not_fit", "device_memory")
	m.Cut(2)
	m.WriteFailed()
	m.Started("exec", true)
	m.Swap("done", time.Second)
	m.Request("inference", "answered", time.Millisecond)
	m.API("/v2/gpus", "GET", 200, time.Millisecond)
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, rec.Code)
	return rec.Body.String()
}

func TestTheListInTheSpecIsThatOfTheCode(t *testing.T) {
	helped := regexp.MustCompile(`(?m)^# HELP (hotseat_\S+) (.*)$`)
	typed := regexp.MustCompile(`(?m)^# TYPE (hotseat_\S+) (\S+)$`)
	text := scrape(t)
	kinds := map[string]string{}
	for _, m := range typed.FindAllStringSubmatch(text, -1) {
		kinds[m[1]] = m[2]
	}
	var code []string
	for _, m := range helped.FindAllStringSubmatch(text, -1) {
		code = append(code, strings.Join([]string{m[1], kinds[m[1]], strings.Join(labels(text, m[1]), ", "), m[2]}, " | "))
	}
	spec, err := os.ReadFile("../../../../spec/metrics.md")
	require.NoError(t, err)
	own, _, _ := strings.Cut(string(spec), "\n## The requester")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(hotseat_[^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(own, -1) {
		listed = append(listed, m[1]+" | "+m[2])
	}
	sort.Strings(code)
	sort.Strings(listed)
	assert.Equal(t, code, listed, "spec/metrics.md on the right")
}

func labels(text, name string) []string {
	m := regexp.MustCompile(`(?m)^` + name + `(?:_bucket)?\{([^}]*)\}`).FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	var out []string
	for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[1], -1) {
		if l[1] != "le" {
			out = append(out, l[1])
		}
	}
	sort.Strings(out)
	return out
}

func TestWhatIsTrueNowIsReadAtEachScrape(t *testing.T) {
	text := scrape(t)
	for _, line := range []string{
		`hotseat_instances{state="awake"} 1`,
		`hotseat_instances{state="sleeping"} 0`,
		`hotseat_requests_in_flight{instance="a"} 3`,
		`hotseat_requests_held{instance="a"} 2`,
		`hotseat_gpu_memory_bytes{gpu="GPU-0",holder="a",state="awake"} 50`,
		`hotseat_gpu_memory_bytes{gpu="GPU-0",holder="_foreign",state=""} 5`,
		`hotseat_instance_failures_total{cause="unknown"} 1`,
		`hotseat_requests_cut_total 2`,
		`hotseat_models{state="Ready"} 1`,
		`hotseat_front_door_requests_waiting{model="qwen"} 3`,
		`hotseat_front_door_transitions_total{kind="wake",outcome="done"} 1`,
		`hotseat_models{state="Downloading"} 0`,
		`hotseat_model_store_bytes 9`,
		`hotseat_model_network_bytes_total 9`,
		`hotseat_model_evictions_total 1`,
		`hotseat_model_evicted_bytes_total 8`,
	} {
		assert.Contains(t, text, line)
	}
}
