package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// This file saves and restores the slots of llama-server. A slot has the cache of one
// conversation. llama-server checks of a saved slot only that it fits the shape of its model: it
// takes the slot of a model with other weights, and goes on with wrong answers. So a list is kept
// beside the slots, which says what model they are of. The list is written last.

// savedSlots is the list of saved slots.
type savedSlots struct {
	Model string `json:"model"` // its files, their sizes and times
	Boot  string `json:"boot"`  // the kernel that wrote them: they are not flushed to the disk
	Slots []int  `json:"slots"`
}

const savedSlotsFile = "slots.json"

func slotFile(id int) string { return fmt.Sprintf("slot-%d", id) }

// Save asks llama-server for each of its slots. An engine that cannot save them saves nothing:
// llama.cpp does not do it for models that see or hear.
func (l *LlamaCpp) Save(ctx context.Context, base, dir string, key Secret) error {
	if err := forgetSaved(dir); err != nil {
		return fmt.Errorf("cannot remove what was saved before: %w", err)
	}
	list, err := l.describe(ctx, base, key)
	if err != nil {
		return fmt.Errorf("cannot save the engine's slots: %w", err)
	}
	slots, err := l.slots(ctx, base, key)
	if err != nil {
		return fmt.Errorf("cannot save the engine's slots: %w", err)
	}
	for _, id := range slots {
		var saved struct {
			Tokens int `json:"n_saved"`
		}
		switch err := l.act(ctx, base, key, id, "save", &saved); {
		case isNotSupported(err):
			return nil
		case err != nil:
			return fmt.Errorf("cannot save slot %d of the engine: %w", id, err)
		case saved.Tokens > 0:
			list.Slots = append(list.Slots, id)
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, savedSlotsFile), data, 0o600)
}

// forgetSaved removes what an earlier Save has written.
func forgetSaved(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	err = removeIfThere(filepath.Join(dir, savedSlotsFile))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "slot-") {
			err = errors.Join(err, removeIfThere(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Restore has llama-server read the slots that are listed. A slot that cannot be read is
// begun anew, and the others are restored all the same.
func (l *LlamaCpp) Restore(ctx context.Context, base, dir string, key Secret) error {
	data, err := os.ReadFile(filepath.Join(dir, savedSlotsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list savedSlots
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return fmt.Errorf("cannot read the list of saved slots: %w", err)
	}
	now, err := l.describe(ctx, base, key)
	switch {
	case err != nil:
		return fmt.Errorf("cannot restore the engine's slots: %w", err)
	case list.Boot != now.Boot:
		return errors.New("the saved slots are not used: the machine was started again since, and may have lost part of them")
	case list.Model != now.Model:
		return errors.New("the saved slots are not used: the model's files have changed since")
	}
	for _, id := range list.Slots {
		if failed := l.act(ctx, base, key, id, "restore", nil); failed != nil {
			err = errors.Join(err, fmt.Errorf("cannot restore slot %d of the engine: %w", id, failed))
		}
	}
	return err
}

// describe makes a list without slots of the model that an engine has.
func (l *LlamaCpp) describe(ctx context.Context, base string, key Secret) (savedSlots, error) {
	boot, err := procfs.BootID()
	if err != nil {
		return savedSlots{}, err
	}
	answer, err := l.call(ctx, http.MethodGet, base, "/props", nil, key)
	if err != nil {
		return savedSlots{}, err
	}
	var props struct {
		ModelPath string `json:"model_path"`
	}
	if err := json.Unmarshal(answer, &props); err != nil || props.ModelPath == "" {
		return savedSlots{}, fmt.Errorf("GET /props answered %q", excerpt(answer))
	}
	var model strings.Builder
	for _, part := range ggufParts(props.ModelPath) {
		info, err := os.Stat(part)
		if err != nil {
			return savedSlots{}, err
		}
		fmt.Fprintf(&model, "%s %d %d\n", info.Name(), info.Size(), info.ModTime().UnixNano())
	}
	return savedSlots{Model: model.String(), Boot: boot}, nil
}

// slots are the numbers of an engine's slots.
func (l *LlamaCpp) slots(ctx context.Context, base string, key Secret) (ids []int, err error) {
	answer, err := l.call(ctx, http.MethodGet, base, "/slots", nil, key)
	if err != nil {
		return nil, err
	}
	var slots []struct {
		ID int `json:"id"`
	}
	if err := json.Unmarshal(answer, &slots); err != nil {
		return nil, fmt.Errorf("GET /slots answered %q", excerpt(answer))
	}
	for _, slot := range slots {
		ids = append(ids, slot.ID)
	}
	return ids, nil
}

// act saves or restores a slot.
func (l *LlamaCpp) act(ctx context.Context, base string, key Secret, id int, action string, result any) error {
	path := fmt.Sprintf("/slots/%d?action=%s", id, action)
	answer, err := l.call(ctx, http.MethodPost, base, path, map[string]string{"filename": slotFile(id)}, key)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("POST %s answered %q", path, excerpt(answer))
	}
	return nil
}

func isNotSupported(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusNotImplemented
}
