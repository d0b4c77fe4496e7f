package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// known are the GPUs that the driver has listed in a boot.
type known struct {
	Boot    string   `json:"boot_id"`
	Devices []Device `json:"devices"`
}

// knownDevices returns the GPUs that the driver has listed since the machine was booted.
func knownDevices(path string) []Device {
	if path == "" {
		return nil
	}
	var k known
	boot, err := procfs.BootID()
	if err != nil {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &k) != nil || k.Boot != boot {
		return nil
	}
	return k.Devices
}

// keepKnown keeps the GPUs that the driver lists, unless they are kept.
func keepKnown(path string, devices []Device) error {
	if path == "" || slices.Equal(knownDevices(path), devices) {
		return nil
	}
	boot, err := procfs.BootID()
	if err != nil {
		return err
	}
	text, err := json.Marshal(known{boot, devices})
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("cannot keep which GPUs the driver lists: %w", err)
	}
	return nil
}

// late is a driver that has not answered at the start. Its GPUs are those that it listed
// before:
//
//	the driver                             Memory and Health
//	does not answer                        return a SilentError
//	answers in the end                     are those of the driver
//	answers, and lists other GPUs by now   the same; the others are used after a restart
type late struct {
	devices []Device
	opts    Options
	since   time.Time
	calls   *sync.WaitGroup // which the driver has not answered
	shut    chan struct{}   // closed by Close
	ended   chan struct{}   // closed when the goroutine of await has ended

	mu     sync.Mutex
	driver *Guarded // nil: it has not answered yet
}

// retryTime is the time between two attempts to open a driver that answers with an error.
const retryTime = 10 * time.Second

func newLate(devices []Device, opts Options, calls *sync.WaitGroup) *late {
	l := &late{devices: devices, opts: opts, since: time.Now(), calls: calls, shut: make(chan struct{}), ended: make(chan struct{})}
	go l.await()
	return l
}

// await opens the driver as soon as it has answered all that it was asked: no more calls wait
// for it than those of one attempt.
func (l *late) await() {
	defer close(l.ended)
	for {
		answered := make(chan struct{})
		go func() { l.calls.Wait(); close(answered) }() // which ends with the driver's answers
		select {
		case <-answered:
		case <-l.shut:
			return
		}
		driver, err := openNVML(l.opts, l.calls)
		if err == nil {
			l.use(driver)
			return
		}
		l.opts.Logger.Warn("the GPUs' driver cannot be used yet", "error", err)
		select {
		case <-time.After(retryTime):
		case <-l.shut:
			return
		}
	}
}

func (l *late) use(driver *nvml) {
	l.mu.Lock()
	l.driver = Guard(driver, l.opts.Logger)
	l.mu.Unlock()
	l.opts.Logger.Info("the GPUs' driver answers")
	if !slices.Equal(driver.devices, l.devices) {
		l.opts.Logger.Error("the GPUs' driver lists other GPUs than before; restart the launcher to use them", "before", names(l.devices), "now", names(driver.devices))
	}
}

// answering returns the driver; nil: it has not answered yet.
func (l *late) answering() *Guarded {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.driver
}

func (l *late) Kind() string         { return kindNVML }
func (l *late) Devices() []Device    { return slices.Clone(l.devices) }
func (l *late) AllDevices() []Device { return l.Devices() }
func (l *late) Env() []string        { return nil }

func (l *late) has(uuid string) bool {
	return slices.ContainsFunc(l.devices, func(d Device) bool { return d.UUID == uuid })
}

func (l *late) Memory(uuid string) (Memory, error) {
	driver := l.answering()
	switch {
	case driver != nil:
		return driver.Memory(uuid)
	case !l.has(uuid):
		return Memory{}, unknown(uuid)
	}
	return Memory{}, fmt.Errorf("cannot read the memory of a GPU: %w", &SilentError{uuid, l.since})
}

func (l *late) Health(uuid string) Health {
	driver := l.answering()
	switch {
	case driver != nil:
		return driver.Health(uuid)
	case !l.has(uuid):
		return Health{Reason: unknown(uuid).Error()}
	}
	return Health{Reason: (&SilentError{uuid, l.since}).Error()}
}

// Close leaves a driver that does not answer open, until the end of the process.
func (l *late) Close() error {
	close(l.shut)
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
		l.opts.Logger.Warn("leaving the GPUs' driver open, since it does not answer")
	}
	if driver := l.answering(); driver != nil {
		return driver.Close()
	}
	return nil
}
