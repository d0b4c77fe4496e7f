package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/models/keeper"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

const envModelStore = "HOTSEAT_MODEL_STORE"

// storeFlags are those of each command about a folder of models.
type storeFlags struct {
	dir  string
	wait time.Duration
}

func (s *storeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.dir, "model-store", "", fmt.Sprintf("`DIR` with the models (environment %s; default hotseat/models in the user's cache folder)", envModelStore))
}

func (s *storeFlags) addWait(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&s.wait, "wait", 10*time.Minute, "how long to wait for another process that changes the store")
}

func (s *storeFlags) folder() (string, error) {
	if dir := cmp.Or(s.dir, os.Getenv(envModelStore)); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", usagef("cannot find the folder of the models: %w; name it by --model-store", err)
	}
	return filepath.Join(cache, "hotseat", "models"), nil
}

func (s *storeFlags) read() (*modelstore.Reader, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	r, err := modelstore.Read(dir)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return r, nil
}

// open takes the folder, waiting for another owner. It calls waiting once with that owner.
func (s *storeFlags) open(ctx context.Context, o modelstore.Options, waiting func(owner string)) (*modelstore.Store, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	deadline := time.NewTimer(s.wait)
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for told := false; ; {
		store, err := modelstore.Open(o)
		busy, locked := errors.AsType[*modelstore.LockedError](err)
		if !locked {
			if err != nil {
				return nil, usagef("%w", err)
			}
			if exposed := modelstore.Exposed(dir); exposed != "" && o.Note != nil {
				o.Note(exposed)
			}
			return store, nil
		}
		if !told {
			told = true
			waiting(busy.Owner)
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *cli) modelsCommand() *cobra.Command {
	var folder storeFlags
	var verify bool
	cmd := &cobra.Command{
		Use:   "models [flags]",
		Short: "List the models on disk",
		Example: `  launcher models
  launcher models --verify`,
		Args: exactly(),
	}
	folder.add(cmd)
	cmd.Flags().BoolVar(&verify, "verify", false, "read every file and check its hash")
	c.formatFlag(cmd, formatWide)
	cmd.RunE = func(*cobra.Command, []string) error {
		store, err := folder.read()
		if err != nil {
			return err
		}
		versions, err := store.Versions()
		if err != nil {
			return err
		}
		all, damaged := []launcherapi.Model{}, 0
		for _, v := range versions {
			if verify {
				v.Damage = store.Verify(v.Key)
			}
			m := keeper.Model(store, v)
			if m.State == launcherapi.ModelDamaged {
				damaged++
			}
			all = append(all, m)
		}
		if err := c.show(all, func(w io.Writer) error { return c.modelTable(w, all) }); err != nil {
			return err
		}
		if !verify {
			return nil
		}
		if damaged > 0 {
			return fmt.Errorf("%d of %d models are damaged; pull them again", damaged, len(all))
		}
		c.tellNote("every file was read, and none is damaged")
		return nil
	}
	cmd.AddCommand(c.keepCommand(), c.exportModelCommand())
	return cmd
}

// exportModelCommand writes a model of the hub where the hub's own libraries look for it.
func (c *cli) exportModelCommand() *cobra.Command {
	var folder storeFlags
	cmd := &cobra.Command{
		Use:   "export [flags] MODEL DIR",
		Short: "Copy a model of the Hugging Face hub into a cache of the hub's own libraries",
		Long: `Copy a model of the Hugging Face hub into a cache of the hub's own libraries.

DIR is what those libraries know as HF_HUB_CACHE; with HF_HUB_OFFLINE=1 they ask the hub
for nothing. The copy belongs to them: launcher rm does not remove it. Engines that the
launcher starts need no copy.`,
		Example: `  launcher models export hf://Qwen/Qwen3-0.6B ~/.cache/huggingface/hub`,
		Args:    exactly("MODEL", "DIR"),
	}
	folder.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return interrupted(cmd.Context(), "interrupted; not all of the model was copied", func(ctx context.Context) error {
			store, err := folder.read()
			if err != nil {
				return err
			}
			v, err := store.Find(args[0])
			if err != nil {
				return err
			}
			snapshot, err := store.ExportToHub(ctx, &v, args[1])
			if err != nil {
				return err
			}
			return c.say("%s\n", snapshot)
		})
	}
	return cmd
}

func (c *cli) keepCommand() *cobra.Command {
	var folder storeFlags
	var off bool
	cmd := &cobra.Command{
		Use:   "keep [flags] MODEL",
		Short: "Protect a model from eviction, by its id or its address",
		Example: `  launcher models keep hf://Qwen/Qwen3-0.6B
  launcher models keep --off hf://Qwen/Qwen3-0.6B`,
		Args: exactly("MODEL"),
	}
	folder.add(cmd)
	folder.addWait(cmd)
	cmd.Flags().BoolVar(&off, "off", false, "end the protection: the model may be evicted again")
	c.formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.changeModel(cmd, &folder, args[0], "interrupted; nothing was changed", func(store *modelstore.Store, key string) error {
			return store.Keep(key, !off)
		})
	}
	return cmd
}

