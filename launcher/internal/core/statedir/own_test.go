package statedir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/smalldisk"
)

const (
	aPID      = "4711      \n"
	aMark     = "0123456789abcdef0123456789abcdef-1f-2a\n"
	aRevision = `{"revision":7,"stamp":{"boot":"b"}}`
	aRecord   = `{"version":1,"record":{"id":"m"}}`
)

// fill writes files into a folder: a text, "->" and the target of a link, or nothing for a
// name that ends in a slash, which is a folder.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if target, isLink := strings.CutPrefix(text, "->"); isLink {
			require.NoError(t, os.Symlink(target, path))
		} else if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o700))
		} else {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
	}
}

// below returns all that is in a folder, with the texts of files.
func below(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			all[path] = ""
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	}))
	return all
}

func TestFolderOfOthersIsRefusedAndStaysAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		names string // what the message names
	}{
		"a project":                    {map[string]string{"main.py": "x", "logs/app.1.log": "x"}, "logs, main.py"},
		"logs alone":                   {map[string]string{"logs/app.1.log": "x", "logs/app.2.log": "x"}, "logs"},
		"preloaders":                   {map[string]string{"preloaders/notes.txt": "x"}, "preloaders"},
		"a mark":                       {map[string]string{"mark": "x"}, "mark"},
		"a revision":                   {map[string]string{"revision": "12"}, "revision"},
		"a lock":                       {map[string]string{"lock": "Cargo"}, "lock"},
		"a lock with a number":         {map[string]string{"lock": "12"}, "lock"},
		"a lock with a pid":            {map[string]string{"lock": aPID, "main.py": "x", "logs/app.1.log": "x"}, "main.py"},
		"a lock with a pid, and notes": {map[string]string{"lock": aPID, "main.py": "x", "exits/notes": "x"}, "exits/notes, main.py"},
		"a lock with a pid, and marks": {map[string]string{"lock": aPID, "mark": "x", "logs/app.1.log": "x"}, "mark"},
		"damaged files and logs":       {map[string]string{"lock": "\x00", "mark": "\x00\x00", "logs/app.1.log": "x"}, "logs"},
		"instances":                    {map[string]string{"instances/a.json": `{"name":"a"}`}, "instances"},
		"instances that are no JSON":   {map[string]string{"instances/a.json": "{"}, "instances"},
		"swaps":                        {map[string]string{"swaps/a.json": "[]"}, "swaps"},
		"compiled code":                {map[string]string{"compiled/trash-2024/x": "x"}, "compiled"},
		"exits":                        {map[string]string{"exits/1-2": "x"}, "exits"},
		"a journal":                    {map[string]string{"journal": "x"}, "journal"},
		"a file that has nothing":      {map[string]string{"__init__.py": ""}, "__init__.py"},
		"a link":                       {map[string]string{"main": "->/etc/hostname"}, "main"},
		"a link to a folder":           {map[string]string{"main": "->/etc"}, "main"},
		"many files":                   {map[string]string{"a": "x", "b": "x", "c": "x", "d": "x", "e": "x", "f": "x"}, "a, b, c, d, e, …"},
		"a mark that is a link":        {map[string]string{folderMark: "->/etc/hostname"}, folderMark},
		"a mark that is a folder":      {map[string]string{folderMark + "/x": ""}, folderMark},
		"the root of a filesystem":     {map[string]string{"bin": "->usr/bin", "run/lock/x": "x", "usr/bin/x": "x"}, "bin, run, usr"},
		"a model store without a mark": {map[string]string{"models/a/x": "x"}, "models"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, c.files)
			before := below(t, dir)
			for what, take := range map[string]func() error{
				"Open": func() error { _, err := Open(dir); return err }, "Prepare": func() error { return Prepare(dir) }, "Check": func() error { return Check(dir) },
			} {
				err := take()
				var wrong *FolderError
				require.ErrorAs(t, err, &wrong, what)
				require.EqualError(t, err, "cannot use the state folder "+dir+": it has files that no launcher has written ("+c.names+
					"); choose an empty folder by --state-dir, such as "+dir+"/hotseat-state, or move these files out of a state folder of an earlier release")
				require.Equal(t, before, below(t, dir), what)
			}
		})
	}
}

