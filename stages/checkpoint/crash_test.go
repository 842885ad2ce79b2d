package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quick is OS without waiting for the disk: what is durable and what is not, faultFS models.
var quick FS = quickFS{OS}

type quickFS struct{ FS }

func (quickFS) SyncDir(string) error { return nil }

func (fs quickFS) Create(path string) (WFile, error) {
	f, err := fs.FS.Create(path)
	return quickFile{f}, err
}

type quickFile struct{ WFile }

func (quickFile) Sync() error { return nil }

// faultFS wraps OS. At operation number at (writes, syncs, renames and all others count) it fails with no
// space left, having written half of what it was given. Dead, it fails at every later operation too, like a
// killed process; otherwise only at that one, like a full disk that is emptied.
//
// It also remembers what was not yet made durable. crash then undoes that, as a loss of power may: file
// contents without a Sync are cut to a half, entries of directories without a SyncDir are undone.
type faultFS struct {
	at   int
	dead bool
	ops  int

	unsynced map[string]*faultFile // by current path
	undo     []entryChange         // of directory entries, in order
}

// entryChange is a directory entry that was made (from is "") or moved from elsewhere, over old unless that is nil.
type entryChange struct {
	path, from string
	old        []byte
}

func (c entryChange) undo() error {
	if c.from == "" {
		return os.RemoveAll(c.path)
	}
	if err := os.Rename(c.path, c.from); err != nil || c.old == nil {
		return err
	}
	return os.WriteFile(c.path, c.old, 0o644)
}

var errSpace = errors.New("no space left on device")

func newFaultFS(at int, dead bool) *faultFS {
	return &faultFS{at: at, dead: dead, unsynced: map[string]*faultFile{}}
}

// step counts an operation and says whether it fails.
func (fs *faultFS) step() error {
	fs.ops++
	if fs.ops == fs.at || fs.dead && fs.ops > fs.at && fs.at > 0 {
		return errSpace
	}
	return nil
}

func (fs *faultFS) MkdirAll(path string) error {
	if err := fs.step(); err != nil {
		return err
	}
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		fs.undo = append(fs.undo, entryChange{path: path})
	}
	return quick.MkdirAll(path)
}

func (fs *faultFS) Create(path string) (WFile, error) {
	if err := fs.step(); err != nil {
		return nil, err
	}
	f, err := quick.Create(path)
	if err != nil {
		return nil, err
	}
	fs.undo = append(fs.undo, entryChange{path: path})
	file := &faultFile{fs: fs, f: f}
	fs.unsynced[path] = file
	return file, nil
}

// Rename keeps a copy of the file it replaces, to be able to undo it. What lies in a moved directory moves along.
func (fs *faultFS) Rename(from, to string) error {
	if err := fs.step(); err != nil {
		return err
	}
	old, _ := os.ReadFile(to)
	if err := quick.Rename(from, to); err != nil {
		return err
	}
	for path, f := range maps.Clone(fs.unsynced) {
		if rest, ok := strings.CutPrefix(path, from); ok {
			delete(fs.unsynced, path)
			fs.unsynced[to+rest] = f
		}
	}
	moveEntries(fs.undo, from, to)
	fs.undo = append(fs.undo, entryChange{to, from, old})
	return nil
}

func moveEntries(changes []entryChange, from, to string) {
	for i, c := range changes {
		if rest, ok := strings.CutPrefix(c.path, from); ok {
			changes[i].path = to + rest
		}
	}
}

// RemoveAll is taken to be durable at once: a removal that comes back harms less than one that does not.
func (fs *faultFS) RemoveAll(path string) error {
	if err := fs.step(); err != nil {
		return err
	}
	return quick.RemoveAll(path)
}

func (fs *faultFS) SyncDir(path string) error {
	if err := fs.step(); err != nil {
		return err
	}
	fs.undo = slices.DeleteFunc(fs.undo, func(c entryChange) bool { return filepath.Dir(c.path) == path })
	return quick.SyncDir(path)
}