// changeModel changes or removes a model that is there, and shows it.
func (c *cli) changeModel(cmd *cobra.Command, folder *storeFlags, name, interruption string, change func(store *modelstore.Store, key string) error) error {
	return interrupted(cmd.Context(), interruption, func(ctx context.Context) (err error) {
		reader, err := folder.read()
		if err != nil {
			return err
		}
		if _, err := reader.Find(name); err != nil { // nothing is made where nothing is
			return err
		}
		store, err := folder.open(ctx, modelstore.Options{Note: c.tellNote}, c.tellWaiting)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		v, err := store.Find(name)
		if err != nil {
			return err
		}
		changed := keeper.Model(&store.Reader, v)
		if err := change(store, v.Key); err != nil {
			return err
		}
		if now, err := store.Find(v.Key); err == nil { // else it is removed, and shown as it was
			changed = keeper.Model(&store.Reader, now)
		}
		return c.show(changed, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, changed.ID)
			return err
		})
	})
}

func (c *cli) modelTable(w io.Writer, all []launcherapi.Model) error {
	t := table{heading: []string{"ID", "MODEL", "REVISION", "STATE", "SIZE", "AGE", "USED", "RETENTION", "REASON"}}
	if c.format == formatWide {
		t.heading = append(t.heading, "PATH")
	}
	for _, m := range all {
		cells := []string{m.ID[:min(12, len(m.ID))], named(m), m.Revision[:min(12, len(m.Revision))], m.State, launcher.BytesText(uint64(max(0, m.Bytes))), since(m.Published), since(m.LastUsed), m.Retention, oneLine(m.Reason)}
		if c.format == formatWide {
			cells = append(cells, m.Path)
		}
		t.add(cells...)
	}
	return t.write(w)
}

// named is the address of a model, with the flags by which its files were selected.
func named(m launcherapi.Model) string {
	return oneLine(strings.TrimSpace(m.URI + " " + modelref.Selection{Include: m.Include, Exclude: m.Exclude}.String()))
}

// since is the age of what is there since then.
func since(then *time.Time) string {
	if then == nil {
		return ""
	}
	return age(time.Since(*then))
}

func (c *cli) rmCommand() *cobra.Command {
	var folder storeFlags
	cmd := &cobra.Command{
		Use:     "rm [flags] MODEL",
		Short:   "Remove a model from disk, by its id or its address",
		Example: `  launcher rm hf://Qwen/Qwen3-0.6B`,
		Args:    exactly("MODEL"),
	}
	folder.add(cmd)
	folder.addWait(cmd)
	c.formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.changeModel(cmd, &folder, args[0], "interrupted; nothing was removed", func(store *modelstore.Store, key string) error {
			return store.Remove(key, "")
		})
	}
	return cmd
}

func (c *cli) tellWaiting(owner string) {
	_, _ = fmt.Fprintf(c.err, "launcher: %s changes the model store; waiting until it is done\n", owner)
}

func (c *cli) tellNote(text string) { _, _ = fmt.Fprintf(c.err, "launcher: %s\n", text) }

// interrupted runs a command that ends with 130 or 143 when it is interrupted, and
// then says so.
func interrupted(parent context.Context, says string, run func(context.Context) error) error {
	ctx, stop := interruptible(parent)
	defer stop()
	err := run(ctx)
	if by, ok := errors.AsType[*interruptedError](context.Cause(ctx)); ok && err != nil {
		return &exitError{code: 128 + int(by.signal), cause: errors.New(says)}
	}
	return err
}

// bytesOf reads a flag that is a number of bytes; 0 where it is not given.
func bytesOf(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := config.ParseBytes(text)
	if err != nil {
		return 0, usagef("%s: %w", flag, err)
	}
	return n, nil
}
