package format

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// long kills readers at 50 moments; without it at 5.
var long = flag.Bool("long", false, "run the fault tier in full")

const (
	killSteps = 150
	killSave  = 4 // steps between checkpoints
)

// killCheckpoint is what the reading process keeps.
type killCheckpoint struct {
	Step     int64
	Position dataset.Position
}

// readShards reads steps of a data set as a training run does: each rank takes its share, what the step saw
// goes into the ledger, and now and then the position is saved.
func readShards(t *testing.T, dir string, readers, ranks int, last int64) {
	l, err := dataset.OpenLoader(dataset.LoaderConfig{Sources: []dataset.Weighted{
		{Source: formattest.Open(t, dir+"/a-*.tar", dataset.Options{}), Weight: 2},
		{Source: formattest.Open(t, dir+"/b.tar", dataset.Options{}), Weight: 1}},
		Mode: dataset.ModeSFT, SeqLen: 96, EOD: -1, Window: 16, OrderWindow: 40, MicroBatch: 1,
		GlobalBatch: 4, Readers: readers, Seed: 3, Budget: dataset.Budget{Count: 1 << 40},
		Packing: dataset.PackLargestFit, Samples: &VisionEncoder{Chat: formattest.Letters{}, Expander: formattest.PerByte{}}}, nil)
	require.NoError(t, err)
	defer l.Close()
	ledger, err := dataset.OpenLedger(dir + "/ledger")
	require.NoError(t, err)
	defer ledger.Close()
	var at killCheckpoint
	if b, err := os.ReadFile(dir + "/checkpoint"); err == nil {
		require.NoError(t, json.Unmarshal(b, &at))
		require.NoError(t, l.Seek(at.Position))
	}
	require.NoError(t, ledger.Truncate(at.Step))
	for step := at.Step; step < last; step++ {
		start := l.Position()
		batches, err := l.Step(step)
		require.NoError(t, err)
		shares := make([][]dataset.Batch, ranks)
		for r := range shares {
			shares[r] = dataset.Share(batches, r, ranks)
		}
		var samples []int64
		for m := range batches {
			samples = append(samples, shares[m%ranks][m/ranks].Samples()...)
		}
		require.NoError(t, ledger.Append(step, start, samples))
		if step%killSave == killSave-1 {
			b, err := json.Marshal(killCheckpoint{step + 1, l.Position()})
			require.NoError(t, err)
			require.NoError(t, WriteOwn(dir+"/checkpoint", b))
		}
		if os.Getenv("LFACTOR_KILL_DIR") != "" {
			fmt.Println("step", step)
		}
	}
}

// TestKillChild is the process that TestKilledReader kills.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("LFACTOR_KILL_DIR")
	if dir == "" {
		t.Skip("run by TestKilledReader")
	}
	var readers, ranks int
	_, err := fmt.Sscan(os.Getenv("LFACTOR_KILL_SHAPE"), &readers, &ranks)
	require.NoError(t, err)
	readShards(t, dir, readers, ranks, killSteps)
}

// killData writes three shards and a half, one of them with a bad sample.
func killData(t *testing.T, dir string) {
	for s, name := range []string{"a-0.tar", "a-1.tar", "a-2.tar", "b.tar"} {
		w, err := CreateShard(filepath.Join(dir, name))
		require.NoError(t, err)
		for i := range 61 {
			d := formattest.SampleOf(fmt.Sprintf(`{"texts":[{"role":"user","content":"<image>%s"},{"role":"assistant","content":"yes %d"}],"media":"image","name":["0_x.jpg"]}`,
				strings.Repeat("q", (i*7+s)%40), i), "0_x.jpg="+strings.Repeat("p", 1+(i*5+s)%20))
			if s == 1 && i%20 == 7 {
				d = formattest.SampleOf(`{"texts":[{"role":"user","content":"<image>"}]}`)
			}
			require.NoError(t, w.Add(fmt.Sprintf("k%d_%d", s, i), d.Parts))
		}
		require.NoError(t, w.Close())
	}
}

// A reader that is killed at random moments, and resumed with other numbers of readers and ranks, leaves the
// ledger of the run that nobody disturbed.
func TestKilledReader(t *testing.T) {
	kills := 5
	if *long {
		kills = 50
	} else {
		t.Log("5 of 50 kills; all of them with -long")
	}
	whole, dir := t.TempDir(), t.TempDir()
	killData(t, whole)
	killData(t, dir)
	readShards(t, whole, 1, 1, killSteps)
	want, err := dataset.ReadLedger(whole + "/ledger")
	require.NoError(t, err)
	defer want.Close()
	rng := rand.New(rand.NewPCG(11, uint64(kills)))
	for k := 0; k < kills; k++ {
		if k%6 == 5 { // from the start again, so that kills are spread over a run
			require.NoError(t, os.Remove(dir+"/checkpoint"))
		}
		runAndKill(t, dir, k, int64(rng.IntN(30)), time.Duration(rng.IntN(3000))*time.Microsecond)
		compareLedgers(t, want, dir, false)
	}
	runAndKill(t, dir, kills, killSteps, 0)
	compareLedgers(t, want, dir, true)
}

// runAndKill starts the reader in the k-th shape and kills it some time after so many more steps.
func runAndKill(t *testing.T, dir string, k int, steps int64, more time.Duration) {
	c := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
	c.Env = append(os.Environ(), "LFACTOR_KILL_DIR="+dir,
		fmt.Sprintf("LFACTOR_KILL_SHAPE=%d %d", 1+k%3, 1<<(k/3%3)))
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(out)
	for n := int64(0); n <= steps && lines.Scan(); n++ {
		require.NotContains(t, lines.Text(), "FAIL")
	}
	for end := time.Now().Add(more); time.Now().Before(end); { // a moment within a step, not at its end
	}
	_ = c.Process.Kill() // it may have ended
	for lines.Scan() {
	}
	_ = c.Wait() // it was killed
}

// compareLedgers compares what the reader has recorded with the run that nobody disturbed.
func compareLedgers(t *testing.T, want *dataset.Ledger, dir string, all bool) {
	have, err := dataset.ReadLedger(dir + "/ledger")
	require.NoError(t, err)
	defer have.Close()
	last, ok := have.Last()
	if all {
		require.EqualValues(t, killSteps-1, last)
	}
	for step := int64(0); ok && step <= last; step++ {
		a, p, err := want.Blame(step)
		require.NoError(t, err)
		b, q, err := have.Blame(step)
		require.NoError(t, err)
		require.Equal(t, a, b, "step %d", step)
		require.Equal(t, p, q, "step %d", step)
	}
}