// crash undoes what was not durable, the last change first. With keepLast the last change stays: a file
// system may make a later change durable before an earlier one.
func (fs *faultFS) crash(t *testing.T, keepLast bool) {
	for path, f := range fs.unsynced {
		if info, err := os.Stat(path); err == nil && !f.synced {
			require.NoError(t, os.Truncate(path, info.Size()/2))
		}
	}
	if n := len(fs.undo); keepLast && n > 0 {
		last := fs.undo[n-1].path // and how it came to be there
		fs.undo = slices.DeleteFunc(fs.undo, func(c entryChange) bool { return c.path == last })
	}
	for i, c := range slices.Backward(fs.undo) {
		if c.from != "" {
			moveEntries(fs.undo[:i], c.path, c.from)
		}
		if err := c.undo(); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
}

type faultFile struct {
	fs     *faultFS
	f      WFile
	synced bool
}

func (f *faultFile) Write(b []byte) (int, error) {
	if err := f.fs.step(); err != nil {
		n, _ := f.f.Write(b[:len(b)/2])
		return n, err
	}
	f.synced = false
	return f.f.Write(b)
}

func (f *faultFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.step(); err != nil {
		n, _ := f.f.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	f.synced = false
	return f.f.WriteAt(b, off)
}

func (f *faultFile) Sync() error {
	if err := f.fs.step(); err != nil {
		return err
	}
	f.synced = true
	return f.f.Sync()
}

// Close always closes: the test must not leak files.
func (f *faultFile) Close() error { return errors.Join(f.fs.step(), f.f.Close()) }

// saveStep saves a checkpoint of two shards whose contents depend on the step, as the background saver does.
func saveStep(fs FS, root string, step int64) error {
	s, err := Begin(fs, root, step)
	if err != nil {
		return err
	}
	var shards []Shard
	for rank := range 2 {
		p := Piece{Name: "w", Kind: Param, DType: F32, Shape: []int{4, 3},
			Box: [][2]int{{rank * 2, rank*2 + 2}, {0, 3}}}
		shard, err := s.WriteShard(fmt.Sprintf("rank-%05d.safetensors", rank), []Piece{p},
			func(int) ([]byte, error) { return stepBytes(step, 24), nil })
		if err != nil {
			return errors.Join(err, s.Abort())
		}
		shards = append(shards, shard)
	}
	if err := s.Section("data", map[string]int64{"position": step * 100}); err != nil {
		return err
	}
	if err := s.Commit(shards...); err != nil {
		return errors.Join(err, s.Abort())
	}
	return nil
}

func stepBytes(step int64, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(step)*16 + byte(i%16)
	}
	return out
}

// requireWhole holds that root's latest checkpoint is the given step and whole.
func requireWhole(t *testing.T, root string, step int64, note string) {
	r, err := Open(root)
	require.NoError(t, err, note)
	defer r.Close()
	require.NoError(t, r.Verify(), note)
	require.Equal(t, step, r.Step(), note)
	dst := make([]byte, 48)
	require.NoError(t, r.ReadLogical("w", Param, [][2]int{{0, 4}, {0, 3}}, dst), note)
	require.Equal(t, append(stepBytes(step, 24), stepBytes(step, 24)...), dst, note)
	var data map[string]int64
	require.NoError(t, r.Section("data", &data))
	require.Equal(t, step*100, data["position"], note)
}

// TestSaveFailsAtEveryOperation saves step 1, then step 2 over a file system that fails at its n-th
// operation, for every n: a full disk, a killed process, and a loss of power. Step 1 stays whole, or step 2
// is; a save that said it was durable is; and the next save succeeds and cleans up.
func TestSaveFailsAtEveryOperation(t *testing.T) {
	for _, mode := range []struct {
		name              string
		dead, power, last bool
	}{{name: "disk full"}, {name: "killed", dead: true}, {name: "power lost", dead: true, power: true},
		{name: "power lost, changes out of order", dead: true, power: true, last: true}} {
		t.Run(mode.name, func(t *testing.T) {
			for n := 1; ; n++ {
				root := filepath.Join(t.TempDir(), "ckpt")
				require.NoError(t, saveStep(quick, root, 1))
				fs := newFaultFS(n, mode.dead)
				saved := saveStep(fs, root, 2)
				if mode.power {
					fs.crash(t, mode.last)
				}
				note := fmt.Sprintf("%s at operation %d: %v", mode.name, n, saved)
				want := int64(1)
				if at, err := latestStep(root); err == nil && at == stepName(2) {
					want = 2 // all done but for the last sync
				}
				if saved == nil {
					require.Equal(t, int64(2), want, note)
				}
				requireWhole(t, root, want, note)
				if saved != nil && want == 1 {
					require.NoError(t, saveStep(quick, root, 2), note)
					requireWhole(t, root, 2, note)
				}
				require.NoError(t, saveStep(quick, root, 3), note)
				requireNoRubbish(t, root)
				if n > fs.ops {
					require.NoError(t, saved, "the last round runs undisturbed")
					require.Greater(t, n, 20)
					return
				}
			}
		})
	}
}

func requireNoRubbish(t *testing.T, root string) {
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		require.Regexp(t, `^(step-\d{8}|latest)$`, e.Name())
	}
}

// TestDurableSurvivesPowerLoss cuts power right after Commit has returned.
func TestDurableSurvivesPowerLoss(t *testing.T) {
	root := filepath.Join(t.TempDir(), "ckpt")
	require.NoError(t, os.Mkdir(root, 0o755))
	for step := int64(1); step < 4; step++ {
		fs := newFaultFS(0, false)
		require.NoError(t, saveStep(fs, root, step))
		fs.crash(t, false)
		requireWhole(t, root, step, "")
	}
}

// TestExportFailsAtEveryOperation holds that an export over a failing disk leaves no shard that looks whole but is not.
func TestExportFailsAtEveryOperation(t *testing.T) {
	src, err := OpenDir("testdata/sharded")
	require.NoError(t, err)
	defer src.Close()
	want := contents(t, src)
	for n := 1; ; n++ {
		dir := t.TempDir()
		fs := newFaultFS(n, true)
		w, err := newDirWriter(fs, dir, src.Tensors(), 260)
		if err == nil {
			if err = Copy(w, src); err == nil {
				err = w.Commit()
			}
			if err != nil {
				w.Abort() // fails as well: the disk is dead
			}
		}
		d, openErr := OpenDir(dir)
		if openErr == nil {
			require.Equal(t, want, contents(t, d), "operation %d", n)
			d.Close()
		}
		if err == nil {
			require.NoError(t, openErr)
			require.Greater(t, n, 10)
			return
		}
	}
}
