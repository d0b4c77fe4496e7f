package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"hotseat.dev/hotseat/test/enginesim/internal/gpumem"
	"hotseat.dev/hotseat/test/enginesim/internal/link"
)

// startStray makes the worker that leaves, when a fault asks for one, and waits
// until it is away.
//
//	Settings.Stray   process group   session    parent
//	group            its own         as before  EngineCore
//	session          its own         its own    EngineCore
//	double-fork      its own         its own    gone
func startStray(b Boot) error {
	if b.Settings.Stray == "" {
		return nil
	}
	c, err := spawn(strayTitle, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: b.Settings.Stray == "group", Setsid: b.Settings.Stray != "group"}
		if b.Settings.StrayEnv == "clear" {
			cmd.Env = []string{}
		}
	})
	if err != nil {
		return err
	}
	if err := c.boot(b); err != nil {
		return fmt.Errorf("cannot start a stray worker: %w", err)
	}
	if err := c.link.Close(); err != nil {
		return err
	}
	if b.Settings.Stray == "double-fork" {
		<-c.done
	}
	return nil
}

// runStray holds its memory and ignores every signal that can be ignored.
func runStray() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	leaving := make(chan struct{})
	err := link.Inherited().Serve(func(call link.Call) error {
		var b Boot
		if err := json.Unmarshal(call.Boot, &b); err != nil {
			return fmt.Errorf("cannot read the boot call: %w", err)
		}
		if b.Settings.Stray != "double-fork" {
			return gpumem.Hold(b.GPUDir, b.Visible, b.Settings.StrayBytes)
		}
		defer close(leaving)
		return hatch(b)
	})
	if err != nil {
		os.Exit(1)
	}
	select {
	case <-leaving:
		os.Exit(0)
	default:
		select {}
	}
}

// hatch starts the second process of a double fork, whose parent then ends.
func hatch(b Boot) error {
	b.Settings.Stray = "born"
	c, err := spawn(strayTitle, nil)
	if err != nil {
		return err
	}
	if err := c.boot(b); err != nil {
		return err
	}
	return c.link.Close()
}
