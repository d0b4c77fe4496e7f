package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"unique"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const modelsPath = "/v2/models"

// PullModel asks the launcher to fetch a model into its model store. It returns once the source
// has listed the files of the model; the fetch continues.
func (c *Client) PullModel(ctx context.Context, request launcherapi.ModelRequest) (launcherapi.Model, error) {
	return do[launcherapi.Model](ctx, c, call{method: http.MethodPut, path: modelsPath, body: request})
}

// Models lists the models of the launcher's model store.
func (c *Client) Models(ctx context.Context) (launcherapi.ModelList, error) {
	return list(ctx, c, call{method: http.MethodGet, path: modelsPath}, "models", func(l *launcherapi.ModelList) *[]launcherapi.Model { return &l.Models })
}

// Model returns one model.
func (c *Client) Model(ctx context.Context, id string) (launcherapi.Model, error) {
	return do[launcherapi.Model](ctx, c, call{method: http.MethodGet, path: modelsPath + "/" + url.PathEscape(id)})
}

// RemoveModel cancels the fetch of a model, and removes it. With a holder, it only ends the
// want of that holder: a model that other holders want stays.
func (c *Client) RemoveModel(ctx context.Context, id, holder string) (launcherapi.Model, error) {
	remove := call{method: http.MethodDelete, path: modelsPath + "/" + url.PathEscape(id)}
	if holder != "" {
		remove.query = url.Values{"wanted_by": {holder}}
	}
	return do[launcherapi.Model](ctx, c, remove)
}

// WarmModel asks the launcher to read a model into main memory, and returns when that is done.
func (c *Client) WarmModel(ctx context.Context, id string) (launcherapi.WarmedModel, error) {
	return do[launcherapi.WarmedModel](ctx, c, call{method: http.MethodPost, path: modelsPath + "/" + url.PathEscape(id) + "/warm"})
}

// FollowModels yields the models of a launcher's model store, by their ids. It yields them again
// after each change, including progress, at most four times a second. keep returns what to keep
// of each model. The caller must not change the maps. FollowModels ends with an error when the
// connection breaks or falls silent; it does not connect again.
func FollowModels[T any](ctx context.Context, c *Client, keep func(launcherapi.Model) T) iter.Seq2[map[string]T, error] {
	return func(yield func(map[string]T, error) bool) {
		w := modelWatch[T]{keep: keep, told: map[string]T{}}
		err := c.stream(ctx, modelsPath+"/watch", url.Values{}, func() {}, func(event launcherapi.RawEvent) error {
			if changed, err := w.read(event); err != nil || !changed {
				return err
			}
			if !yield(w.told, nil) {
				return errLeft
			}
			return nil
		})
		if !errors.Is(err, errLeft) {
			yield(nil, err)
		}
	}
}

// modelWatch has what a stream has reported so far.
type modelWatch[T any] struct {
	keep    func(launcherapi.Model) T
	told    map[string]T // once it is whole, each change makes a new map
	whole   bool         // the stream has reported all models
	weights weights
}

// read reads an event. changed reports whether there is a new state to yield.
func (w *modelWatch[T]) read(event launcherapi.RawEvent) (changed bool, err error) {
	switch event.Type {
	case launcherapi.EventCreated, launcherapi.EventUpdated, launcherapi.EventDeleted:
		cost, err := costOfEvent(event.Object)
		if err != nil {
			return false, err
		}
		var m launcherapi.Model
		if err := json.Unmarshal(event.Object, &m); err != nil {
			return false, fmt.Errorf("cannot read an event of a model: %w", err)
		}
		// A program that follows a thousand launchers keeps equal texts once.
		m.ID = unique.Make(m.ID).Value()
		if w.whole { // else no caller has the map yet
			w.told = maps.Clone(w.told)
		}
		if event.Type == launcherapi.EventDeleted {
			delete(w.told, m.ID)
			w.weights.drop(m.ID)
			return w.whole, nil
		}
		w.told[m.ID] = w.keep(m)
		if err := w.weights.put(m.ID, cost, len(w.told)); err != nil {
			return false, fmt.Errorf("cannot follow the watch stream: what it tells of models %w", err)
		}
		return w.whole, nil
	case launcherapi.EventHeartbeat:
		changed, w.whole = !w.whole, true
		return changed, nil
	case launcherapi.EventError:
		var p launcherapi.Problem
		if err := json.Unmarshal(event.Object, &p); err != nil {
			return false, fmt.Errorf("cannot read the end of the watch stream of models: %w", err)
		}
		return false, errorOf(p)
	default:
		return false, nil // an event type of a later version
	}
}
