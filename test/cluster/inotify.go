package cluster

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// enoughInotify is how many inotify instances root may have, at least, where clusters run. Six
// clusters of two nodes came to 128, the kernel's default; then a kubelet does not start.
const enoughInotify = 1024

const inotifyInstances = "/proc/sys/fs/inotify/max_user_instances"

// allowInotify raises that limit, which the kernel has for all namespaces together, until the
// machine restarts. A limit that cannot be raised is told, and may be enough for one cluster.
func allowInotify(setting string, progress io.Writer) {
	text, err := os.ReadFile(setting)
	if err != nil {
		return // a kernel without such a limit
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || have >= enoughInotify {
		return
	}
	if err := os.WriteFile(setting, []byte(strconv.Itoa(enoughInotify)), 0o644); err != nil {
		_, _ = fmt.Fprintf(progress, "fs.inotify.max_user_instances is %d, which several clusters use up; it cannot be raised: %v\n", have, err)
		return
	}
	_, _ = fmt.Fprintf(progress, "raised fs.inotify.max_user_instances from %d to %d, until the machine restarts\n", have, enoughInotify)
}
