package mirror

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// lab is hosts whose storage is a directory each; host a, which leads, sees paths as they are.
type lab struct {
	dir    string
	shared bool // all hosts see a's storage
	ranks  []string
	spare  []string
	mu     sync.Mutex // hosts are asked at once
	calls  int
	fails  int  // the call that fails, from 1; 0 for none
	dies   bool // and all behind it
}

var errCut = errors.New("the host does not answer")

func (l *lab) Host() string                   { return "a" }
func (l *lab) Hosts() (ranks, spare []string) { return l.ranks, l.spare }

func (l *lab) Depot(h string) (checkpoint.Depot, error) { return &elsewhere{l, h}, nil }

// on is where a path of a host lies here.
func (l *lab) on(h, path string) string {
	if h == "a" || l.shared {
		return path
	}
	return filepath.Join(l.dir, "host-"+h, strings.TrimPrefix(path, l.dir))
}

// elsewhere is the storage of a host of a lab.
type elsewhere struct {
	l *lab
	h string
}

func (e *elsewhere) do(f func(d checkpoint.Here) error) error {
	e.l.mu.Lock()
	e.l.calls++
	n := e.l.fails
	fails := n > 0 && (e.l.calls == n || e.l.dies && e.l.calls > n)
	e.l.mu.Unlock()
	if fails {
		return errCut
	}
	return f(checkpoint.Here{FS: checkpoint.OS})
}

func (e *elsewhere) Sees(dir, marker string) (sees bool, err error) {
	err = e.do(func(d checkpoint.Here) error { sees, err = d.Sees(e.l.on(e.h, dir), marker); return err })
	return sees, err
}

func (e *elsewhere) Begin(root string, step int64) error {
	return e.do(func(d checkpoint.Here) error { return d.Begin(e.l.on(e.h, root), step) })
}

func (e *elsewhere) Fetch(root string, step int64, name string) (f io.ReadCloser, err error) {
	err = e.do(func(d checkpoint.Here) error { f, err = d.Fetch(e.l.on(e.h, root), step, name); return err })
	return f, err
}

func (e *elsewhere) Store(root string, step int64, s checkpoint.Shard, r io.Reader) error {
	return e.do(func(d checkpoint.Here) error { return d.Store(e.l.on(e.h, root), step, s, r) })
}

func (e *elsewhere) Settle(root string, step int64, text []byte) error {
	return e.do(func(d checkpoint.Here) error { return d.Settle(e.l.on(e.h, root), step, text) })
}

func (e *elsewhere) Publish(root string, step int64, keep int) error {
	return e.do(func(d checkpoint.Here) error { return d.Publish(e.l.on(e.h, root), step, keep) })
}

func (e *elsewhere) Holdings(root string) (h checkpoint.Holdings, err error) {
	err = e.do(func(d checkpoint.Here) error { h, err = d.Holdings(e.l.on(e.h, root)); return err })
	return h, err
}

func (e *elsewhere) Append(dir, name string, at int64, r io.Reader) error {
	return e.do(func(d checkpoint.Here) error { return d.Append(e.l.on(e.h, dir), name, at, r) })
}

func (e *elsewhere) Record(dir, name string) (f io.ReadCloser, err error) {
	err = e.do(func(d checkpoint.Here) error { f, err = d.Record(e.l.on(e.h, dir), name); return err })
	return f, err
}

// mirrored is a run on a lab, with two ranks, the second on the lab's last rank host.
type mirrored struct {
	*lab
	t    *testing.T
	m    *Mirror
	said *strings.Builder
}

func newMirrored(t *testing.T, l *lab) *mirrored {
	t.Helper()
	l.dir = t.TempDir()
	x := &mirrored{lab: l, t: t, said: &strings.Builder{}}
	log := filepath.Join(l.dir, "run")
	require.NoError(t, os.MkdirAll(log, 0o700))
	ledger, err := dataset.OpenLedger(filepath.Join(log, "samples.ledger"))
	require.NoError(t, err)
	for step := range int64(9) {
		require.NoError(t, ledger.Append(step+1, dataset.Position{}, []int64{step}))
	}
	require.NoError(t, ledger.Close())
	require.NoError(t, os.WriteFile(filepath.Join(log, "metrics.jsonl"), []byte("{}\n"), 0o600))
	x.m, err = New(Options{Hosts: l, Dir: filepath.Join(l.dir, "ckpt"), Log: log, Keep: 2,
		Records: []string{"samples.ledger", "metrics.jsonl"}, Progress: x.said, Warnings: x.said,
		Say: func(text string) { fmt.Fprintln(x.said, text) }, Entered: func(int64, time.Duration) {}})
	require.NoError(t, err)
	return x
}