func TestFolderWithoutFilesOfOthersIsMarkedAndTaken(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"empty":                           {},
		"a new filesystem":                {"lost+found/x": "x"},
		"the home folder of a service":    {".cache/huggingface/x": "x", ".bash_history": "x"},
		"folders that others made for it": {"logs/": "", "models/": "", "logs-elsewhere": "->/nowhere"},
		"a model store":                   {"models/.hotseat-model-store": "", "models/blobs/x": "x"},
		"another state folder":            {"state/" + folderMark: "", "state/logs/a.1.log": "x"},
		"a lock without a pid":            {"lock": ""},
		"files that lost their text":      {"lock": "\x00\x00", "mark": "\x00", "revision": "\x00"},
		"a mount of simulated GPUs":       {"simgpu/gpus.json": "x", "simgpu/gpu0": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, files)
			before := below(t, dir)
			require.NoError(t, Check(dir))
			require.Equal(t, before, below(t, dir), "a check changes nothing")
			openDir(t, dir)
			text, err := os.ReadFile(filepath.Join(dir, folderMark))
			require.NoError(t, err)
			assert.Equal(t, folderMarkText, string(text))
		})
	}
}

func TestFolderWithTheLaunchersOwnLogIsTaken(t *testing.T) {
	for _, name := range []string{"launcher.log", "logs/launcher.log"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, map[string]string{name: "of an earlier try"})
			require.ErrorContains(t, Check(dir), "written (", "it is nobody's output yet")
			log, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			defer log.Close()
			former := os.Stderr
			os.Stderr = log // as the shell does: 2>>D/launcher.log
			defer func() { os.Stderr = former }()

			require.NoError(t, Prepare(dir))
			fill(t, dir, map[string]string{"main.py": "x"})
			require.NoError(t, os.Remove(filepath.Join(dir, folderMark)))
			require.ErrorContains(t, Check(dir), "written (main.py)", "the log excuses no other file")
		})
	}
}

// earlier is what an earlier release left in a state folder.
var earlier = map[string]string{
	"lock": aPID, "mark": aMark, "mark.spare": "x", "revision": aRevision, "revision.spare": "x", "gpus.json": `{"boot_id":"b","devices":[]}`, "gpus.json.new": "{", "clock.json": `{"boot_id":"b","ahead_ns":1}`, "clock.json.new": "{",
	"instances/m.json": aRecord, "instances/n.doubted": aRecord, "instances/o.json": "\x00\x00", "instances/p.broken": "x", "instances/p.broken-2": "x", "instances/q.foreign": "x", "instances/m.yaml": "x", "instances/.spare": "x",
	"swaps/9b2f4b9e-6c0e-4a4e-9f57-0a2f0f1f9f00.json": aRecord, "swaps/.spare": "x",
	"logs/m.1.log": "x", "logs/a%2Fb.12.log": "x", "logs/.nfs0001": "x", "exits/12-345": "{}", "exits/.12-345": "{",
	"preloaders/preloader.pyz": "x", "preloaders/preloader.py": "x", "preloaders/times.json": "{}", "preloaders/times.json.@preloader-2": "{", "preloaders/@preloader-1.log": "x", "preloaders/probe": "probe",
	"shm/m.json": "{}", "run/0123456789ab/http": "x", "simgpu/gpu0": "x",
	"compiled/0123456789abcdef0123456789abcdef/cache/x": "x", "compiled/trash-ABCDEFGHIJKLMNOPQRSTUVWX27/x": "x",
	"lost+found/": "", ".cache/x": "x",
}

func TestFolderOfAnEarlierReleaseIsMarkedAndTaken(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, earlier)
	before := below(t, dir)
	d := openDir(t, dir)
	assert.False(t, d.New)
	assert.Equal(t, 4711, d.LastPID())
	after := below(t, dir)
	assert.Equal(t, folderMarkText, after[filepath.Join(dir, folderMark)])
	delete(after, filepath.Join(dir, folderMark))
	before[filepath.Join(dir, "lock")] = after[filepath.Join(dir, "lock")]
	assert.Equal(t, before, after)
}

func TestFolderOfAnEarlierReleaseIsTakenWithNamesThatNoLauncherMakes(t *testing.T) {
	others := map[string]string{
		"hf/hub/x": "x", "models/Qwen/config.json": "{}", "launcher.yaml": "x", "launcher.log": "x", "probe": "x", "link": "->/etc/hostname", "simgpu/x": "x",
	}
	for name, text := range map[string]string{"mark": aMark, "revision": aRevision, "instances/m.json": aRecord} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, others)
			fill(t, dir, map[string]string{name: text, "logs/m.1.log": "x"})
			before := below(t, dir)
			require.NoError(t, Prepare(dir))
			after := below(t, dir)
			delete(after, filepath.Join(dir, folderMark))
			assert.Equal(t, before, after)
		})
	}
}

