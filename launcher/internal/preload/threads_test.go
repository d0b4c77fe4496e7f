package preload

import "testing"

// Some libraries start threads when they are loaded, end them before a fork and
// start them again when they need them.
func TestThreadsThatEndAtAForkAreNotInItsWay(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/threads.py", `
import os, threading
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()

def end():
    over.set()
    thread.join()
    while len(os.listdir("/proc/self/task")) > 1:  # Python's join returns before the kernel's end of it
        pass

os.register_at_fork(before=end)
`)
		f.options.Recipe.Modules = append([]string{"vllm.threads"}, f.options.Recipe.Modules...)
	})
	f.ready()
	_, log := f.fork("a", nil, nil)
	var got facts
	f.line(log, 0, &got)
}
