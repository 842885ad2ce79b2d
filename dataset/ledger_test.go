package dataset

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// record appends a step of the loader to the ledger, as a committed step does.
func record(t *testing.T, ledger *Ledger, l *Loader) {
	t.Helper()
	start := l.Position()
	batches, err := l.Step(start.Step)
	require.NoError(t, err)
	require.NoError(t, ledger.Append(start.Step, start, samplesOf(batches)))
}

func samplesOf(batches []Batch) (out []int64) {
	for i := range batches {
		out = append(out, batches[i].Samples()...)
	}
	return out
}

func openLedger(t testing.TB, path string) *Ledger {
	t.Helper()
	l, err := OpenLedger(path)
	require.NoError(t, err)
	return l
}

// A run that is killed at any byte of a record and resumed leaves the ledger of the uninterrupted one.
func TestLedgerEqualsUninterrupted(t *testing.T) {
	for name, cfg := range loaders() {
		dir := t.TempDir()
		straight := openLedger(t, filepath.Join(dir, "straight"))
		l := open(t, cfg())
		at := []Position{}
		for range 12 {
			at = append(at, l.Position())
			record(t, straight, l)
		}
		require.NoError(t, straight.Close())
		want, err := os.ReadFile(filepath.Join(dir, "straight"))
		require.NoError(t, err)
		for cut := 0; cut < len(want); cut += 37 {
			path := filepath.Join(dir, "killed")
			require.NoError(t, os.WriteFile(path, want[:cut], 0o600))
			ledger := openLedger(t, path)
			back := int64(cut % 9) // the checkpoint is a few steps behind the ledger
			if last, ok := ledger.Last(); ok {
				back = max(0, last-back)
			} else {
				back = 0
			}
			require.NoError(t, ledger.Truncate(back))
			resumed := open(t, cfg())
			require.NoError(t, resumed.Seek(at[back]))
			for resumed.Position().Step < 12 {
				record(t, ledger, resumed)
			}
			require.NoError(t, ledger.Close())
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "%s cut at byte %d", name, cut)
		}
	}
}

// Blame gives a step's samples and where to find them: a loader sent there gives the same documents.
func TestBlame(t *testing.T) {
	ledger := openLedger(t, filepath.Join(t.TempDir(), "l"))
	cfg := loaders()["blended"]
	l := open(t, cfg())
	want := map[int64][]Batch{}
	for i := range int64(10) {
		start := l.Position()
		b, err := l.Step(i)
		require.NoError(t, err)
		want[i] = b
		require.NoError(t, ledger.Append(i, start, samplesOf(b)))
	}
	for i := int64(9); i >= 0; i-- {
		samples, start, err := ledger.Blame(i)
		require.NoError(t, err)
		require.Equal(t, []int64{4 * i, 4*i + 1, 4*i + 2, 4*i + 3}, samples)
		other := open(t, cfg())
		require.NoError(t, other.Seek(start))
		got, err := other.Step(i)
		require.NoError(t, err)
		require.Equal(t, want[i], got)
		require.NotEmpty(t, got[0].Origins)
	}
	_, _, err := ledger.Blame(10)
	require.ErrorContains(t, err, "step 10 is not recorded")
	require.ErrorContains(t, ledger.Append(9, Position{}, nil), "comes after step 9")
	require.NoError(t, ledger.Close())
}

// Damage in the middle is an error and leaves the file alone; at the end it is a torn record.
func TestLedgerDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "l")
	ledger := openLedger(t, path)
	for i := range int64(5) {
		require.NoError(t, ledger.Append(i*2, Position{Step: i}, []int64{i, 7, -3}))
	}
	require.NoError(t, ledger.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	reopen := func(b []byte) (*Ledger, error) {
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return OpenLedger(path)
	}
	for _, c := range []struct {
		why  string
		file []byte
		last int64 // -1: an error
	}{
		{"whole", whole, 8},
		{"a zero tail, as after a power loss", append(bytes.Clone(whole), make([]byte, 4096)...), 8},
		{"half a length", append(bytes.Clone(whole), 1, 2), 8},
		{"a bit of the last record", flip(whole, len(whole)-1), 6},
		{"a bit of the first record", flip(whole, 30), -1},
		{"another file", []byte("hello, this is not a ledger at all"), -1},
		{"another short file", []byte("hi"), -1},
		{"steps out of order", append(bytes.Clone(whole), whole[len(ledgerMagic):]...), -1},
	} {
		l, err := reopen(c.file)
		if c.last < 0 {
			require.Error(t, err, c.why)
			after, _ := os.ReadFile(path)
			require.Equal(t, c.file, after, c.why)
			continue
		}
		require.NoError(t, err, c.why)
		last, ok := l.Last()
		require.True(t, ok)
		require.Equal(t, c.last, last, c.why)
		samples, _, err := l.Blame(last)
		require.NoError(t, err)
		require.Equal(t, []int64{last / 2, 7, -3}, samples)
		require.NoError(t, l.Append(last+1, Position{}, nil))
		require.NoError(t, l.Close())
	}
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

// FuzzLedger: no file makes the reader panic or take memory beyond the file's size, and what it accepts it can blame.
func FuzzLedger(f *testing.F) {
	dir := f.TempDir()
	path := filepath.Join(dir, "seed")
	l := openLedger(f, path)
	require.NoError(f, l.Append(3, Position{Order: "o", Sources: make([]SourcePosition, 2)},
		[]int64{1, 2, 3}))
	require.NoError(f, l.Append(4, Position{}, []int64{9, 1}))
	require.NoError(f, l.Close())
	seed, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(seed)
	f.Add(seed[:len(seed)-3])
	f.Add([]byte(ledgerMagic))
	f.Fuzz(func(t *testing.T, file []byte) {
		steps, end, err := scanLedger(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		if end > int64(len(file)) {
			t.Fatalf("the ledger ends at byte %d of %d", end, len(file))
		}
		for _, s := range steps {
			_, _, _, _ = parseRecord(file[s.offset : s.offset+int64(s.size)])
		}
		_, _, _, _ = parseRecord(file)
	})
}

func TestQuarantineFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.jsonl")
	q, err := OpenQuarantine(path)
	require.NoError(t, err)
	a, b := Bad{"s", 1, Place{"f", 10}, "x"}, Bad{"s", 2, Place{"f", 20}, "y\n\"z\""}
	for _, bad := range []Bad{a, b, a} {
		require.NoError(t, q.Add(bad))
	}
	require.NoError(t, q.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{"source":"s","document":1,"file":"f","offset":10,"reason":"x"}`+"\n"+`{"source":"s","document":2,"file":"f","offset":20,"reason":"y\n\"z\""}`+"\n", string(whole))
	for cut := range len(whole) { // killed while writing
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		q, err := OpenQuarantine(path)
		require.NoError(t, err)
		require.NoError(t, q.Add(a))
		require.NoError(t, q.Add(b))
		require.Equal(t, []Bad{a, b}, q.List())
		require.NoError(t, q.Close())
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, whole, got, "cut at %d", cut)
	}
	require.NoError(t, os.WriteFile(path, []byte("{}\nnot json\n"), 0o600))
	_, err = OpenQuarantine(path)
	require.ErrorContains(t, err, "q.jsonl:2")
}