func TestFolderOfAnEarlierReleaseIsTakenWithDamagedFiles(t *testing.T) {
	for _, name := range []string{"mark", "revision", "lock", "gpus.json", "clock.json"} {
		for _, text := range []string{"\x00\x00\x00", "x", "12 \x00", strings.Repeat("x", largestFile+1)} {
			dir := t.TempDir()
			fill(t, dir, earlier)
			fill(t, dir, map[string]string{name: text})
			require.NoError(t, Prepare(dir), "%s: %.9q", name, text)
		}
	}
}

func TestFolderIsTakenThoughAFullDiskHasNoRoomForItsMark(t *testing.T) {
	dir := t.TempDir()
	smalldisk.Mount(t, dir, 20)
	require.NoError(t, os.Chmod(dir, 0o700))
	fill(t, dir, map[string]string{"lock": aPID, "mark": aMark, "mark.spare": "", "instances/m.json": aRecord})
	smalldisk.Fill(t, dir)
	d := openDir(t, dir)
	assert.NoFileExists(t, filepath.Join(dir, folderMark))
	m := mark(t, d)
	require.ErrorIs(t, d.KeepMark(m), unix.ENOSPC)
	kept, err := d.keptMark()
	require.NoError(t, err)
	assert.Equal(t, m, kept, "the launcher's mark is kept all the same")

	ballast, err := filepath.Glob(filepath.Join(dir, ".ballast*"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(ballast[0]))
	require.NoError(t, d.KeepMark(m))
	assert.FileExists(t, filepath.Join(dir, folderMark))
}

func TestEachProofOfAnEarlierReleaseIsEnough(t *testing.T) {
	for name, text := range map[string]string{"lock": aPID, "mark": aMark, "revision": aRevision, "instances/m.json": aRecord, "swaps/s.doubted": aRecord, "instances/newer.json": `{"version":99,"record":{}}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, map[string]string{name: text, "logs/m.1.log": "x"})
			require.NoError(t, Prepare(dir))
		})
	}
}

func TestFolderOfAnEarlierReleaseWithFilesOfOthersIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"mark": "->/etc/hostname", "lock/x": "x", "logs": "x", "logs/app.log": "x", "instances/x.json": `{"name":"a"}`, "instances/my file.json": aRecord, "instances/README": "x", "instances/x.json/y": "x", "swaps/x.yaml": "x",
		"exits/x": "x", "preloaders/x": "x", "shm/x": "x", "run/x": "x", "compiled/x": "x", "compiled/trash-x/y": "x",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			all := map[string]string{"swaps/s.json": aRecord}
			for other, text := range earlier {
				if !strings.HasPrefix(name, other) && !strings.HasPrefix(other, name+"/") {
					all[other] = text
				}
			}
			all[name] = text
			fill(t, dir, all)
			before := below(t, dir)
			var wrong *FolderError
			require.ErrorAs(t, Prepare(dir), &wrong)
			refusedName := name
			if strings.Count(name, "/") == 2 || files[filepath.Dir(name)] != nil {
				refusedName = filepath.Dir(name)
			}
			assert.ErrorContains(t, wrong, "written ("+refusedName+");")
			assert.Equal(t, before, below(t, dir))
		})
	}
}

func TestMarkedFolderIsTakenWithFilesOfOthersInIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, Prepare(dir))
	fill(t, dir, map[string]string{"README": "x", "instances/my file.json": "x", "instances/.json": "x"})
	d := openDir(t, dir)
	r, err := d.Records("instances")
	require.NoError(t, err)
	all, err := r.Read()
	require.NoError(t, err)
	assert.Empty(t, all, "no record has such a name")
}

func TestMarkThatACleanerHasRemovedIsWrittenAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d := openDir(t, dir)
	m := mark(t, d)
	require.NoError(t, d.KeepMark(m))
	require.NoError(t, os.Remove(filepath.Join(dir, folderMark)))
	require.NoError(t, d.KeepMark(m))
	assert.FileExists(t, filepath.Join(dir, folderMark))
}

func TestLaunchersThatBeginAFolderTogetherAgreeThatItIsTheirs(t *testing.T) {
	for range 100 {
		dir := t.TempDir()
		var launchers sync.WaitGroup
		for range 4 {
			launchers.Go(func() {
				assert.NoError(t, Prepare(dir))
				d := &Dir{path: dir}
				_, err := d.Records("instances")
				assert.NoError(t, err)
				assert.NoError(t, writeOver(filepath.Join(dir, "instances", "a.txt"), []byte("x")))
			})
		}
		launchers.Wait()
		if t.Failed() {
			return
		}
	}
}
