package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const compiledPath = "/v2/compile-caches"

// CompileCaches lists the compile caches. That of the launcher's own engines comes first.
func (c *Client) CompileCaches(ctx context.Context) (launcherapi.CompileCacheList, error) {
	return do[launcherapi.CompileCacheList](ctx, c, call{method: http.MethodGet, path: compiledPath})
}

// RemoveCompileCache removes a compile cache. It empties that of the launcher's own engines.
func (c *Client) RemoveCompileCache(ctx context.Context, key string) (launcherapi.CompileCache, error) {
	return do[launcherapi.CompileCache](ctx, c, call{method: http.MethodDelete, path: compiledPath + "/" + url.PathEscape(key)})
}

// ExportCompileCache writes a compile cache to w, for [Client.ImportCompileCache] of the
// launcher of another node. If it returns an error, the written part is of no use.
func (c *Client) ExportCompileCache(ctx context.Context, key string, w io.Writer) error {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: compiledPath + "/" + url.PathEscape(key)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("cannot read the compile cache to its end: %w", err)
	}
	return nil
}

// ImportCompileCache imports a compile cache that another launcher has exported.
func (c *Client) ImportCompileCache(ctx context.Context, r io.Reader) (launcherapi.CompileCache, error) {
	list, err := c.CompileCaches(ctx)
	if err != nil {
		return launcherapi.CompileCache{}, err
	}
	if len(list.Caches) == 0 || !list.Caches[0].Own {
		return launcherapi.CompileCache{}, errors.New("the launcher's own compile cache is not there: start it again")
	}
	taken, err := do[launcherapi.CompileCache](ctx, c, call{
		method: http.MethodPut, path: compiledPath + "/" + list.Caches[0].Key, stream: r, header: map[string]string{"Content-Type": launcherapi.CompileCacheType},
	})
	if _, refused := errors.AsType[*launcher.Error](err); err != nil && !refused {
		return taken, fmt.Errorf("the launcher has not taken the compile cache in: %w", err)
	}
	return taken, err
}
