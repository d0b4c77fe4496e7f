package main

import (
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/test/helpers/figures"
)

// stubbornGrace is short, since every stop of this part lasts as long.
const stubbornGrace = 200 * time.Millisecond

// stubborn times the end of engines that ignore SIGTERM and have a worker that
// left the process group, beyond the grace they were given. The bare one is
// the kill of each process by who knows them all.
func (b *bench) stubborn() ([]row, error) {
	var rows []row
	for _, groups := range []string{"auto", "none"} {
		gone, bare, err := b.stubbornBy(groups)
		if err != nil {
			return nil, err
		}
		figure := "stubborn tree: gone beyond its grace, --cgroups " + groups + "; bare: SIGKILL to each of its processes"
		rows = append(rows, figures.Timed(figure, gone, bare, 0, 20*time.Millisecond))
	}
	return rows, nil
}

func (b *bench) stubbornBy(groups string) (gone, bare times, err error) {
	n, err := b.newNode("stubborn-"+groups, "--stop-grace", stubbornGrace.String(), "--cgroups", groups)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	for i := range b.n(10) {
		for _, stray := range []string{"group", "session", "double-fork"} {
			id := fmt.Sprintf("%s-%d", stray, i)
			took, err := n.endStubborn(id, stray, false)
			if err != nil {
				return nil, nil, err
			}
			killed, err := n.endStubborn(id+"-bare", stray, true)
			if err != nil {
				return nil, nil, err
			}
			gone, bare = append(gone, took-stubbornGrace), append(bare, killed)
		}
	}
	return gone, bare, nil
}

// endStubborn makes a stubborn engine, has the launcher end it or kills all of
// it from here, and gives the time until the last of its processes was gone.
func (n *node) endStubborn(id, stray string, fromHere bool) (took time.Duration, err error) {
	if _, err := n.awake(id, spec(0, "--sim-ignore-term", "--sim-stray="+stray)); err != nil {
		return 0, err
	}
	t, err := hold(marked("HOTSEAT_INSTANCE", id))
	if err != nil {
		return 0, err
	}
	defer t.release()
	if len(t) < 3 {
		return 0, fmt.Errorf("engine %s has %d processes: there should be an API server, an engine core and a stray", id, len(t))
	}
	deleted := make(chan error, 1)
	began := now()
	if fromHere {
		t.kill()
	} else {
		go func() {
			_, err := n.client.Delete(n.b.ctx, id)
			deleted <- err
		}()
	}
	gone, err := t.gone(n.b.ctx)
	if err != nil {
		return 0, err
	}
	if fromHere {
		_, err = n.client.Delete(n.b.ctx, id)
	} else {
		err = <-deleted
	}
	if err != nil {
		return 0, err
	}
	if left := marked("HOTSEAT_INSTANCE", id); len(left) > 0 {
		return 0, fmt.Errorf("processes %v of engine %s were left after its delete", left, id)
	}
	return gone.since(began), nil
}
