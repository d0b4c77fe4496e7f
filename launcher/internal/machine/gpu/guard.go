package gpu

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// answerTime is how long a driver may take for one answer about a GPU. It takes
	// milliseconds when it is well.
	answerTime = 3 * time.Second
	// closeTime is how long Close waits for a driver that does not answer.
	closeTime = time.Second
)

const reasonSilent = "the GPU's driver does not answer: see the kernel log; reset the GPU or restart the machine"

// SilentError says that the driver does not answer for a GPU.
type SilentError struct {
	UUID  string
	Since time.Time // of the call that it does not answer
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("GPU %s: %s (silent since %s)", e.UUID, reasonSilent, e.Since.UTC().Format(time.RFC3339))
}

// Inventory is what Guard bounds of a Provider.
type Inventory interface {
	Kind() string
	Devices() []Device
	AllDevices() []Device
	Memory(uuid string) (Memory, error)
	Health(uuid string) Health
	Env() []string
}

// Guarded is an inventory whose driver may hang. No caller waits longer than answerTime for
// its turn, and as long again for the answer; one GPU that hangs does not hold up the others, and at most one call for each GPU waits
// for the driver:
//
//	the driver                       Memory and Health
//	answers                          return the answer
//	takes longer than answerTime     return a SilentError; the call goes on
//	has not ended that call yet      return a SilentError at once
//	ends it in the end               ask the driver again
type Guarded struct {
	Inventory
	logger  *slog.Logger
	drivers map[string]*driver
}

// driver is the driver as one GPU sees it.
type driver struct {
	turn chan struct{} // full while a call waits for the driver

	mu    sync.Mutex
	since time.Time // of the call that takes too long; zero: none does
}

// Guard bounds the calls of an inventory.
func Guard(inventory Inventory, logger *slog.Logger) *Guarded {
	g := &Guarded{Inventory: inventory, logger: logger, drivers: map[string]*driver{}}
	for _, d := range inventory.Devices() {
		g.drivers[d.UUID] = &driver{turn: make(chan struct{}, 1)}
	}
	return g
}

// Memory is that of the inventory, or a *SilentError.
func (g *Guarded) Memory(uuid string) (Memory, error) {
	type result struct {
		memory Memory
		err    error
	}
	r, err := ask(g, uuid, func() result {
		memory, err := g.Inventory.Memory(uuid)
		return result{memory, err}
	})
	if err != nil {
		return Memory{}, fmt.Errorf("cannot read the memory of a GPU: %w", err)
	}
	return r.memory, r.err
}

// Health is that of the inventory. A GPU whose driver does not answer is not OK.
func (g *Guarded) Health(uuid string) Health {
	health, err := ask(g, uuid, func() Health { return g.Inventory.Health(uuid) })
	if err != nil {
		return Health{Reason: err.Error()}
	}
	return health
}

// Close closes the inventory, if it can be closed. While a call waits for the driver, that
// is left to the end of the process.
func (g *Guarded) Close() error {
	inventory, ok := g.Inventory.(interface{ Close() error })
	if !ok {
		return nil
	}
	closed := make(chan error, 1)
	go func() { closed <- inventory.Close() }()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		g.logger.Warn("leaving the GPUs' driver open, since it does not answer")
		return nil
	}
}

// ask asks the driver of a GPU, in a goroutine that ends with the driver's answer.
func ask[T any](g *Guarded, uuid string, question func() T) (answer T, err error) {
	d, ok := g.drivers[uuid]
	if !ok {
		return answer, unknown(uuid)
	}
	began := time.Now()
	if since := d.silentSince(); !since.IsZero() {
		return answer, &SilentError{uuid, since}
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case d.turn <- struct{}{}:
	case <-timer.C:
		return answer, &SilentError{uuid, began}
	}
	began = time.Now()
	timer.Reset(answerTime)
	answered := make(chan T, 1)
	go func() {
		answered <- question()
		if d.answered() {
			g.logger.Info("the driver of a GPU answers again", "gpu", uuid)
		}
		<-d.turn
	}()
	select {
	case answer = <-answered:
		return answer, nil
	case <-timer.C:
	}
	if d.tooLong(began, func() bool { return len(answered) > 0 }) {
		g.logger.Warn("the driver of a GPU does not answer; continuing without its memory and health", "gpu", uuid, "time", answerTime)
	}
	return answer, &SilentError{uuid, began}
}

// silentSince returns when the call began that takes too long; zero: none does.
func (d *driver) silentSince() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since
}

// tooLong notes that the call that began then takes too long, unless it is over.
func (d *driver) tooLong(began time.Time, over func() bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if over() {
		return false
	}
	d.since = began
	return true
}

// answered notes that the call is over, and reports whether it took too long.
func (d *driver) answered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	late := !d.since.IsZero()
	d.since = time.Time{}
	return late
}