// save saves a step as the coordinator does.
func (x *mirrored) save(step int64) error {
	if err := x.m.Begin(step); err != nil {
		return err
	}
	var parts []string
	for i, h := range []string{"a", x.ranks[len(x.ranks)-1]} {
		p := checkpoint.Piece{Name: "w", Kind: checkpoint.Param, DType: "U8", Shape: []int{4},
			Box: [][2]int{{2 * i, 2*i + 2}}}
		s, err := checkpoint.JoinSave(checkpoint.OS, x.on(h, x.m.root), step).WriteShard(
			fmt.Sprintf("rank-%d.safetensors", i), []checkpoint.Piece{p},
			func(int) ([]byte, error) { return []byte{byte(step), byte(i)}, nil })
		require.NoError(x.t, err)
		parts = append(parts, fmt.Sprintf(`{"Shard":{"name":%q,"bytes":%d,"sha256":%q},"Pieces":[{"Name":"w",`+
			`"Kind":"param","DType":"U8","Shape":[4],"Box":[[%d,%d]]}],"Host":%q}`, s.File, s.Bytes, s.SHA256, 2*i,
			2*i+2, h))
	}
	return host.CommitShards(checkpoint.OS, x.m.root, step, parts, map[string]any{}, x.m)
}

// left is the newest step that these hosts have together.
func (x *mirrored) left(hosts ...string) int64 {
	all := map[string]checkpoint.Holdings{}
	for _, h := range hosts {
		var err error
		all[h], err = checkpoint.Here{FS: checkpoint.OS}.Holdings(x.on(h, x.m.root))
		require.NoError(x.t, err)
	}
	if f := newest(all); f != nil {
		return f.step
	}
	return -1
}

// TestMirrorFaults: whichever request of a save fails, alone or with all behind it, each host alone has a
// whole checkpoint: the one before, or the new one where that was called durable. The next save succeeds.
func TestMirrorFaults(t *testing.T) {
	for _, l := range []*lab{{ranks: []string{"a", "b"}}, {ranks: []string{"a"}, spare: []string{"b"}}} {
		probe := newMirrored(t, &lab{ranks: l.ranks, spare: l.spare})
		require.NoError(t, probe.save(1))
		before := probe.calls
		require.NoError(t, probe.save(2))
		n := probe.calls - before
		require.Greater(t, n, 5)
		for k := 1; k <= 2*n; k++ {
			x := newMirrored(t, &lab{ranks: l.ranks, spare: l.spare})
			require.NoError(t, x.save(1))
			x.fails, x.dies = x.calls+(k+1)/2, k%2 == 0
			err := x.save(2)
			sure := int64(1)
			if err == nil { // records are sent again
				sure = 2
			} else {
				require.ErrorIs(t, err, errCut)
			}
			for _, h := range []string{"a", "b"} {
				require.GreaterOrEqual(t, x.left(h), sure, "host %s after request %d of %d failed", h,
					(k+1)/2, n)
			}
			latest, err := checkpoint.Latest(x.m.root)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("step-%08d", sure), filepath.Base(latest),
				"what was called durable")
			require.True(t, err == nil && !x.dies || sure == 1)
			x.fails = 0
			require.NoError(t, x.save(3), "request %d of %d", (k+1)/2, n)
			require.Equal(t, []int64{3, 3}, []int64{x.left("a"), x.left("b")})
		}
	}
}

// TestMirrorPlaces: where copies go, and what is said of it.
func TestMirrorPlaces(t *testing.T) {
	for _, c := range []struct {
		name, said string
		lab        *lab
		has        []string // hosts that alone have the checkpoint
	}{
		{"two hosts", "checkpoints are whole on a; what is written there is copied to b\n",
			&lab{ranks: []string{"a", "b"}}, []string{"a", "b"}},
		{"three hosts", "checkpoints are whole on a; what is written there is copied to b\n",
			&lab{ranks: []string{"a", "b", "c"}}, []string{"a"}},
		{"a spare one", "checkpoints are whole on a; what is written there is copied to b\n",
			&lab{ranks: []string{"a"}, spare: []string{"b", "c"}}, []string{"a", "b"}},
		{"alone", "! no other host is up: checkpoints lie on a alone\n", &lab{ranks: []string{"a"}},
			[]string{"a"}},
		{"shared", "checkpoints lie on storage that the hosts share: ", &lab{ranks: []string{"a", "b"},
			shared: true},
			[]string{"a"}},
	} {
		x := newMirrored(t, c.lab)
		require.NoError(t, x.save(1), c.name)
		require.NoError(t, x.save(2), c.name)
		require.Equal(t, 1, strings.Count(x.said.String(), c.said), "%s: said once: %s", c.name, x.said)
		for _, h := range []string{"a", "b", "c"} {
			require.Equal(t, slices.Contains(c.has, h) || c.lab.shared, x.left(h) == 2, "%s on %s", c.name,
				h)
		}
		if c.name == "three hosts" {
			require.Equal(t, int64(2), x.left("b", "c"), "each shard is on two")
		}
	}
	x := newMirrored(t, &lab{ranks: []string{"a"}, spare: []string{"b"}, fails: 1, dies: true})
	require.ErrorContains(t, x.save(1), "no second host takes copies", "it is up and does not answer")
}

// TestGather: a host that has nothing takes the newest checkpoint from those that are left, with the records
// up to it; one that has a shard damaged takes that.
func TestGather(t *testing.T) {
	x := newMirrored(t, &lab{ranks: []string{"a", "b"}})
	require.NoError(t, x.save(1))
	require.NoError(t, x.save(2))
	shard := filepath.Join(checkpoint.StepDir(x.m.root, 2), "rank-0.safetensors")
	text, err := os.ReadFile(shard)
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	require.NoError(t, os.WriteFile(shard, text, 0o600))
	saved, skipped, err := x.m.Recover()
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Equal(t, int64(2), saved.Step())
	require.NoError(t, saved.Close())

	ledger := filepath.Join(x.m.o.Log, x.m.o.Records[0])
	want, err := os.ReadFile(ledger)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(x.m.root))
	require.NoError(t, os.RemoveAll(x.m.o.Log))
	saved, _, err = x.m.Recover()
	require.NoError(t, err)
	require.Equal(t, int64(2), saved.Step())
	require.NoError(t, saved.Close())
	got, err := os.ReadFile(ledger)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Contains(t, x.said.String(), "2 of 2 shards of step 2 came from other hosts")
}

// TestNewest: a step counts when all of it is somewhere and latest names it or a newer one; two that differ
// under one number are two.
func TestNewest(t *testing.T) {
	files := []checkpoint.Shard{{File: "x"}, {File: "y"}}
	h := func(latest int64, steps ...checkpoint.Holding) checkpoint.Holdings {
		return checkpoint.Holdings{Latest: latest, Steps: steps}
	}
	at := func(step int64, sum string, have ...string) checkpoint.Holding {
		return checkpoint.Holding{Step: step, Sum: sum, Files: files, Have: have}
	}
	for name, c := range map[string]struct {
		a, b checkpoint.Holdings
		want string
	}{
		"together":           {h(2, at(2, "s", "x")), h(-1, at(2, "s", "y")), "2s"},
		"never published":    {h(1, at(1, "s", "x", "y"), at(2, "t", "x", "y")), h(-1), "1s"},
		"a shard is missing": {h(2, at(2, "t", "x")), h(1, at(1, "s", "x", "y")), "1s"},
		"other histories":    {h(2, at(2, "s", "x")), h(2, at(2, "t", "y")), ""},
		"of two the common":  {h(2, at(2, "s", "x", "y"), at(2, "t", "x")), h(2, at(2, "t", "y")), "2t"},
		"nothing":            {h(-1), h(-1), ""},
	} {
		got := ""
		if f := newest(map[string]checkpoint.Holdings{"a": c.a, "b": c.b}); f != nil {
			got = fmt.Sprint(f.step, f.sum)
			require.Equal(t, []string{"x", "y"}, slices.Sorted(maps.Keys(f.where)))
		}
		require.Equal(t, c.want, got, name)
	}
}
